"""Logs of nccl-tests, and campaigns that measured with it."""

from __future__ import annotations

from pathlib import Path

from make_logs import campaign_run, write


def nccl_tests(
    gbps: float = 250,
    *,
    ranks: int = 8,
    largest: int = 2**30,
    wrong: str = "0",
    end: str = "0 OK",
    iterations: int = 20,
    nodes: int = 1,
) -> list[str]:
    """All-reduce at `gbps` of algorithm bandwidth: sizes of 1 MiB or more, each four times the one
    before."""
    rows, rates, size = [], [], 2**20
    while size <= largest:
        time = 30 + size / gbps / 1000
        alg = size / time / 1000
        rates.append(alg * 2 * (ranks - 1) / ranks)
        half = f"{time:9.1f}{alg:8.2f}{rates[-1]:8.2f}{wrong:>7}"
        rows.append(f"{size:12d}{size // 4:14d}     float     sum      -1{half}{half}")
        size *= 4
    return [
        "# Collective test starting: all_reduce_perf",
        f"# nThread 1 nGpus 1 minBytes 1048576 maxBytes {largest} step: 4(factor) warmup iters: 5"
        f" iters: {iterations} agg iters: 1 validation: 1 graph: 0",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid  12345 on      node{node} device {rank:2d} [0x1b] H100"
            for rank in range(ranks)
            for node in [rank * nodes // ranks + 1]
        ),
        "#                                                              out-of-place",
        "#       size         count      type   redop    root     time   algbw   busbw #wrong"
        "     time   algbw   busbw #wrong",
        *rows,
        f"# Out of bounds values : {end}",
        f"# Avg bus bandwidth    : {sum(rates) / len(rates):g}",
        "#",
    ]


def bandwidth_run(campaign: Path, topology: str, repeat: int, lines: list[str]) -> Path:
    """A run on H100s, with its log."""
    case = f"nccl-allreduce-upstream_all-reduce_fp32_b1_{topology}"
    facts = {"hostname": "node1", "driver": "580.105.08", "gpus": ["NVIDIA H100 80GB HBM3"] * 8}
    changes: dict[str, object] = {
        "workload": "nccl-allreduce",
        "framework": "nccl",
        "model": "nccl-all-reduce",
        "source": "upstream",
        "batch_size_per_device": 1,
        "total_steps": 20,
        "warmup_steps": 0,
        "stack": "h100-cuda12.9",
        "accelerator": "NVIDIA H100 80GB HBM3",
        "environment": "nccl",
        "log_format": "nccl_tests",
        "parameters": {"operation": "all_reduce", "message_bytes": 2**34, "warmup_iterations": 5},
        "outcome": {"status": "done", "hosts": {"node1": facts}, "versions": {"mpi4py": "4.1.2"}},
        "case": case,
        "id": f"{case}/r{repeat}",
    }
    folder = campaign_run(campaign, topology, repeat, None, **changes)
    home = campaign / "runs" / case
    home.mkdir(exist_ok=True)
    write(folder / f"rn50_b128_fp32_{repeat}.log", lines)
    return folder.rename(home / folder.name)
