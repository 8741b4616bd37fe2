"""Slurm and PyTorch of Debian 13 on two nodes of the lab: an ordinary user trains from a login
node, by torchrun and by mpirun, and the results have the form of a campaign by SSH."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_nodes import throttled
from lab_under_test import Lab, mirror_of
from slurm_lab import add_own_workload, dlperf, given, lab_with, records, run, shared_folder
from trained_campaigns import check, runs_of

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.slurm]

GIVEN = given("pytorch") | {"dlperf_nvlink_domain": "rack1"}
TORCH = "torch", "2.6.0"
# A step sleeps for 50 ms, or as long as a variable or a commit says; on node2, twice as long.
SLEEPS = """\
import os, socket, sys, time
steps, batch = map(int, sys.argv[1:])
seconds = float(os.environ.get("SECONDS_OF_STEP", 0.05))
if commit := os.environ.get("COMMIT"):
    seconds = float(open(f"/shared/commits/{commit}/seconds").read())
seconds *= 1 + (socket.gethostname() == "node2")
for step in range(1, steps + 1):
    began = time.perf_counter()
    time.sleep(seconds)
    rate = batch / (time.perf_counter() - began)
    if os.environ["RANK"] == "0":
        print(f"it {step}/{steps} | {rate:.6f} img/s | loss {9 - step / steps:.4f}", flush=True)
"""
# One look at 3 runs; other tests run beside this, so the margin is wide.
SUITE = """\
nodes: [node1, node2]
margin: 30%
slow: 35%
looks: [3]
items:
  - {workload: mine, parts: each node, target: 19.8 samples/s}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory.mktemp("shared"), "pytorch", python="3.13")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("slurm") / "lab"
    chosen = {"lab_suite": "trixie", "lab_frameworks": "pytorch"}
    mirror = mirror_of("pytorch", "trixie")
    with lab_with(folder, directory, lab_mirror_dir=mirror, **chosen) as made:
        made.play("provision.yml", "-e", json.dumps(GIVEN))
        add_own_workload(made, folder, SLEEPS, "pytorch", "torchrun")
        yield made


@pytest.fixture(scope="module")
def llama(cluster: Lab, folder: Path) -> tuple[Path, str]:
    """A campaign, and what was printed when it was run."""
    status, text = run(cluster, "llama", "--workload", "pytorch-llama")
    assert status == 0, text
    return folder / "llama", text


def test_an_nvlink_domain_is_a_block_of_slurms_topology(cluster: Lab) -> None:
    """Slurm 24.11 keeps a job within it; the nodes have no NVLink (NVIDIA/nccl#2186)."""
    block = cluster.said("node1", "scontrol show topology")
    assert block == "BlockName=rack1 BlockIndex=0 Nodes=node1,node2 BlockSize=2"
    said = cluster.said("node1", "runuser -u dlperf -- srun --chdir=/ -N2 hostname")
    assert sorted(said.split()) == ["node1", "node2"]


def test_llama_learns_on_one_and_two_nodes(
    cluster: Lab, folder: Path, llama: tuple[Path, str]
) -> None:
    assert "tokens/s | tokens/s/device |" in " ".join(llama[1].split())
    found = runs_of(llama[0])
    check(found, ["pytorch-llama"], *TORCH)
    assert all("torch.distributed.run" in str(record["commands"]) for record, _ in found)
    assert all(record["nvlink_domains"] == ["rack1"] for record, _ in found)  # the block
    place = llama[0] / "runs" / str(found[-1][0]["id"])
    assert cluster.said("node1", f"stat -c %U /shared/{place.relative_to(folder)}") == "dlperf"


def in_allocation(cluster: Lab, *arguments: str) -> tuple[int, str, Any]:
    """The exit status, all that is printed, and the document of `--json`."""
    words = ("--catalog", "/shared/catalog", *arguments, "--json")
    jobs = ("--scheduler", "slurm", "--site", "site.yml")
    status, text = dlperf(cluster, *words, *jobs, within="salloc -N2 --chdir=/shared")
    assert "\n{\n" in text, text
    document, _ = json.JSONDecoder().raw_decode(text, text.index("\n{\n") + 1)
    return status, text, document


