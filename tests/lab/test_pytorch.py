"""PyTorch as Debian 13 has it, on four nodes: provisioned, and all programs trained on one process,
on two, and on two nodes, by torchrun; two by mpirun."""

import hashlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_nodes import flipping_a_bit, slow_port, throttled
from captured import captured
from lab_under_test import Lab
from modules import load
from trained_campaigns import (
    check,
    check_learnt,
    check_second_provisioning,
    check_table,
    provisioned,
    runs_of,
    step_shares,
    trained,
)

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.pytorch]

TORCH = "torch", "2.6.0"
TWO = ("--limit", "node1,node2")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("pytorch")
    with provisioned(directory, "pytorch", suite="trixie", nodes=4) as lab:
        yield lab


WORKLOADS = ["pytorch-arcface", "pytorch-bert-large", "pytorch-llama", "pytorch-resnet50v1.5"]


def test_all_programs_learn_on_one_process_on_two_and_on_two_nodes(campaign: Path) -> None:
    check(runs_of(campaign), WORKLOADS, *TORCH)


def test_the_table_has_tokens_and_images(nodes: Lab, campaign: Path) -> None:
    check_table(nodes, campaign, len(WORKLOADS), {"2.6.0+debian"}, "tokens/s", "samples/s")


def test_the_report_says_where_the_time_goes(nodes: Lab, campaign: Path) -> None:
    text = step_shares(nodes, campaign)
    waits = re.findall(
        r"2n2g: of a step of \S+ s, \S+% is the computation .*? (\S+)% is wait", text
    )
    assert len(waits) == len([*campaign.rglob("*-time-*.svg")]) == len(WORKLOADS)


# The softmax of ArcFace over centres that are divided among processes, against that of one process.
DIVIDED = """\
import torch
from pytorch_arcface_model import MARGIN, NEAREST, SCALE, PartialFC
from pytorch_common import data_parallel, join, leave
from torch.nn import functional

place, device = join(torch, False)
classes, width, samples = 11, 6, 5
torch.manual_seed(1)
centres = torch.randn(classes, width, requires_grad=True)
images = torch.randn(place.world_size * samples, 4)
labels = torch.randint(classes, (len(images),))
network = torch.nn.Linear(4, width)
whole = [p.detach().clone().requires_grad_() for p in network.parameters()]

embeddings = functional.linear(images, *whole)
cosines = functional.linear(functional.normalize(embeddings), functional.normalize(centres))
angles = cosines.clamp(-NEAREST, NEAREST).acos()
logits = SCALE * torch.cos(angles + MARGIN * functional.one_hot(labels, classes))
expected = functional.cross_entropy(logits, labels)
expected.backward()

network = data_parallel(torch, network, device)
own = slice(place.rank * samples, (place.rank + 1) * samples)
head = PartialFC(classes, width, 1.0, place)
share = slice(head.first, head.first + head.count)
head.weight.data.copy_(centres.detach()[share])
loss = head(network(images[own]), labels[own])
loss.backward()
torch.testing.assert_close(loss, expected)
torch.testing.assert_close(head.weight.grad, centres.grad[share], rtol=1e-4, atol=1e-5)
for mine, other in zip(network.parameters(), whole):
    torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)

# Partial FC: the centres of the batch's classes move, and others up to the sample rate.
head = PartialFC(classes, width, 0.6, place)
head(network(images[own]), labels[own]).backward()
moved = set((head.weight.grad.abs().sum(dim=1) > 0).nonzero()[:, 0].tolist())
present = {int(c) - head.first for c in labels if head.first <= c < head.first + head.count}
assert present <= moved and len(moved) == max(int(0.6 * head.count), len(present))
leave("divided", None)
"""


def test_the_divided_softmax_of_arcface_is_the_whole_one(nodes: Lab, campaign: Path) -> None:
    assert campaign.is_dir()  # its programs are on the nodes
    source = "/opt/dlperf/src/pytorch-arcface-builtin"
    start = (
        "PYTHONPATH={} USE_LIBUV=0 MASTER_ADDR=127.0.0.1 WORLD_SIZE=2 RANK={} LOCAL_RANK={}"
        " /opt/dlperf/envs/pytorch/bin/python /tmp/divided.py"
    )
    one, other = (start.format(source, rank, rank) for rank in (0, 1))
    write = f"cat > /tmp/divided.py <<'END'\n{DIVIDED}END\n"
    nodes.said("node1", f"{write}set -e\n{other} &\n{one}\nwait $!")


def doctor(lab: Lab, *options: str) -> tuple[int, dict[str, Any]]:
    """The exit status, and the document of `--json`."""
    done = lab.command("python", "-m", "dlperf_runner", "doctor", *options, "--json")
    assert "\n{" in done.stdout, done.stdout
    return done.returncode, json.loads(done.stdout[done.stdout.index("\n{") :])


def test_the_hunt_names_the_node_that_was_slowed(nodes: Lab, results_kept: None) -> None:
    with throttled(nodes, "node2"):
        status, document = doctor(nodes, *TWO, "--hunt", "compute", "--slower", "30%")
    assert (status, document["exclude"]) == (1, ["node2"])
    (hunt,) = document["hunts"]
    slow = [each for each in hunt["verdict"]["members"] if each["is_slow"]]
    assert {each["name"] for each in slow} == {"node2 device 0", "node2 device 1"}
    assert max(each["ratio"] for each in slow) < 0.7


def test_the_hunt_names_the_node_whose_port_was_slowed(nodes: Lab, results_kept: None) -> None:
    with slow_port(nodes, "node2"):
        status, document = doctor(nodes, "--hunt", "collective", "--slower", "50%")
    assert (status, document["exclude"]) == (1, ["node2"])


