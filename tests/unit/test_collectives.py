"""The workload nccl-allreduce: what is measured is a bandwidth, over MPI or by nccl-tests."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from command_line import call
from csv_tables import table
from make_logs import write
from nccl_logs import bandwidth_run, nccl_tests
from plan_examples import gpu_nodes

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.case import Run
from dlperf_runner.core.node import Node
from dlperf_runner.logs.nccl_tests import as_run, read
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan

GIB = 2**30


def on(stack: str, devices: int) -> tuple[Node, ...]:
    accelerator = "cpu" if stack == "cpu" else "NVIDIA H100 80GB HBM3"
    own = {"frameworks": ("nccl", "rccl"), "matrix": "smoke"}
    return gpu_nodes(2, devices, stack=stack, accelerator=accelerator, **own)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Three runs on 1 node with 8 H100 and on 2, of messages up to 16 GiB."""
    place = tmp_path / "results" / "one"
    for repeat in (1, 2, 3):
        one = nccl_tests(270 + repeat, ranks=8, largest=16 * GIB)
        two = nccl_tests(258 + repeat, ranks=16, largest=16 * GIB, nodes=2)
        bandwidth_run(place, "1n8g", repeat, one)
        bandwidth_run(place, "2n8g", repeat, two)
    return place


def first_runs(workload: str, nodes: tuple[Node, ...], matrix: str = "") -> list[Run]:
    choice = parse_choice({"workload": workload, "nodes": "2", "matrix": matrix})
    return [run for run in make_plan(choice, load_catalog(), nodes) if run.repeat == 1]


def test_cpus_use_mpi_and_gpus_nccl_tests() -> None:
    (run,) = first_runs("nccl-allreduce", on("cpu", 2))
    argv = list(run.commands[0].argv)
    assert run.source == "builtin"
    mpirun = ["/usr/bin/mpirun", "--host", "node1:2,node2:2", "-np", "4"]
    assert argv[: argv.index("--bind-to")] == mpirun
    assert argv[argv.index("/opt/dlperf/envs/nccl/bin/python") :][1:] == [
        *("-u", "mpi_collectives.py", "--operation", "all_reduce", "--max-bytes", "16777216"),
        *("--iterations", "5", "--warmup-iterations", "1"),
    ]
    options = ("-b", "8", "-e", "17179869184", "-f", "2", "-g", "1", "-n", "20", "-w", "5")
    # AMD's have the same programs and options.
    for workload, stack in (("nccl-allreduce", "h100-cuda12.9"), ("rccl-allreduce", "mi300-rocm7")):
        runs = first_runs(workload, on(stack, 8), "published")
        assert {run.source for run in runs} == {"upstream"}
        programs = [run.commands[0].argv[-13:] for run in runs]
        names = ("all_reduce_perf", "all_gather_perf", "reduce_scatter_perf")
        assert [(Path(name).name, tuple(rest)) for name, *rest in programs] == [
            (name, options) for name in names
        ]
        # One process per GPU.
        argv = list(runs[0].commands[0].argv)
        assert argv[argv.index("-np") + 1] == "16"


def test_a_bandwidth_has_its_unit_and_no_speedup(campaign: Path, tmp_path: Path) -> None:
    out = call("summarize", campaign).text
    title = "nccl-allreduce upstream (nccl-all-reduce), fp32, message_bytes=17179869184"
    assert title in out
    assert "batch size" not in out
    assert "| node_num | gpu_num | GB/s | interval | n |" in out
    # algbw of 16 GiB: the time is 30 us longer than at 272 GB/s; busbw is 2 * 7 / 8 of it
    size = 16 * GIB / 1e9
    busbw = size / (size / 272 + 30e-6) * 2 * 7 / 8
    assert f"| 8 | {busbw:.2f} |" in out
    assert "speed-up" not in out
    one, two = table(campaign / "summary.csv")
    assert float(one["GB_per_second_median"]) == pytest.approx(busbw, abs=0.01)
    assert one["speedup"] == two["speedup"] == ""
    assert not [name for name in one if "samples" in name or "second_per_device" in name]
    call("report", campaign, "--output-dir", tmp_path / "report")
    page = next((tmp_path / "report").glob("*.md")).read_text()
    assert "GB/s" in page
    assert "No speed-up" not in page and "batch size 1" not in page


