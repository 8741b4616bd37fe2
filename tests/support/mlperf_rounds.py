"""Rounds of MLPerf Training made for tests, as MLCommons lays them out."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

START = 1_759_987_984_532


def event(ms: int, key: str, value: object = None, **metadata: object) -> str:
    kind = {"start": "INTERVAL_START", "stop": "INTERVAL_END"}.get(key[-5:].strip("_"), "")
    document = {
        "namespace": "",
        "time_ms": START + ms,
        "event_type": kind or "POINT_IN_TIME",
        "key": key,
        "value": value,
        "metadata": {"file": "/workspace/llm/pretrain.py", "lineno": 83, **metadata},
    }
    return f" 0: :::MLLOG {json.dumps(document)}"


def result_log(
    seconds: float,
    *,
    batch: int = 32,
    counts: str = "cumulative",
    status: str = "success",
) -> list[str]:
    """A result log of so many seconds, with two blocks between evaluations of 10 s; `counts` is
    what samples_count is: cumulative, of the block, or at its start."""
    lines = [
        event(-9000, "submission_benchmark", "llama31_8b"),
        event(-9000, "global_batch_size", batch),
        event(-9000, "max_sequence_length", 8192),
        event(-9000, "train_samples", 1574207408),
        event(0, "run_start"),
    ]
    done, now, samples = 0, 0, 12288
    for duration in (400, 390):
        first, last = {
            "cumulative": (done, done + samples),
            "of the block": (samples, samples),
            "at its start": (done, done),
        }[counts]
        more = {"step": done // batch} if counts == "of the block" else {}
        lines.append(event(now, "block_start", samples_count=first, **more))
        for step in range(5):
            value = {"train_step_time": 5.0 if step == 0 else 0.5, "reduced_train_loss": 8.0}
            lines.append(event(now + step, "tracked_stats", value, step=float(done + step)))
        now, done = now + 1000 * duration, done + samples
        more = {"step": done // batch} if counts == "of the block" else {}
        lines.append(event(now, "block_stop", samples_count=last, **more))
        now += 10_000
        lines.append(event(now, "eval_accuracy", 3.2, samples_count=done))
    end = round(1000 * seconds)
    return [*lines, event(end, "run_stop", status=status, samples_count=done)]


def of_epochs(
    seconds: float,
    *,
    stopped: float = 2.0,
    benchmark: str = "resnet",
    samples: int = 1281167,
    batch: int = 256,
    status: str = "success",
) -> list[str]:
    """A log of two epochs in 300 s each, and the run's end. `samples` is what it states as
    train_samples."""
    lines = [
        event(-1, "submission_benchmark", benchmark),
        event(-1, "global_batch_size", batch),
        event(-1, "train_samples", samples),
        event(0, "run_start"),
    ]
    for epoch in range(2):
        lines.append(event(310_000 * epoch, "epoch_start", epoch_num=epoch))
        lines.append(event(310_000 * epoch + 300_000, "epoch_stop", epoch_num=epoch))
    end = round(1000 * seconds)
    return [*lines, event(end, "run_stop", status=status, epoch_num=stopped)]


def _later(text: str, ms: int) -> str:
    return re.sub(r'(?<="time_ms": )\d+', lambda match: str(int(match[0]) + ms), text)


def write_result(
    root: Path,
    logs: Sequence[Sequence[str]],
    *,
    benchmark: str = "llama31_8b",
    submitter: str = "NVIDIA",
    system: str = "one",
    scaling: float | None = None,
    **described: Any,
) -> Path:
    """A result of one system in a round; returns the folder of its logs. Each log is a run of its
    own, a day after the one before."""
    folder = root / submitter / "results" / system / benchmark
    folder.mkdir(parents=True)
    for number, lines in enumerate(logs):
        text = _later("\n".join(lines) + "\n", 86_400_000 * number)
        (folder / f"result_{number}.txt").write_text(text, encoding="utf-8")
    if scaling is not None:
        (folder / "scaling.json").write_text(json.dumps({"scaling_factor": scaling}))
    systems = root / submitter / "systems"
    systems.mkdir(exist_ok=True)
    document = {
        "number_of_nodes": "1",
        "accelerators_per_node": "8",
        "accelerator_model_name": "NVIDIA H100-SXM5-80GB",
        "framework": "PyTorch",
        **described,
    }
    (systems / f"{system}.json").write_text(json.dumps(document))
    return folder