def test_all_processes_compute_the_same_bits(nodes: Lab, results_kept: None) -> None:
    status, document = doctor(nodes, *TWO, "--same")
    (finding,) = document["findings"]
    assert (status, finding["status"]) == (0, "ok"), finding
    assert " agree: " in finding["found"]


def test_a_flipped_bit_names_its_node(nodes: Lab, results_kept: None) -> None:
    with flipping_a_bit(nodes, "node2"):
        status, document = doctor(nodes, *TWO, "--same")
    (finding,) = document["findings"]
    assert (status, finding["node"], finding["status"]) == (1, "node2", "failed"), finding
    first = re.fullmatch(
        r"node2 device 1 differs from 3 devices from step (\d+) on", finding["found"]
    )
    assert first
    assert int(first[1]) > 16


@pytest.mark.parametrize(
    ("workload", "chosen", "world_size"),
    [
        ("pytorch-llama", "launcher=torch_mpirun recompute=selective", 4),
        ("pytorch-resnet50v1.5", "launcher=torch_mpirun", 4),
        ("pytorch-llama", "launcher=torchrun recompute=full", 2),
    ],
)
def test_bf16_learns_by_either_launcher_and_with_recomputed_activations(
    nodes: Lab, tmp_path: Path, workload: str, chosen: str, world_size: int
) -> None:
    """By mpirun on two nodes with two processes each; one process and one node are special cases of
    that."""
    options = ["--workload", workload, "--precision", "bf16", "--gpus-per-node", "2"]
    options += ["--nodes", str(world_size // 2)]
    options += [word for each in chosen.split() for word in ("-p", each)]
    ((run, log),) = trained(nodes, tmp_path / "bf16", *options)
    assert (run["precision"], run["world_size"]) == ("bf16", world_size)
    assert ("mpirun" in str(run["commands"])) == ("torch_mpirun" in chosen)
    parameters: Any = run["parameters"]
    assert {f"{key}={value}" for key, value in parameters.items()} >= set(chosen.split())
    check_learnt(run, log)


WHEEL = os.environ.get("DLPERF_TORCH_WHEEL")


@pytest.mark.skipif(not WHEEL, reason="DLPERF_TORCH_WHEEL names no wheel for CPUs and Python 3.11")
def test_the_wheel_of_an_operator_trains_on_debian_12(tmp_path: Path) -> None:
    assert WHEEL
    digest = hashlib.sha256(Path(WHEEL).read_bytes()).hexdigest()
    given = {"dlperf_operator_wheels": {"torch": {"path": WHEEL, "sha256": digest}}}
    with provisioned(tmp_path, "pytorch", given=given) as lab:
        found = trained(lab, tmp_path / "llama", "--workload", "pytorch-llama")
        check(found, ["pytorch-llama"], "torch", Path(WHEEL).name.split("-")[1])
        recap = lab.play("provision.yml", "--tags", "framework", "-e", json.dumps(given))
        assert re.findall(r"changed=(\d+)", recap.rpartition("PLAY RECAP")[2]) == ["0", "0"]


def test_a_second_provisioning_changes_nothing(nodes: Lab) -> None:
    check_second_provisioning(nodes)


def test_the_gpu_kit_trains_and_names_planted_faults_without_a_gpu(
    nodes: Lab, tmp_path: Path
) -> None:
    """Its dry form on a node with PyTorch; only what needs a GPU or JAX is skipped."""
    pack, read = load("tests/gpu/pack.py"), load("tests/gpu/read.py")
    pack.pack(tmp_path / "kit")
    with_tar = ["tar", "-C", str(tmp_path), "-c", "kit"]
    packed = subprocess.run(with_tar, capture_output=True, check=True).stdout
    unpack = nodes.ssh_argv("node1", "mkdir -p /tmp/gpu && tar -C /tmp/gpu -x")
    subprocess.run(unpack, input=packed, check=True)
    run = "python3 /tmp/gpu/kit/run_gpu.py --out /tmp/gpu/out --cpu --minutes 45"
    done = captured(*nodes.ssh_argv("node1", run))
    assert done.returncode == 0, done.stdout + done.stderr
    with_out = nodes.ssh_argv("node1", "tar -C /tmp/gpu -c out && rm -r /tmp/gpu")
    content = subprocess.run(with_out, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-C", str(tmp_path), "-x"], input=content, check=True)

    results = read.read(tmp_path / "out")
    steps = results["steps"]
    trained = {name for name, entry in steps.items() if entry["state"] == "done"}
    names = {name.split("-builtin")[0] for name in trained if name.startswith("train/")}
    assert names == {f"train/{workload}" for workload in WORKLOADS}
    assert {"facts", "telemetry/cost", *(f"plain/{workload}" for workload in WORKLOADS)} <= trained
    verdicts = {name: verdict for name, _, _, verdict in read.faults(tmp_path / "out", steps)}
    not_here = {"out-of-memory": "skipped", "kernel-that-spins": "skipped"}
    planted = ("nan", "exit", "stopped-before-first-step", "stopped-in-a-step")
    assert verdicts == {**dict.fromkeys(planted, "right"), **not_here}
    reasons = {entry["reason"] for entry in steps.values() if entry["state"] == "skipped"}
    assert {reason.split(" has no package ")[-1] for reason in reasons} == {
        "jax",
        "needs a GPU: nvidia-smi names none",
    }
    assert nodes.said("node1", "pgrep -cf '[p]ytorch_resnet50' || true").strip() == "0"
    page = (tmp_path / "out" / "on-a-gpu.md").read_text(encoding="utf-8")
    assert "| nan | program failed | program failed | right |" in page
    assert "samples/s" in page
