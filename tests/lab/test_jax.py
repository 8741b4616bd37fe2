"""JAX from the index, on two nodes: provisioned, and both programs trained on one device, on two,
and on two nodes, by their own launcher and by mpirun; and ended while they train."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_under_test import PROJECT, Lab
from trained_campaigns import (
    LOSS,
    NODES,
    check,
    check_learnt,
    check_second_provisioning,
    check_table,
    provisioned,
    runs_of,
    step_shares,
    trained,
)

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.jax]

JAX = "jax", "0.10.2"
RUN = (sys.executable, "-m", "dlperf_runner", "run")
END_S = 60  # from the signal to the runner's end; no step of the program is as long


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with provisioned(tmp_path_factory.mktemp("jax"), "jax") as lab:
        yield lab


def test_both_programs_learn_on_one_device_on_two_and_on_two_nodes(campaign: Path) -> None:
    check(runs_of(campaign), ["jax-llama", "jax-resnet50v1.5"], *JAX)


def test_the_table_has_tokens_and_images(nodes: Lab, campaign: Path) -> None:
    check_table(nodes, campaign, 2, {"0.10.2"}, "tokens/s", "samples/s")


def test_the_report_says_where_the_time_goes(nodes: Lab, campaign: Path) -> None:
    step_shares(nodes, campaign)


MPIRUN = ("-p", "launcher=jax_mpirun")
IN_BF16 = {
    "resnet": ("jax-resnet50v1.5", *MPIRUN),
    "sharded": ("jax-llama", "-p", "parallel=fsdp", "-p", "recompute=selective"),
    "whole": ("jax-llama", *MPIRUN, "-p", "parallel=dp", "-p", "recompute=full"),
}


def test_bf16_learns_by_either_launcher_sharded_or_not_whatever_is_recomputed(
    nodes: Lab, tmp_path: Path
) -> None:
    """Both programs on two nodes; that of Llama learns the same in two ways."""
    logs = {}
    for name, (workload, *options) in IN_BF16.items():
        chosen = ("--workload", workload, "--precision", "bf16", "--nodes", "2", *options)
        ((run, log),) = trained(nodes, tmp_path / name, *chosen)
        assert (run["precision"], run["nodes"], run["world_size"]) == ("bf16", 2, 4)
        assert ("mpirun" in str(run["commands"])) == (MPIRUN[1] in options)
        ran: Any = run["parameters"]
        assert {f"{key}={value}" for key, value in ran.items()} >= {*options} - {"-p"}
        check_learnt(run, log)
        logs[name] = log
    last = [float(re.findall(LOSS["maxtext"], logs[name])[-1]) for name in ("sharded", "whole")]
    assert max(last) < 1.01 * min(last)


def training(lab: Lab, node: str) -> str:
    return lab.said(node, "pgrep -u dlperf -f jax_llama.py || true")


def test_a_signal_ends_the_processes_of_both_nodes(nodes: Lab, tmp_path: Path) -> None:
    """JAX that awaits a notice of preemption lives on for minutes after TERM."""
    directory = tmp_path / "stopped"
    chosen = ("--workload", "jax-llama", "--nodes", "2", "--iterations", "100000")
    process = subprocess.Popen(
        [*RUN, *chosen, "--campaign", str(directory)],
        cwd=PROJECT, env=nodes.environment, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 300
        while not any(
            "Tokens/s" in p.read_text() for p in directory.glob("runs/*/*/progress.json")
        ):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(1)
        assert all(training(nodes, node) for node in NODES)
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=END_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGTERM, told
    assert [training(nodes, node) for node in NODES] == ["", ""]


def test_a_second_provisioning_changes_nothing(nodes: Lab) -> None:
    check_second_provisioning(nodes)
