"""The role benchmark_run, executed by Ansible on this machine as three hosts: what comes home."""

import hashlib
from functools import partial
from pathlib import Path

import pytest
from executed_modules import HAVE_RUNUSER, play
from role_runs import HOSTS, as_bench_does, command, outcome, run_role
from standins import TWO, prints, program

from dlperf_runner.campaign.manifest import changes, read


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """PATH with stand-ins for nvidia-smi and for the ssh by which other nodes are asked."""
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    ssh = program(tmp_path / "ssh", "ssh", 'while [ "$1" != -- ]; do shift; done\nexec sh -c "$3"')
    return f"{ssh}:{smi}:/usr/bin:/bin"


def kept(run: Path) -> list[str]:
    """The files of a run, except those of kernels' logs, which only some users may read."""
    return sorted(path.name for path in run.iterdir() if not path.name.startswith("xid-"))


@pytest.mark.parametrize("launched_on", [HOSTS[:1], HOSTS], ids=["mpirun", "every node"])
def test_gpu_memory_of_every_node_comes_home(
    tmp_path: Path, programs: str, launched_on: list[str]
) -> None:
    run = run_role(tmp_path, programs, launched_on)
    # One device of each node is the run's.
    assert outcome(run)["gpu_memory_mib"] == {host: {"0": 10} for host in HOSTS}
    logs = ["train.log", *(f"train.log.{host}" for host in launched_on[1:])]
    assert kept(run) == sorted(["run.json", *logs, *(f"telemetry-{host}.csv" for host in HOSTS)])


def test_run_on_cpus_of_every_node_asks_for_no_gpu_and_takes_one_task_per_node(
    tmp_path: Path, programs: str
) -> None:
    """All else is done once: on 64 nodes, each further task took the controller seconds. Its files
    are in the manifest when it ends."""
    commands = [command(host, programs, "sleep", "1") for host in HOSTS]
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    (campaign / "campaign.json").write_text("{}")
    run = run_role(tmp_path, "", HOSTS, accelerator="cpu", commands=commands, plays=as_bench_does)
    assert outcome(run)["exit_status"] == 0
    assert "gpu_memory_mib" not in outcome(run)
    assert not (tmp_path / "bin" / "calls").exists()
    assert not (run.parent / "r2").exists()  # a node of it is not ready
    tasks = (tmp_path / "output").read_text().split("TASK [benchmark_run : ")[1:]
    answers = [(text.split("]")[0], text.count("ed: [node")) for text in tasks]
    assert answers == [
        ("Record the start of the run", 1),
        ("Launch the run and fetch its log", 3),
        ("Record the outcome of the run", 1),
    ]
    names = {f"telemetry-{host}.csv" for host in HOSTS} | {"run.json", "train.log"}
    names |= {f"train.log.{host}" for host in HOSTS[1:]}
    assert set(kept(run)) == names
    manifest = read(campaign)
    assert manifest
    listed = {name for name in manifest.files if "/xid-" not in name}
    assert listed == {"campaign.json", *(f"runs/case/r1/{name}" for name in names)}
    assert list(changes(campaign, manifest)) == []
    (run / "train.log").write_text("trained faster")
    (told,) = changes(campaign, manifest)
    assert told.startswith("runs/case/r1/train.log: changed since manifest.jsonl:2")


# ---- one campaign, each of whose runs on node1 does something bad

