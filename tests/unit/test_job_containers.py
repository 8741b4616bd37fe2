"""Containers in a scheduler's jobs: the command lines of each engine, which one is taken, and a
campaign with a stand-in for an engine."""

import hashlib
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import standins
from command_line import call
from job_campaigns import campaign, execute, make_site, outcomes, program
from plan_examples import choose, job_nodes
from refusals import refusal

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.case import Command
from dlperf_runner.core.node import JOB_ENGINES
from dlperf_runner.plan.make import make_plan
from dlperf_runner.schedulers import job, scheduler
from dlperf_runner.schedulers.job import Places, run_script

PLACES = Places("/home/me/c/.sources", "/shared/envs", "/home/me/c/.lib", "/home/me/c/.images")
DIGEST = "sha256:" + "5" * 64
SOURCE = "/home/me/c/.sources/{}"


def plan(workload: str, engine: str, digest: str = DIGEST, **others: Any) -> dict[str, Any]:
    images = {f"localhost/dlperf-{name}": digest for name in ("nccl", "pytorch")}
    nodes = job_nodes(container_images=images, **others)
    choice = choose(workload=workload, container=engine, nodes=2)
    (run,) = make_plan(choice, load_catalog(), nodes)
    return asdict(run)


def executed(run: dict[str, Any]) -> list[str]:
    """The words of the command that the first node executes."""
    text = run_script(scheduler("slurm"), run, Path("/home/me/c/r1"), PLACES)
    lines = [x for x in text.split("  ;;\n")[0].splitlines() if x.strip().startswith("exec ")]
    return shlex.split(lines[-1])[1:]


def apptainer(name: str, place: str) -> list[str]:
    """What stands before a program that runs in the directory of its source."""
    start = f'exec {name} exec --pwd "$PWD" --bind "${{TMPDIR:-/tmp}}" "$@"'
    image = f"/home/me/c/.images/{'5' * 64}.sif"
    return ["/bin/sh", "-c", start, name, "--no-home", "--bind", f"{place}:{place}:ro", image]


def podman(image: str, place: str) -> list[str]:
    start = (
        'exec podman run --workdir "$PWD" --volume "${TMPDIR:-/tmp}:${TMPDIR:-/tmp}"'
        ' --label "dlperf=$DLPERF_JOB" --user "$(id -u):$(id -g)"'
        ' --uidmap "$(id -u):0:1" --gidmap "$(id -g):0:1" "$@"'
    )
    fixed = "--rm --pull never --log-driver none --cgroups enabled --network host --uts host"
    fixed += " --ipc host --pid host --env-host --env HOME=/tmp --entrypoint"
    cma = "OMPI_MCA_btl_vader_single_copy_mechanism=none"
    own = ["--env", cma, "--volume", f"{place}:{place}:ro", image]
    return ["/bin/sh", "-c", start, "podman", *fixed.split(), "", *own]


MPIRUN = shlex.split(
    "/usr/bin/mpirun --host '${node[0]}:2,${node[1]}:2' -np 4 --bind-to none --mca pml ob1"
    " --mca btl ^openib --wdir /home/me/c/.sources/nccl-allreduce-builtin"
)
COLLECTIVES = shlex.split(
    "/opt/dlperf/envs/nccl/bin/python -u mpi_collectives.py --operation all_reduce --max-bytes"
    " 16777216 --iterations 5 --warmup-iterations 1"
)


def test_mpirun_starts_a_container_for_each_process() -> None:
    place = SOURCE.format("nccl-allreduce-builtin")
    for engine, image in (
        *((name, apptainer(name, place)) for name in ("apptainer", "singularity")),
        ("podman", podman(f"localhost/dlperf-nccl@{DIGEST}", place)),
    ):
        run = plan("nccl-allreduce", engine)
        assert executed(run) == [*MPIRUN, *image, *COLLECTIVES]
    assert run["commands"][0]["cleanup"][2].startswith("podman ps --all --quiet --filter")