def test_beside_published_bandwidth(campaign: Path) -> None:
    cases = call("compare", campaign, "--json").document["cases"]
    two = next(row for row in cases if row["nodes"] == 2)
    assert (two["published"], two["verdict"]) == (487.09, "reproduced")
    assert two["publication"].startswith("aws-nccl-tests")
    assert (two["factors"], two["unknown"]) == (None, "precision")


def test_logs_of_others_need_only_the_name_of_the_operation(tmp_path: Path) -> None:
    """The log states the devices, the hosts and the largest message."""
    write(tmp_path / "nccl" / "p5.log", nccl_tests(270, ranks=16, largest=16 * GIB, nodes=2))
    options = ("--output-dir", tmp_path / "out")
    out = call("summarize", tmp_path / "nccl", "--model", "nccl-all-reduce", *options).text
    assert "message_bytes=17179869184" in out
    assert "| 2 | 16 | 506.01 | 1 |" in out
    call("summarize", tmp_path / "nccl", "--model", "nccl-all-gather", *options, status=2)


def test_iterations_that_no_log_has_are_no_warmup_of_a_comparison(tmp_path: Path) -> None:
    for name, gbps in (("a", 250), ("b", 260)):
        write(tmp_path / name / "1n8g" / "all_reduce.log", nccl_tests(gbps))
    assert "+4.0%" in call("compare", tmp_path / "a", tmp_path / "b").both


def test_gather_of_a_version_that_names_no_program_is_no_all_reduce(tmp_path: Path) -> None:
    _, *lines = nccl_tests(270, ranks=16, largest=16 * GIB, nodes=2)
    logs = tmp_path / "nccl"
    write(logs / "p5.log", [line.replace("  sum ", " none ") for line in lines])
    refused = call("summarize", logs, "--model", "nccl-all-reduce", status=2).both
    assert "expected nccl-all-reduce, found all_gather|alltoall|" in " ".join(refused.split())
    assert "| 2 | 16 |" in call("summarize", logs, "--model", "nccl-all-gather").text


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (nccl_tests(ranks=8, largest=16 * GIB, wrong="3", end="16 FAILED"), "results of the"),
        (nccl_tests(ranks=16, largest=16 * GIB), "the world size contradicts the plan"),
        (nccl_tests(largest=GIB), "message_bytes contradicts the plan"),
        (nccl_tests(largest=16 * GIB, iterations=5), "the number of steps contradicts"),
        (nccl_tests(largest=16 * GIB)[:-3], "the log has no whole table of nccl-tests"),
    ],
)
def test_a_log_that_contradicts_its_plan(tmp_path: Path, lines: list[str], problem: str) -> None:
    bandwidth_run(tmp_path / "one", "1n8g", 1, lines)
    assert problem in " ".join(call("summarize", tmp_path / "one", status=2).both.split())


# ---- the program for CPUs


class World:
    """An MPI world of threads; the operations as MPI defines them."""

    def __init__(self, ranks: int) -> None:
        self.ranks, self.local = ranks, threading.local()
        self.barrier = threading.Barrier(ranks)
        self.given: list[Any] = [None] * ranks
        self.Barrier = self.barrier.wait
        self.Get_size = lambda: ranks
        self.Get_rank = lambda: int(self.local.rank)
        self.Split_type = lambda _kind: self

    def exchange(self, value: Any) -> list[Any]:
        self.given[self.local.rank] = value
        self.barrier.wait()
        found = list(self.given)
        self.barrier.wait()
        return found

    def share(self, array: Any) -> slice:
        size = len(array) // self.ranks
        return slice(self.local.rank * size, (self.local.rank + 1) * size)

    def gather(self, value: object, root: int) -> list[Any] | None:
        found = self.exchange(value)
        return found if self.local.rank == root else None

    def allreduce(self, value: float) -> float:
        return float(sum(self.exchange(value)))

    def Allreduce(self, source: Any, target: Any) -> None:  # noqa: N802  MPI's names
        target[:] = sum(self.exchange((target if source is None else source).copy()))

    def Allgather(self, source: Any, target: Any) -> None:  # noqa: N802
        given = target[self.share(target)] if source is None else source
        target[:] = np.concatenate(self.exchange(given.copy()))

    def Reduce_scatter_block(self, source: Any, target: Any) -> None:  # noqa: N802
        total = sum(self.exchange((target if source is None else source).copy()))
        own = total[self.share(total)]
        target[: len(own)] = own