PLANTED = "the secret that was planted"
# By the number of the run. r1 replaces its record on the controller; r7 says that it has ended, for
# a reason that there is not, and is recorded.
BAD = """\
case $PWD in
*/r1) cd {campaign}/runs/case/r1; [ ! -f run.json ] || {{ rm run.json; mkdir run.json; }};;
*/r3) echo trained; rm train.log; truncate -s 30M train.log;;
*/r4) sample=telemetry-node1.csv
  until test -s $sample; do sleep 0.1; done; rm $sample; ln -s {secret} $sample;;
*/r5) yes 'Speed: 1.0 samples/sec' | head -c 17825792;;
*/r6) echo trained;;
*/r7) until grep '"pid"' job.json; do sleep 0.1; done
  sed -i 's/"started": [0-9.]*/"started": 1.0, "finished": true, "exit_status": 0, "ended": 2.0,\
 "reason": [], "telemetry": ["..\\/..\\/x"]/' job.json; sleep 5;;
esac
"""


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the runs r1 to r7; what was printed is in the file `output` there."""
    folder = tmp_path_factory.mktemp("bad")
    (folder / "secret").write_text(PLANTED)
    earlier = folder / "campaign/runs/case/r3/train.log"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("of an earlier launch")
    (folder / "campaign/campaign.json").write_text("{}")
    script = BAD.format(campaign=folder / "campaign", secret=folder / "secret")
    commands = [command("node1", "/usr/bin:/bin", "sh", "-c", script)]
    variables = {"benchmark_run_log_limit_mib": 18}
    plays = partial(as_bench_does, repeats=6)
    given = {"accelerator": "cpu", "commands": commands}
    runs = run_role(folder, "", HOSTS[:1], variables, plays, **given).parent
    return (folder / "output").rename(runs / "output").parent


def test_campaign_continues_after_a_run_that_cannot_be_recorded(bad: Path) -> None:
    """Else it would not release its nodes."""
    assert "cannot record case/r1" in " ".join((bad / "output").read_text().split())
    assert (bad / "r1/run.json").is_dir()
    assert outcome(bad / "r6")["exit_status"] == 0


def test_large_log_comes_in_parts(bad: Path) -> None:
    """17 MiB: two parts of at most 16 MiB."""
    log = (bad / "r5/train.log").read_bytes()
    assert log == (b"Speed: 1.0 samples/sec\n" * (1 << 20))[: 17 << 20]
    assert outcome(bad / "r5")["log_sha256"] == hashlib.sha256(log).hexdigest()
    assert kept(bad / "r5") == ["run.json", "telemetry-node1.csv", "train.log"]


# test_benchmark_fetch.py has all that is refused.
def test_log_that_is_refused_fails_the_run(bad: Path) -> None:
    found = outcome(bad / "r3", "failed")
    assert found["exit_status"] == 0
    assert found["message"].startswith("node1: train.log was not fetched: ")
    assert "has 31457280 bytes, more than the limit of 18874368" in found["message"]
    assert "at most 18 MiB is fetched" in found["message"]
    assert "raise benchmark_run_log_limit_mib" in found["message"]
    assert "log_sha256" not in found
    assert kept(bad / "r3") == ["run.json", "telemetry-node1.csv"]


def test_telemetry_that_is_refused_fails_the_run_and_keeps_its_log(bad: Path) -> None:
    message = outcome(bad / "r4", "failed")["message"]
    assert "telemetry-node1.csv was not fetched: " in message
    assert "raise benchmark_run_telemetry_limit_mib" in message
    assert kept(bad / "r4") == ["run.json", "train.log"]
    assert PLANTED not in "".join(path.read_text() for path in (bad / "r4").iterdir())


def test_state_that_is_forged_fails_the_run_and_no_task(bad: Path) -> None:
    found = outcome(bad / "r7", "failed")
    assert "node1: the node's answer is damaged: exit status 0, reason []" in found["message"]


# ---- the copy of a campaign's results in the folder that the nodes share

MISSING = "The results were not copied to"


def share(folder: Path) -> str:
    """What the playbook prints that copies the campaign of the folder to the folder's share."""
    role = {"name": "benchmark_run", "tasks_from": "share.yml"}
    variables = {
        "benchmark_run_campaign": str(folder / "results/20260101T000000Z"),
        "benchmark_run_shared": str(folder / "share/results"),
    }
    task = {"name": "Share", "ansible.builtin.include_role": role}
    done = play(folder, task, variables=variables, TMPDIR=str(folder / "tmp"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((folder / "tmp").glob("dlperf-results-*"))
    return " ".join(done.stdout.split())


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    if not HAVE_RUNUSER:
        pytest.skip("the copy belongs to root")
    made = tmp_path / "results/20260101T000000Z"
    (made / "runs/case/r1").mkdir(parents=True)
    (made / "plan.json").write_text("{}")
    (made / "ansible.log").write_text("still written to")
    log = made / "runs/case/r1/train.log"
    log.write_text("step 1\n")
    log.chmod(0o600)
    (tmp_path / "tmp").mkdir()
    return made


def test_every_user_of_the_cluster_can_read_the_results(tmp_path: Path, campaign: Path) -> None:
    (tmp_path / "share").mkdir()
    assert MISSING not in share(tmp_path)
    copy = tmp_path / "share/results" / campaign.name
    found = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    assert found == ["plan.json", "runs/case/r1/train.log"]
    for path in (copy, *copy.rglob("*")):
        assert path.stat().st_uid == 0
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)
    # A resumed campaign.
    (campaign / "plan.json").write_text('{"runs": []}')
    assert MISSING not in share(tmp_path)
    assert (copy / "plan.json").read_text() == '{"runs": []}'


def test_where_the_folder_is_not_mounted_nothing_is_written_and_the_campaign_goes_on(
    tmp_path: Path, campaign: Path
) -> None:
    output = share(tmp_path)
    assert MISSING in output
    assert f"They are in {campaign} on the controller" in output
    assert not (tmp_path / "share").exists()