def test_torchrun_is_in_one_container_on_each_node() -> None:
    place = SOURCE.format("pytorch-llama-builtin")
    for engine, image in (
        ("apptainer", apptainer("apptainer", place)),
        ("podman", podman(f"localhost/dlperf-pytorch@{DIGEST}", place)),
    ):
        words = executed(plan("pytorch-llama", engine))
        assert words[0] == "env"  # its variables pass into the container
        start, end = map(words.index, ("/bin/sh", "/opt/dlperf/envs/pytorch/bin/python"))
        assert words[start:end] == image


def test_pyxis_is_options_of_the_srun_that_starts_the_script_on_each_node() -> None:
    run = plan("pytorch-llama", "enroot")
    text = run_script(scheduler("slurm"), run, Path("/home/me/c/r1"), PLACES)
    (srun,) = [line for line in text.splitlines() if line.startswith("  exec srun ")]
    place = SOURCE.format("pytorch-llama-builtin")
    assert srun.endswith(
        " --kill-on-bad-exit=1 --container-workdir=/home/me/c/r1"
        f" --container-image=/home/me/c/.images/{'5' * 64}.sqsh"
        f" --container-mounts=/home/me/c/r1:/home/me/c/r1,{place}:{place}:ro"
        ' --no-container-mount-home env DLPERF_ON_NODE=1 bash "$0" "$@"'
    )
    words = executed(run)
    assert "srun" not in words
    assert "/opt/dlperf/envs/pytorch/bin/python" in words


def test_gpus_fabric_and_the_sites_own_options() -> None:
    inside = job.Inside(
        f"podman i@{DIGEST}", ("/d",), gpus="nvidia", has_fabric=True, options=("--x",)
    )
    text = " ".join(job.words_before(inside))
    assert ' --volume "$PWD:$PWD"' in text  # it may write where it is started
    assert "--device nvidia.com/gpu=all --ulimit host --device /dev/infiniband" in text
    assert text.endswith(f"--volume /d:/d:ro --x i@{DIGEST}")
    inside = replace(inside, image=f"apptainer /i.sif@{DIGEST}")
    text = " ".join(job.words_before(inside))
    assert text.endswith('--bind "$PWD" "$@" apptainer --no-home --nv --bind /d:/d:ro --x /i.sif')
    amds = replace(inside, gpus="amd")
    assert " --no-home --rocm " in " ".join(job.words_before(amds))
    text = " ".join(job.words_before(replace(amds, image=f"podman i@{DIGEST}")))
    assert " --device /dev/kfd --device /dev/dri --group-add keep-groups --ulimit host " in text


IMAGE, FILE = f"r.example/a/b@{DIGEST}", f"/opt/dlperf/images/{'5' * 64}"


@pytest.mark.parametrize(
    ("image", "line"),
    [
        (f"podman {IMAGE}", f"podman image exists {IMAGE} || podman pull --quiet {IMAGE}"),
        (
            f"apptainer /images/b.sif@{DIGEST}",
            f"sha256sum --check --quiet <<< '{'5' * 64}  /images/b.sif'",
        ),
        (
            f"apptainer {IMAGE}",
            f"[[ -e {FILE}.sif ]] || {{ mkdir -p /opt/dlperf/images && apptainer pull"
            f" {FILE}.sif.part docker://{IMAGE} && mv {FILE}.sif.part {FILE}.sif; }}",
        ),
        (
            f"enroot {IMAGE}",
            f"[[ -e {FILE}.sqsh ]] || {{ mkdir -p /opt/dlperf/images && enroot import --output"
            f" {FILE}.sqsh.part 'docker://r.example#a/b:{DIGEST}'"
            f" && mv {FILE}.sqsh.part {FILE}.sqsh; }}",
        ),
    ],
)
def test_a_job_gets_its_image_by_digest(image: str, line: str) -> None:
    assert job.prepare(image) == line


