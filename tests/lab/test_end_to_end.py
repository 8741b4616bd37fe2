"""From provisioned nodes to the speed-up table, on one process, on two, and on two nodes: builtin
workloads, real training over MPI and the frameworks' own launchers.

The tests of the session's lab are in one file, so that one process runs them.
"""

import csv
import json
import math
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fault_campaigns import Campaign, faulty_workload, suffering
from faults import QUICK
from lab_under_test import END, PROJECT, Lab

# ---- The README's commands for a cluster, as they stand there

# What a user changes in the inventory that `dlperf init` makes, if the nodes are those of a lab
VARIABLES = {
    "dlperf_devices_per_node": 2,
    "dlperf_accelerator": "cpu",
    "dlperf_stack": "cpu",
    "dlperf_matrix": "smoke",
    "dlperf_interface": "eth0",
    "dlperf_mirror": "http://10.11.0.1:8010",
    # The nodes' own serve.
    "python_version": None,
    "dlperf_interface_address": None,
}
# PyTorch's environment is too large for this lab.
LAB_WORKLOAD = "mxnet-resnet50v1b"


@dataclass(frozen=True)
class Readme:
    """`inventory` takes the place of the README's `inventory/mine`."""

    lab: Lab
    inventory: Path

    def run(self, command: str, *more: str) -> str:
        """Run the line with this command, which must succeed; what it printed."""
        text = (PROJECT / "README.md").read_text().partition("### I have a cluster")[2]
        (line,) = re.findall(rf"(?m)^dlperf ({command} .*)$", text)
        line = line.partition("#")[0].replace("inventory/mine", str(self.inventory))
        words = line.replace("pytorch-resnet50v1.5", LAB_WORKLOAD).split()
        done = self.lab.command(sys.executable, "-m", "dlperf_runner", *words, *more)
        assert done.returncode == 0, done.stdout[-END:]
        return done.stdout

    def describe_lab(self, nodes: int, frameworks: str) -> None:
        """Edit the inventory that was made: names, addresses and what the nodes are."""
        hosts = {f"node{n}": {"ansible_host": f"10.11.0.{n + 1}"} for n in range(1, nodes + 1)}
        variables = {
            "ansible_user": "root",
            "ansible_ssh_common_args": f"-F '{self.lab.directory}/ssh_config'",
            # A link where the directory's path is too long for a socket.
            "ansible_control_path_dir": os.path.realpath(self.lab.directory / "cm"),
            "dlperf_mpirun_args": ["--oversubscribe"],
        }
        document = {"nodes": {"hosts": hosts, "vars": variables}}
        (self.inventory / "hosts.yml").write_text(json.dumps(document))
        path = self.inventory / "group_vars/nodes.yml"
        text = path.read_text()
        for name, value in {**VARIABLES, "dlperf_frameworks": frameworks.split(",")}.items():
            line = "" if value is None else f"{name}: {json.dumps(value)}"
            text, count = re.subn(rf"(?m)^(?:# )?{name}: .*$", line, text)
            assert count == 1, name
        of_lab = (PROJECT / "inventory/lab/group_vars/nodes.yml").read_text()
        (limits,) = re.findall(r"(?m)^node_base_limits:\n(?:  .*\n)+", of_lab)
        path.write_text(f"{text}\n{limits}")


# ---- tests

pytestmark = pytest.mark.lab

CASES = ("1n1g", "1n2g", "2n2g")
# Workload: what it runs on in the lab
TOPOLOGIES = {
    "mxnet-arcface": ["1n1g", "1n2g"],
    "paddle-arcface": ["1n1g", "1n2g", "2n2g"],
    "tensorflow-resnet50v1.5": ["1n1g", "1n2g", "2n2g"],
}
# The loss of the same batch as the log has it at first and at last
LOSSES = {
    "mxnet-arcface": r"^Loss of the fixed batch: (\S+) at first, (\S+) at last$",
    "tensorflow-resnet50v1.5": r"Loss of the fixed batch: (\S+) at first, (\S+) at last$",
    "paddle-arcface": r"batch:\d+ lr:\S+ loss:(\S+) qps",
    "oneflow-resnet50v1.5": r"^train: epoch 0, iter \d+, loss: (\S+),",
}