def test_each_node_of_an_allocation_is_accepted_or_not(cluster: Lab, folder: Path) -> None:
    (folder / "suite.yml").write_text(SUITE)
    status, text, found = in_allocation(cluster, "accept", "suite.yml", "--measure", "rack")
    verdicts = {part["part"]: part["verdict"] for part in found["parts"]}
    assert (status, verdicts) == (1, {"node1": "passed", "node2": "failed"}), text
    hosts = {
        name: {tuple(run["outcome"]["hosts"]) for run in records(folder / "rack" / f"1-{name}")}
        for name in verdicts
    }
    assert hosts == {name: {(name,)} for name in verdicts}
    # Nodes are measured at the same time.
    times = [
        [run["outcome"][key] for run in records(folder / "rack" / f"1-{name}")]
        for name in verdicts
        for key in ("started", "ended")
    ]
    assert max(min(times[0]), min(times[2])) < min(max(times[1]), max(times[3]))


def test_the_hunt_names_the_slow_node_of_an_allocation(cluster: Lab) -> None:
    with throttled(cluster, "node2"):
        status, text, found = in_allocation(
            cluster, "doctor", "--hunt", "compute", "--slower", "30%"
        )
    assert (status, found["exclude"]) == (1, ["node2"]), text


def test_two_sides_take_turns_in_an_allocation(cluster: Lab, folder: Path) -> None:
    sides = ("--a", "SECONDS_OF_STEP=0.05", "--b", "SECONDS_OF_STEP=0.1", "--most", "4")
    chosen = ("--workload", "mine", "--nodes", "1", "--campaign", "ab")
    status, text, found = in_allocation(cluster, "ab", *chosen, *sides)
    assert (status, found["verdict"], found["judged_pairs"]) == (0, "slower", 4), text
    jobs = {run["outcome"]["job"] for side in "ab" for run in records(folder / "ab" / side)}
    assert len(jobs) == 1  # the allocation


def test_the_slow_commit_is_found_in_an_allocation(cluster: Lab, folder: Path) -> None:
    """The third of five commits, along first parents, sleeps for twice as long."""
    clone = folder / "clone"
    git = ("git", "-C", str(clone), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", "init", "--quiet", clone], check=True)
    commits = []
    for seconds in (0.05, 0.05, 0.1, 0.1, 0.1):
        (clone / "seconds").write_text(str(seconds))
        subprocess.run([*git, "add", "seconds"], check=True)
        subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "a"], check=True)
        commits.append(subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip())
        place = folder / "commits" / commits[-1]
        subprocess.run([*git, "worktree", "add", "--quiet", "--detach", place], check=True)
    chosen = ("--workload", "mine", "--nodes", "1", "--nodelist", "node1", "--campaign", "bisect")
    sought = ("--slower", "30%", "--most", "4")
    versions = ("--name", "COMMIT", "--versions", ",".join(commits))
    status, text, found = in_allocation(cluster, "bisect", *chosen, *versions, *sought)
    assert (status, found["version"]) == (0, commits[2]), text
    assert [step["pairs"] for step in found["steps"]] == [4, 4, 4]
    places = list((folder / "bisect").glob("*/[ab]"))
    jobs = {run["outcome"]["job"] for place in places for run in records(place)}
    hosts = {host for place in places for run in records(place) for host in run["outcome"]["hosts"]}
    assert (len(jobs), hosts) == (1, {"node1"})


def test_a_node_outside_the_allocation_is_refused_by_its_name(cluster: Lab) -> None:
    words = ("doctor", "--hunt", "compute", "--nodelist", "node[1-3]")
    jobs = ("--scheduler", "slurm", "--site", "site.yml")
    status, text = dlperf(cluster, *words, *jobs, within="salloc -N2 --chdir=/shared")
    assert status == 2
    assert "the allocation lacks a node (expected some of node1, node2, found node3)" in text
