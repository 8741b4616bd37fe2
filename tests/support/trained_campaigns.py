"""Two nodes on which builtin programs train, and what the runs of a campaign must show: every case
is done, and has learnt."""

import csv
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab_under_test import Lab, mirror_of

NODES = ("node1", "node2")
CASES = ["1n1g", "1n2g", "2n2g"]
LOSS = {
    "arcface_torch": r" samples/sec   Loss (\S+) ",
    "dllogger_pytorch": r" train\.loss : (\S+) ",
    "maxtext": r"completed step: .* loss: (\S+)",
    "torchtitan": r" step: +\d+  loss: +(\S+) ",
}


@contextmanager
def provisioned(
    directory: Path,
    frameworks: str,
    *,
    suite: str = "bookworm",
    nodes: int = 2,
    given: object = None,
) -> Iterator[Lab]:
    """Their host names resolve to 127.0.1.1 first, as Debian's installer sets them up. `given` are
    further variables of the inventory."""
    lab, mirror = Lab(directory / "lab"), mirror_of(frameworks, suite)
    lab.up(lab_nodes=nodes, lab_suite=suite, lab_frameworks=frameworks, lab_mirror_dir=mirror)
    try:
        lab.play("provision.yml", "-e", json.dumps(given or {}))
        for node in NODES:
            first = f"echo 127.0.1.1 {node} | cat - /etc/hosts > /tmp/h && cp /tmp/h /etc/hosts"
            lab.said(node, first)
            assert lab.said(node, f"getent hosts {node}").startswith("127.0.1.1")
        yield lab
    finally:
        lab.down()


def runs_of(campaign: Path) -> list[tuple[dict[str, object], str]]:
    """Each run's record, and its log."""
    found = []
    for path in sorted(campaign.glob("runs/*/r1/run.json")):
        record = json.loads(path.read_text())
        found.append((record, (path.parent / record["log_name"]).read_text()))
    return found


def check(
    found: list[tuple[dict[str, object], str]], workloads: list[str], package: str, version: str
) -> None:
    """Every case of the workloads is done, with this version, and has learnt."""
    ran = [(run["workload"], f"{run['nodes']}n{run['gpus_per_node']}g") for run, _ in found]
    assert sorted(ran) == sorted((name, case) for name in workloads for case in CASES)
    for run, log in found:
        check_learnt(run, log)
        assert run["outcome"]["versions"][package].startswith(version)  # type: ignore[index]


def check_learnt(run: dict[str, object], log: str) -> None:
    """The run is done, and its loss has fallen by a tenth."""
    assert run["outcome"]["status"] == "done", log  # type: ignore[index]
    losses = [float(text) for text in re.findall(LOSS[str(run["log_format"])], log)]
    assert len(losses) == run["total_steps"]
    assert losses[-1] < 0.9 * losses[0]


def trained(lab: Lab, campaign: Path, *options: str) -> list[tuple[dict[str, object], str]]:
    """The runs of a campaign with these options of `run`."""
    argv = ("python", "-m", "dlperf_runner", "run", *options, "--campaign", str(campaign))
    done = lab.command(*argv)
    assert done.returncode == 0, done.stdout
    return runs_of(campaign)


def of_dlperf(lab: Lab, command: str, campaign: Path) -> str:
    """What a command of dlperf that reads a campaign prints."""
    done = lab.command("python", "-m", "dlperf_runner", command, str(campaign))
    assert done.returncode == 0, done.stdout
    return done.stdout


def check_table(lab: Lab, campaign: Path, workloads: int, versions: set[str], *units: str) -> None:
    """The table has a row for each case, with the frameworks' versions, and these units."""
    printed = of_dlperf(lab, "summarize", campaign)
    assert all(unit in printed for unit in units)
    with (campaign / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == workloads * len(CASES)
    assert {row["framework_version"] for row in rows} == versions


def step_shares(lab: Lab, campaign: Path, *alone: str) -> str:
    """The text of the report, which says for each workload on 2n2g how much of a step is the
    computation. The logs of several devices have `alone` and the times of steps alone."""
    texts = ("seconds of a step without communication", *alone)
    for run, log in runs_of(campaign):
        assert [text in log for text in texts] == [run["world_size"] != 1] * len(texts)
    of_dlperf(lab, "report", campaign)
    text = " ".join((campaign / "report" / "report.md").read_text().split())
    said = re.findall(r"2n2g: of a step of (\S+) s, (\S+)% is the computation", text)
    assert len(said) == len({run["workload"] for run, _ in runs_of(campaign)})
    assert all(float(step) > 0 and 0 < float(share) <= 100 for step, share in said)
    return text


def check_second_provisioning(lab: Lab) -> None:
    recap = lab.play("provision.yml", "--tags", "framework").rpartition("PLAY RECAP")[2]
    assert set(re.findall(r"changed=(\d+)", recap)) == {"0"}