def dlperf(lab: Lab, *arguments: str, status: int = 0) -> str:
    """What a command prints that ends with this exit status."""
    done = lab.command(sys.executable, "-m", "dlperf_runner", *arguments)
    assert done.returncode == status, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def readme(lab: Lab, frameworks: str, tmp_path_factory: pytest.TempPathFactory) -> Readme:
    made = Readme(lab, tmp_path_factory.mktemp("inventory") / "mine")
    made.run("init")
    made.describe_lab(2, frameworks)
    return made


@pytest.fixture(scope="module")
def provisioned(readme: Readme, frameworks: str) -> Lab:
    """Two nodes with frameworks, which a lab that is up is given as a user gives them."""
    readme.lab.up(lab_nodes=2, lab_frameworks=frameworks)
    readme.run("provision", "--yes")  # there is no terminal to ask on
    return readme.lab


@pytest.fixture(scope="module")
def campaign(provisioned: Lab, readme: Readme) -> Iterator[Path]:
    """What the README's benchmark leaves in results/, which is removed after the tests."""
    latest = PROJECT / "results" / "latest"
    before = latest.readlink() if latest.is_symlink() else None
    readme.run("run")
    directory = latest.resolve()
    yield directory
    latest.unlink()
    if before:
        latest.symlink_to(before)
    shutil.rmtree(directory)


def test_the_all_reduce_is_proven_again_on_request(provisioned: Lab) -> None:
    """What was proven over another interface proves nothing for this one."""
    stamp = "/opt/dlperf/stamps/horovod-mxnet.json"
    assert provisioned.said("node1", f"stat -c %U {stamp}") == "root"
    provisioned.said("node1", f"sed -i s/eth0/ib0/ {stamp}")
    mxnet = ("-e", '{"dlperf_frameworks": ["mxnet"]}')
    output = provisioned.play("provision.yml", "--tags", "verify", *mxnet)
    recap = output.rpartition("PLAY RECAP")[2]
    assert re.findall(r"(node\d) .*changed=(\d+)", recap) == [("node1", "1"), ("node2", "0")]
    assert '"interface": "eth0"' in provisioned.said("node1", f"cat {stamp}")


def test_every_run_is_done_and_keeps_what_was_asked_and_what_came(campaign: Path) -> None:
    plan = json.loads((campaign / "plan.json").read_text())
    assert [f"{run['nodes']}n{run['gpus_per_node']}g" for run in plan["runs"]] == list(CASES)
    for run in plan["runs"]:
        directory = campaign / "runs" / run["id"]
        record = json.loads((directory / "run.json").read_text())
        outcome = record.pop("outcome")
        assert record == run  # key for key what was planned
        assert (outcome["status"], outcome["exit_status"]) == ("done", 0)
        assert outcome["elapsed_s"] > 0
        assert outcome["started"] < outcome["ended"]
        assert set(outcome["hosts"]) == set(run["hosts"])
        assert {"mxnet", "horovod", "openmpi"} <= set(outcome["versions"])
        assert (directory / run["log_name"]).stat().st_size > 0
        assert not (directory / "progress.json").exists()


def test_the_world_of_each_log_is_the_planned_one_and_the_loss_falls(campaign: Path) -> None:
    for log in campaign.glob("runs/*/r1/*.log"):
        text = log.read_text()
        run = json.loads((log.parent / "run.json").read_text())
        assert f"world_size={run['world_size']}" in text
        losses = [float(x) for x in re.findall(r"Loss\[([\d.]+)\]", text)]
        assert len(losses) == run["total_steps"]
        assert losses[-1] < losses[0]
        for told in (
            "seconds of a step without communication",
            "all-reduce of the gradients alone",
        ):
            assert (told in text) == (run["world_size"] > 1)


