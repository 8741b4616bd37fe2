"""Benchmarks in containers of an ordinary user, for real: images made of a node, mpirun across the
containers of two, and nothing left of them however a run ends."""

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from lab_under_test import PROJECT, Lab
from planted import MARK, PLACES, planted

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.containers]  # minutes

NODES = ("node1", "node2")
PODMAN = "runuser -u dlperf -- env -C / HOME=/home/dlperf podman"
CASE = "mxnet-resnet50v1b-builtin-podman_fp32_b2_2n2g"
ONE = '{"dlperf_frameworks": ["mxnet"]}'
PROVISION = ("provision.yml", "-e", "dlperf_container_engine=podman", "-e", ONE)
# Changed on the node since their packages brought them.
EDITED = ("/etc/deluser.conf", "/usr/share/base-files/motd")
PLANT = "".join(
    f"mkdir -p {Path(place).parent}; echo {shlex.quote(planted(place))} >> {place}\n"
    for place in (*PLACES, *EDITED)
)
BENCH = ("bench.yml", "-e", "container=podman", "-e", "model=resnet50v1b", "-e", "nodes=2")


@pytest.fixture(scope="module")
def contained(lab: Lab) -> Iterator[Lab]:
    """Nodes with secrets in all the usual places, provisioned."""
    for node in NODES:
        lab.said(node, PLANT)
    lab.play(*PROVISION)
    yield lab
    script = f"for file in {' '.join((*PLACES, *EDITED))}; do sed -i /{MARK}/d $file; "
    script += "[ -s $file ] || rm $file; rmdir -p --ignore-fail-on-non-empty $(dirname $file); done"
    for node in NODES:
        lab.ssh(node, script)


def containers(lab: Lab) -> dict[str, str]:
    """Names of the containers that each node has, running or not."""
    return {node: lab.said(node, f"{PODMAN} ps -a --format '{{{{.Names}}}}'") for node in NODES}


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def test_provisioning_again_changes_nothing(contained: Lab) -> None:
    recap = contained.play(*PROVISION).rpartition("PLAY RECAP")[2]
    assert re.findall(r"(node\d) .*changed=(\d+)", recap) == [("node1", "0"), ("node2", "0")]


def test_all_nodes_have_one_image_and_nothing_of_the_node_is_in_it(contained: Lab) -> None:
    images = json.loads((contained.directory / "container_images.json").read_text())
    (digest,) = images.values()
    image = f"localhost/dlperf-mxnet@{digest}"
    for node in NODES:
        assert contained.said(node, f"{PODMAN} image exists {image} && echo there") == "there"
    inside = contained.said(
        "node2",
        f"{PODMAN} run --rm --network host {image}"
        " sh -c 'ls -A /root /home /etc/ssh /opt/dlperf /opt/dlperf/envs; ls /etc/shadow || true'",
    )
    assert "mxnet" in inside
    for secret in ("ssh_host", ".ssh", "dlperf\n/etc", "stamps", "/etc/shadow\n"):
        assert secret not in inside


def test_no_secret_of_the_node_is_in_the_image(contained: Lab) -> None:
    """Searched in the archive as it is before an engine reads it, made again on the same node."""
    (digest,) = json.loads((contained.directory / "container_images.json").read_text()).values()
    contained.said("node1", f"{PODMAN} rmi --force localhost/dlperf-mxnet:node >&2; echo removed")
    contained.said("node1", PLANT)  # provisioning made /etc/passwd- anew
    archive = "/var/tmp/searched.tar"
    given = "name=localhost/dlperf-mxnet environment=/opt/dlperf/envs/mxnet user=dlperf"
    argv = ["ansible", "node1", "--become", "-m", "container_image"]
    made = contained.command(*argv, "-a", f"{given} mpirun=/usr/bin/mpirun archive={archive}")
    assert made.returncode == 0, made.stdout
    assert digest in made.stdout  # the same node makes the same image
    assert contained.said("node1", f"stat -c '%a %U' {archive}") == "600 dlperf"
    count = f"grep --text --count {{}} {archive} || true"
    assert int(contained.said("node1", count.format("libmxnet.so"))) > 0
    assert contained.said("node1", count.format(MARK)) == "0"
    found = contained.said("node1", f"grep -l {MARK} {' '.join((*PLACES, *EDITED))} || true")
    assert set(found.split()) == {*PLACES, *EDITED}
    listed = contained.said("node1", f"cd /tmp && tar -xOf {archive} layer.tar | tar -t")
    assert not {place.lstrip("/") for place in PLACES} & set(listed.split())
    contained.said("node1", f"rm {archive}; echo removed")


def test_an_image_that_was_replaced_is_removed(contained: Lab) -> None:
    """As one is whose name another image has taken."""
    make = f"tar -c -T /dev/null | {PODMAN} import --change LABEL=dlperf.contents=1 -"
    for node in NODES:
        contained.said(node, make)
    contained.play(*PROVISION, "--tags", "container")
    names = f"{PODMAN} images --all --format '{{{{.Repository}}}}'"
    assert {contained.said(node, names) for node in NODES} == {"localhost/dlperf-mxnet"}