@pytest.mark.parametrize("engine", JOB_ENGINES)
def test_without_its_container_a_command_is_the_same(engine: str) -> None:
    for workload in ("nccl-allreduce", "pytorch-llama")[engine == "enroot" :]:
        run = plan(workload, engine)
        (bare, *_) = make_plan(choose(workload=workload, nodes=2), load_catalog(), job_nodes())
        command = Command(**run["commands"][0])
        assert command.bare.argv == bare.commands[0].argv


def test_the_digest_of_a_file_is_refused_where_the_engine_has_a_storage() -> None:
    file = f"/images/b.sif@{DIGEST}"
    assert plan("nccl-allreduce", "apptainer", digest=file)["container"] == f"apptainer {file}"
    for engine, digest in (("podman", file), ("singularity", "id:" + DIGEST), ("apptainer", "/b")):
        assert "invalid digest" in refusal(plan, "nccl-allreduce", engine, digest=digest)


def test_the_engine_is_chosen_by_name_or_by_what_is_there() -> None:
    assert plan("nccl-allreduce", "auto", container_engine="podman")["container"].startswith("pod")
    for engine, message in (
        ("auto", "no container engine was found on this machine"),
        ("enroot", "mpirun cannot start containers of enroot"),
        ("docker", "docker cannot run in a scheduler's job"),
    ):
        assert message in refusal(plan, "nccl-allreduce", engine)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A site whose apptainer says what it was told, and then starts the program without options."""
    path = make_site(tmp_path, monkeypatch)
    script = (
        f'echo "$@" >> {tmp_path}/told\nuntil [ "${{1%.sif}}" != "$1" ]; do shift; done\nshift\n'
        'if [ $1 = /bin/sh ]; then echo \'[{"name": "numpy", "version": "1"}]\'; exit; fi\n'
        'echo "# in the container: $2"'
    )
    standins.program(tmp_path / "bin", "apptainer", script)
    # mpirun starts one process.
    program(tmp_path / "bin", 'while [[ $1 != /bin/sh ]]; do shift; done; exec "$@"')
    image = tmp_path / "nccl.sif"
    image.write_bytes(b"an image")
    digest = hashlib.sha256(b"an image").hexdigest()
    given = f'dlperf_container_images: {{localhost/dlperf-nccl: "{image}@sha256:{digest}"}}\n'
    path.write_text(path.read_text() + given)
    return path


def test_a_campaign_in_containers(site: Path) -> None:
    directory = campaign(site, container="auto", nodes="1")
    assert execute(directory)[0] == []
    (outcome,) = outcomes(directory)
    assert outcome["status"] == "done", outcome
    assert outcome["versions"] == {"numpy": "1", "openmpi": "4.1.4"}
    (log,) = directory.glob("runs/*-apptainer_*/r1/*.log")
    assert log.read_text() == "# in the container: -u\n"
    assert f"{directory}/.sources/nccl-allreduce-builtin:" in (site.parent / "told").read_text()


def test_an_image_with_another_content_starts_no_run(site: Path) -> None:
    (site.parent / "nccl.sif").write_bytes(b"another image")
    directory = campaign(site, container="apptainer", nodes="1")
    (problem,) = execute(directory)[0]
    assert "ended before 1 run began" in problem
    assert [outcome["status"] for outcome in outcomes(directory)] == ["planned"]


def test_the_option_is_taken_with_a_scheduler_only(site: Path) -> None:
    options = ("--scheduler", "slurm", "--site", site, "--workload", "nccl-allreduce")
    shown = call("plan", *options, "--container", "apptainer", "--nodes", "1").out
    assert "exec apptainer exec" in shown
    for engine in ("apptainer", "auto"):
        wrong = call("plan", "--model", "resnet50v1b", "--container", engine, status=2)
        assert f"{engine} runs only in jobs of a scheduler" in wrong.err