Program = Callable[..., tuple[int, bytes]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    """Runs the program on some ranks; gives its exit status and what rank 0 printed."""
    mpi: Any = ModuleType("mpi4py.MPI")
    mpi.IN_PLACE, mpi.COMM_TYPE_SHARED, mpi.Wtime = None, 0, time.perf_counter
    package: Any = ModuleType("mpi4py")
    package.MPI = mpi
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", mpi)
    import mpi_collectives

    def start(ranks: int, *options: str, broken: bool = False) -> tuple[int, bytes]:
        mpi.COMM_WORLD = world = World(ranks)
        monkeypatch.setattr(sys, "argv", ["mpi_collectives.py", *options])
        printed: list[str] = []
        monkeypatch.setattr("builtins.print", lambda text, **_: printed.append(text))
        if broken:
            whole = world.Allreduce

            def damaged(source: Any, target: Any) -> None:
                whole(source, target)
                if world.local.rank == 1 and len(target) == 8:
                    target[3] += 1

            monkeypatch.setattr(world, "Allreduce", damaged)
        statuses: list[int] = []

        def of_rank(rank: int) -> None:
            world.local.rank = rank
            statuses.append(mpi_collectives.main())

        threads = [threading.Thread(target=of_rank, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(statuses) == ranks
        return max(statuses), ("\n".join(printed) + "\n").encode()

    yield start
    sys.modules.pop("mpi_collectives", None)


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_program_prints_what_nccl_tests_prints(run: Program, operation: str, ranks: int) -> None:
    options = ("--operation", operation, "--max-bytes", "4096", "--iterations", "3")
    status, text = run(ranks, *options, "--warmup-iterations", "1")
    assert status == 0
    (found,) = read([text])
    assert (found.collective, found.ranks, found.iterations) == (operation, ranks, 3)
    assert [row.wrong for row in found.rows] == [0] * 10  # 8 bytes to 4 KiB
    assert not found.is_wrong
    last = found.rows[-1]
    # A multiple of 16 bytes per rank for what is gathered or scattered.
    whole = 4096 if operation == "all_reduce" else 4096 // ranks // 16 * 16 * ranks
    assert last.size == whole
    factor = (2 if operation == "all_reduce" else 1) * (ranks - 1) / ranks
    assert last.algbw == pytest.approx(whole / last.time_us / 1e3, abs=0.01)
    assert last.busbw == pytest.approx(last.algbw * factor, abs=0.01)
    (header,) = as_run([text]).headers
    assert (header.world_size, header.precision, header.total_steps) == (ranks, "fp32", 3)


def test_program_counts_wrong_elements(run: Program) -> None:
    """Rank 1 gets a wrong sum in one element of 32 bytes, out of place and in place."""
    status, text = run(2, "--max-bytes", "64", "--iterations", "2", broken=True)
    (found,) = read([text])
    wrong = [(row.size, row.wrong, row.in_place_wrong) for row in found.rows]
    assert wrong == [(8, 0, 0), (16, 0, 0), (32, 1, 1), (64, 0, 0)]
    assert (found.is_wrong, status) == (True, 1)


@pytest.mark.parametrize(
    ("name", "redop", "per_algbw", "collective"),
    [
        # Programs before 2.17 do not print their name. Nothing else has twice the algbw.
        ("out.log", "sum", 1.75, "all_reduce"),
        ("out.log", "sum", 0.875, "reduce_scatter"),
        ("sendrecv.log", "sum", 1.0, "sendrecv"),
        ("out.log", "sum", 1.0, "unknown-collective"),  # or reduce
        ("my_all-gather_1.log", "none", 0.875, "all_gather"),
        ("AllToAll_perf.log", "", 0.875, "alltoall"),  # until 2.13
        ("all_gather_and_scatter.log", "none", 0.875, "unknown-collective"),
        ("broadcast.log", "none", 1.0, "broadcast"),
    ],
)
def test_the_collective_of_a_log_that_does_not_name_it(
    tmp_path: Path, name: str, redop: str, per_algbw: float, collective: str
) -> None:
    lines = []
    for line in nccl_tests():
        if " sum " in line:
            words = line.replace(" sum ", f" {redop} ").split()
            for at in (-6, -2):
                words[at] = f"{float(words[at - 1]) * per_algbw:.2f}"
            lines.append("  ".join(words))
        elif "starting:" not in line and "concluded:" not in line:
            lines.append(re.sub(r"(bandwidth +: )\S+", r"\g<1>200", line))
    write(tmp_path / "in/1n8g" / name, lines)
    out = call("summarize", tmp_path / "in", "--no-history", "--output-dir", tmp_path / "out").text
    assert f"nccl-tests ({collective}), fp32" in out