def test_a_case_trains_across_the_containers_of_two_nodes(contained: Lab, tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    contained.play(*BENCH, "-e", f"campaign={campaign}")
    run = json.loads((campaign / f"runs/{CASE}/r1/run.json").read_text())
    assert re.fullmatch(r"podman localhost/dlperf-mxnet@sha256:[0-9a-f]{64}", run["container"])
    assert (run["outcome"]["status"], run["outcome"]["exit_status"]) == ("done", 0)
    assert {"mxnet", "horovod", "openmpi"} <= set(run["outcome"]["versions"])
    assert "world_size=4" in (campaign / f"runs/{CASE}/r1/rn50_b2_fp32_1.log").read_text()
    done = contained.command(sys.executable, "-m", "dlperf_runner", "summarize", str(campaign))
    assert done.returncode == 0, done.stdout
    assert re.search(r"^\| +2 \| +4 \| +[\d.]+ ", done.stdout, re.MULTILINE)
    assert containers(contained) == {"node1": "", "node2": ""}


def test_an_image_that_was_built_on_a_node_runs_by_its_id(contained: Lab, tmp_path: Path) -> None:
    """Built on one node and loaded on the other, as the documentation says. It is in no registry,
    and the run names it by nothing else."""
    contained.said(
        "node1",
        r"printf 'FROM localhost/dlperf-mxnet:node\nLABEL built=here\n' > /tmp/Containerfile && "
        f"{PODMAN} build --quiet --tag own --file /tmp/Containerfile /mnt && "
        f"{PODMAN} save own | runuser -u dlperf -- ssh node2 podman load",
    )
    ids = {contained.said(n, f"{PODMAN} image inspect -f '{{{{.Id}}}}' own") for n in NODES}
    assert len(ids) == 1, ids
    image = f"sha256:{ids.pop()}"
    known = json.dumps({"dlperf_container_images": {"localhost/dlperf-mxnet": f"id:{image}"}})
    campaign = tmp_path / "campaign"
    contained.play(*BENCH, "-e", f"campaign={campaign}", "-e", known)
    for node in NODES:
        contained.said(node, f"{PODMAN} rmi own")
    run = json.loads((campaign / f"runs/{CASE}/r1/run.json").read_text())
    assert (run["container"], run["outcome"]["status"]) == (f"podman {image}", "done")
    assert {"mxnet", "horovod", "openmpi"} <= set(run["outcome"]["versions"])
    done = contained.command(sys.executable, "-m", "dlperf_runner", "summarize", str(campaign))
    assert re.search(r"^\| +2 \| +4 \| +[\d.]+ ", done.stdout, re.MULTILINE), done.stdout


def test_a_launch_that_is_killed_leaves_no_container_on_any_node(
    contained: Lab, tmp_path: Path
) -> None:
    """kill -9 of `podman run`: its container would go on, and those that mpirun started."""
    campaign = tmp_path / "campaign"
    argv = ["ansible-playbook", *BENCH, "-e", "iterations=5000", "-e", f"campaign={campaign}"]
    playing = subprocess.Popen(
        argv, cwd=PROJECT, env=contained.environment, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        name = f"dlperf-{CASE}-r1"
        running = {"node1": name, "node2": name}
        until(lambda: containers(contained) == running, 120, "no containers on both nodes")
        # The brackets keep the pattern from finding the shell that it is told to.
        assert contained.ssh("node1", "pkill -9 -f 'podman ru[n]'").returncode == 0
        said, _ = playing.communicate(timeout=120)
    finally:
        playing.kill()
    assert playing.returncode == 2
    assert "node1: exit status -9" in said
    left = {"node1": "", "node2": ""}
    until(lambda: containers(contained) == left, 30, "containers are left")
    for node in NODES:
        assert contained.ssh(node, "pgrep -f 'mxnet_resnet5[0]'").stdout == ""


def test_a_node_without_the_image_is_said_before_anything_runs_and_gets_it_again(
    contained: Lab, tmp_path: Path
) -> None:
    contained.said("node2", f"{PODMAN} rmi --force --all >&2; echo removed")
    done = contained.command("ansible-playbook", *BENCH, "-e", f"campaign={tmp_path / 'c'}")
    assert done.returncode == 2
    assert "node2 cannot run podman localhost/dlperf-mxnet@sha256:" in done.stdout
    assert "provision.yml -e dlperf_container_engine=podman" in done.stdout
    assert re.search(rf"{CASE}/r1 +\| planned", done.stdout)
    assert not list(tmp_path.glob("c/runs/*/r1/*.log"))
    contained.play(*PROVISION, "--tags", "container")
    digest = f"{PODMAN} images --digests --format '{{{{.Digest}}}}'"
    assert contained.said("node2", digest) == contained.said("node1", digest)
