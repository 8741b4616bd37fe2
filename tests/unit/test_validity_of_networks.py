"""The network that NCCL used: whether it is the one that the plan selects, and that it is told."""

from pathlib import Path

import pytest
from command_line import output
from judged_runs import gpu_run, verdict
from make_logs import KNOWN, gluoncv

from dlperf_runner.measure.validity import Verdict, is_selected
from dlperf_runner.results.load import load_results
from dlperf_runner.stats.summary import summarize

SOCKET = "node1:77:77 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"
CARDS = (
    "node1:77:77 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.1<0>"
)


@pytest.mark.parametrize(
    ("env", "line", "why"),
    [
        ({"NCCL_SOCKET_IFNAME": "eth0"}, SOCKET, None),
        ({}, SOCKET, None),
        ({"NCCL_SOCKET_IFNAME": "eth1"}, SOCKET, "NCCL used eth0, but the plan selects eth1"),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, SOCKET, None),
        ({}, SOCKET.replace("eth0", "docker0"), "NCCL used docker0 between nodes"),
        (
            {"NCCL_IB_DISABLE": "0"},
            SOCKET,
            "NCCL used sockets over eth0, but the plan selects InfiniBand",
        ),
        ({"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5"}, SOCKET, None),
        ({"NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "eth0"}, CARDS, None),
        (
            {"NCCL_IB_HCA": "=mlx5_0:1"},
            CARDS,
            "NCCL used mlx5_0, mlx5_1, but the plan selects =mlx5_0:1",
        ),
    ],
)
def test_interface_of_nccl(tmp_path: Path, env: dict[str, str], line: str, why: str | None) -> None:
    lines = gluoncv(100.0, world=2)
    gpu_run(tmp_path, "2n1g", lines=[lines[0], line, *lines[1:]], env=env)
    assert verdict(tmp_path).reasons == (() if why is None else (why,))


def test_on_one_node_any_interface_will_do(tmp_path: Path) -> None:
    lines = [*gluoncv(100.0, world=2), SOCKET.replace("eth0", "lo")]
    gpu_run(tmp_path, "1n2g", lines=lines)
    assert verdict(tmp_path) == Verdict()


@pytest.mark.parametrize(
    ("name", "asked", "selected"),
    [
        # As NCCL's documentation of NCCL_SOCKET_IFNAME has them.
        ("eth0", "eth", True),
        ("eth0", "=eth", False),
        ("eth0", "=eth0,eth1", True),
        ("docker0", "^docker", False),
        ("eth0", "^docker", True),
        ("eth", "^=eth0", True),
        ("mlx5_1", "mlx5_1:1", True),
        ("eth0", "", True),
    ],
)
def test_selection_of_interfaces(name: str, asked: str, selected: bool) -> None:
    assert is_selected(name, asked) is selected


def test_interface_is_not_judged_where_nccl_does_not_tell(tmp_path: Path) -> None:
    gpu_run(tmp_path, "2n1g")
    assert verdict(tmp_path) == Verdict(not_judged=("NCCL interface",))


def test_the_report_names_the_network_that_nccl_used(tmp_path: Path) -> None:
    for repeat in (1, 2):
        lines = [CARDS, *gluoncv(99.0 + repeat, world=4)]
        gpu_run(tmp_path, "2n2g", repeat, lines, env={"NCCL_IB_HCA": "mlx5"})
    (case,) = summarize(load_results(tmp_path, KNOWN).frame).to_dict("records")
    assert (case["nccl_network"], case["nccl_interfaces"]) == ("IB mlx5_0, mlx5_1", 2)
    output("report", tmp_path)
    text = (tmp_path / "report" / "report.md").read_text()
    assert "On 2n2g, NCCL used IB mlx5_0, mlx5_1." in text
    # Runs that used different networks have none in common.
    gpu_run(tmp_path, "2n2g", 3, [SOCKET, *gluoncv(102.0, world=4)])
    (case,) = summarize(load_results(tmp_path, KNOWN).frame).to_dict("records")
    assert case["nccl_network"] is None