def test_benchmarks_run_as_the_ordinary_user(provisioned: Lab, campaign: Path) -> None:
    owners = provisioned.said("node1", f"stat -c %U /opt/dlperf/runs/{campaign.name}/*/*/*.log")
    assert set(owners.split()) == {"dlperf"}


def test_the_readmes_doctor_and_report_take_the_same_nodes_and_results(
    readme: Readme, campaign: Path
) -> None:
    readme.run("doctor")
    readme.run("report")
    assert "mxnet-resnet50v1b" in (campaign / "report/report.html").read_text()


def test_summarize_prints_the_table_and_writes_the_results(
    provisioned: Lab, campaign: Path
) -> None:
    text = dlperf(provisioned, "summarize", str(campaign))
    assert "node_num | gpu_num | samples/s | speedup" in text
    with (campaign / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [(row["nodes"], row["gpus_per_node"], row["world_size"]) for row in rows] == [
        ("1", "1", "1"),
        ("1", "2", "2"),
        ("2", "2", "4"),
    ]
    assert all(float(row["samples_per_second_median"]) > 0 for row in rows)
    assert float(rows[0]["speedup"]) == 1.0
    result = json.loads((campaign / "bz2_result.json").read_text())
    assert set(result["rn50"]) == set(CASES)


def test_the_runner_gives_the_same_directory_and_resumes(provisioned: Lab, campaign: Path) -> None:
    """One run of the campaign is taken away; `run --resume` makes that one again, and no other."""
    kept = campaign / "runs" / "mxnet-resnet50v1b-builtin_fp32_b2_1n2g" / "r1" / "run.json"
    lost = campaign / "runs" / "mxnet-resnet50v1b-builtin_fp32_b2_1n1g" / "r1"
    before = kept.read_bytes()
    shutil.rmtree(lost)
    assert "2 of 3 runs done" in dlperf(provisioned, "status", str(campaign), status=1)
    text = dlperf(provisioned, "run", "--resume", str(campaign))
    assert "node_num | gpu_num | samples/s | speedup" in text
    assert sorted(path.name for path in lost.iterdir()) == [
        *("rn50_b2_fp32_1.log", "run.json", "telemetry-node1.csv")
    ]
    assert kept.read_bytes() == before


@pytest.mark.heavy
@pytest.mark.campaigns
def test_repeats_are_added_until_the_interval_is_narrow_and_campaigns_until_there_are_three(
    provisioned: Lab, tmp_path: Path, results_kept: None
) -> None:
    chosen = ("--model", "resnet50v1b", "--nodes", "1", "--gpus-per-node", "1")
    first = tmp_path / "first"
    adaptive = ("--repeats", "1", "--until-ci", "90%", "--max-repeats", "5")
    text = dlperf(provisioned, "run", "--campaign", str(first), *chosen, *adaptive)
    # Of a single run there is no interval; five have one.
    assert "plan.2.json: 4 more runs of 1 case" in text
    (reason,) = json.loads((first / "plan.2.json").read_text())["reasons"].values()
    assert (reason["valid_runs"], reason["wanted_repeats"]) == (1, 5)
    assert "5 of 5 runs done" in dlperf(provisioned, "status", str(first))
    asked = ("aa", str(first), "--campaigns", "3", *chosen, "--repeats", "2")
    dlperf(provisioned, *asked)
    (entry,) = json.loads((PROJECT / "results/aa.json").read_text())["cases"]
    assert (len(set(entry["measured_with"])), entry["runs"]) == (3, 9)
    assert entry["variance_within"] > 0
    text = dlperf(provisioned, "compare", *entry["measured_with"][1:])
    assert "3 campaigns" in text


def test_a_run_that_fails_is_told_and_loses_nothing(provisioned: Lab, tmp_path: Path) -> None:
    """More classes than memory can hold: the program dies, the campaign says how and where."""
    directory = tmp_path / "failing"
    done = provisioned.command(
        "ansible-playbook", "bench.yml", "-e", "model=resnet50v1b", "-e", "nodes=1",
        "-e", "gpus_per_node=1", "-e", f"campaign={directory}",
        "-e", '{"parameters": {"classes": 100000000000}}',
    )  # fmt: skip
    assert done.returncode != 0
    assert "Not every run is done" in done.stdout
    assert "node1: exit status" in done.stdout
    record = json.loads(next(directory.glob("runs/*/r1/run.json")).read_text())
    assert record["outcome"]["status"] == "failed"
    assert next(directory.glob("runs/*/r1/*.log")).stat().st_size > 0


def test_campaign_survives_three_faults(provisioned: Lab, tmp_path: Path) -> None:
    """The quick part of the suite of faults. The last one loses a node; a retry would take long."""
    campaign = Campaign(provisioned, faulty_workload(tmp_path), tmp_path / "campaign", steps=60)
    with suffering(campaign, QUICK, "--on-node-loss=stop") as sufferer:
        for fault in QUICK:
            sufferer.check(fault)
        sufferer.finish()
    assert campaign.statuses() == ["done", *["failed"] * len(QUICK)]


def loss_of(log: Path, workload: str) -> tuple[float, float]:
    found = re.findall(LOSSES[workload], log.read_text(), re.MULTILINE)
    values = [
        float(value) for each in found for value in ([each] if isinstance(each, str) else each)
    ]
    return values[0], values[-1]


def check_campaign(lab: Lab, campaign: Path, topologies: dict[str, list[str]]) -> None:
    """Every run is done, learnt its batch, and stands in the table with speed-up and efficiency."""
    runs = json.loads((campaign / "plan.json").read_text())["runs"]
    planned: dict[str, list[str]] = {}
    for run in runs:
        planned.setdefault(run["workload"], []).append(f"{run['nodes']}n{run['gpus_per_node']}g")
        directory = campaign / "runs" / run["id"]
        outcome = json.loads((directory / "run.json").read_text())["outcome"]
        assert (outcome["status"], outcome["exit_status"]) == ("done", 0)
        first, last = loss_of(directory / run["log_name"], run["workload"])
        assert math.isfinite(last), run["id"]
        assert last < first, run["id"]
    assert planned == topologies
    done = lab.command(sys.executable, "-m", "dlperf_runner", "summarize", str(campaign))
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("| node_num | gpu_num | samples/s | speedup | efficiency |") == len(
        planned
    )
    with (campaign / "summary.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert len(rows) == len(runs)
    for row in rows:
        assert float(row["samples_per_second_median"]) > 0
        assert float(row["speedup"]) > 0
        efficiency = float(row["speedup"]) / int(row["world_size"])
        assert float(row["scaling_efficiency"]) == pytest.approx(efficiency)


def test_provisioning_again_changes_nothing(provisioned: Lab) -> None:
    output, _, recap = provisioned.play("provision.yml").rpartition("PLAY RECAP")
    assert "Validating arguments" not in output  # no role had anything to do
    assert re.findall(r"(node\d) .*changed=(\d+)", recap) == [("node1", "0"), ("node2", "0")]


@pytest.mark.heavy
@pytest.mark.campaigns
def test_one_model_names_the_workloads_of_two_frameworks(provisioned: Lab, tmp_path: Path) -> None:
    campaign = tmp_path / "arcface"
    provisioned.play("bench.yml", "-e", "model=arcface", "-e", f"campaign={campaign}")
    chosen = {name: TOPOLOGIES[name] for name in ("mxnet-arcface", "paddle-arcface")}
    check_campaign(provisioned, campaign, chosen)


def test_the_doctor_measures_collectives_on_all_nodes_together_and_on_each_alone(
    provisioned: Lab, results_kept: None
) -> None:
    """Over MPI. What it measured is a campaign as any other."""
    text = dlperf(provisioned, "doctor", "--bandwidth", "--json")
    findings = json.loads(text[text.index("{") :])["findings"]
    found = {each["node"]: each for each in findings if each["check"] == "bus bandwidth"}
    assert list(found) == ["", "node1", "node2"]
    assert found[""]["found"].endswith(" GB/s over 2 nodes")
    assert all(float(each["found"].split()[0]) > 0 for each in found.values())
    (campaign,) = re.findall(r"of all nodes: (\S+)", text)
    ranks = {}
    for path in Path(campaign).glob("runs/*/r*/run.json"):
        run = json.loads(path.read_text())
        assert (run["outcome"]["status"], run["source"]) == ("done", "builtin")
        ranks[str(path.parent / run["log_name"])] = 2 * run["nodes"]
    assert sorted(ranks.values()) == [2, 2, 4]
    text = dlperf(provisioned, "bandwidth", *ranks, "--json")
    for log, count in ranks.items():
        table = json.loads(text)["logs"][log]
        assert table["ranks"] == count
        # 8 bytes to 16 MiB, each result compared with the sum
        assert [row["size"] for row in table["rows"]] == [2**power for power in range(3, 25)]
        assert {row["wrong"] for row in table["rows"]} == {0}
        last = table["rows"][-1]
        assert last["busbw"] == pytest.approx(last["algbw"] * 2 * (count - 1) / count, abs=0.02)
    text = dlperf(provisioned, "summarize", campaign)
    assert "| node_num | gpu_num | GB/s |" in re.sub(" +", " ", text)
    text = dlperf(provisioned, "compare", campaign, status=1)
    assert "topology (1n2g; published" in re.sub(r"\s+", " ", text), text


@pytest.mark.heavy
@pytest.mark.campaigns
def test_all_gather_and_reduce_scatter_go_over_two_nodes(provisioned: Lab, tmp_path: Path) -> None:
    models = ("--model", "nccl-all-gather,nccl-reduce-scatter", "--nodes", "2")
    dlperf(provisioned, "run", *models, "--campaign", str(tmp_path / "two"))
    logs = sorted(map(str, tmp_path.glob("two/runs/*/r1/*.log")))
    text = dlperf(provisioned, "bandwidth", *logs, "--json")
    tables = json.loads(text)["logs"]
    assert [tables[log]["collective"] for log in logs] == ["all_gather", "reduce_scatter"]
    for log in logs:
        assert tables[log]["ranks"] == 4
        rows = tables[log]["rows"]
        assert [row["size"] for row in rows[-5:]] == [2**power for power in range(20, 25)]
        assert {row["wrong"] for row in rows} == {0}
        # Each rank receives three quarters of a message.
        assert rows[-1]["busbw"] == pytest.approx(rows[-1]["algbw"] * 3 / 4, abs=0.02)


@pytest.mark.heavy
@pytest.mark.campaigns
def test_a_framework_narrows_the_choice(provisioned: Lab, tmp_path: Path) -> None:
    campaign = tmp_path / "tensorflow"
    choice = ["-e", "model=resnet50", "-e", "framework=tensorflow"]
    provisioned.play("bench.yml", *choice, "-e", f"campaign={campaign}")
    name = "tensorflow-resnet50v1.5"
    check_campaign(provisioned, campaign, {name: TOPOLOGIES[name]})


@pytest.mark.heavy
@pytest.mark.versions
def test_oneflow_trains_on_two_nodes(tmp_path: Path) -> None:
    """Its environment is 4 GB and takes no Python newer than 3.10. It lies in a folder that both
    nodes see, because what nodes write is in this machine's memory."""
    lab, folder = Lab(tmp_path / "lab"), tmp_path / "environments"
    (folder / "dlperf").mkdir(parents=True)
    options = ["lab_nodes=2", "lab_suite=bullseye", "lab_frameworks=oneflow"]
    options.append(f"lab_shared_dir={folder}")
    shared = ("-e", "dlperf_shared_dir=/shared/dlperf")
    lab.play("playbooks/lab.yml", *(part for each in options for part in ("-e", each)))
    try:
        lab.play("provision.yml", *shared)
        campaign = tmp_path / "campaign"
        lab.play("bench.yml", *shared, "-e", "framework=oneflow", "-e", f"campaign={campaign}")
        check_campaign(lab, campaign, {"oneflow-resnet50v1.5": ["1n1g", "1n2g", "2n2g"]})
    finally:
        lab.down()
