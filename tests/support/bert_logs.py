"""Logs of NVIDIA's BERT pretraining in PyTorch, as its versions print them."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

from make_logs import MEGATRON

BEGAN = 1690557400.25
RULE = MEGATRON.model_copy(update={"total_steps": 99, "log_every": 1})


def bert(
    seconds: float,
    *,
    batch: int = 128,
    world: int = 1,
    steps: int = 100,
    every: int = 1,
    accumulation: int = 1,
    skipped: Collection[int] = (),
    as_json: bool = False,
    is_old: bool = False,
    left_out: int = 4,
    **options: Any,
) -> list[str]:
    """Steps of that duration after the first 20. `steps` is how many change weights; `skipped` are
    further ones, counted with them. `is_old`: as before 2022. `left_out`: the first batches, which
    do not count in the rate of the whole run."""
    arguments = {"config_file": "bert_configs/large.json", "fp16": False, "log_freq": float(every)}
    arguments |= {"gradient_accumulation_steps": accumulation, "max_seq_length": 128}
    arguments |= {"max_steps": float(steps), "phase2": False, "train_batch_size": batch}
    if not is_old:
        arguments |= {"cuda_graphs": False, "steps_this_run": float(steps)}
    shown = ", ".join(f"{name}={value!r}" for name, value in (arguments | options).items())
    lines: list[str] = []

    def say(at: float, step: list[int] | str, **data: Any) -> None:
        if as_json:
            stamp = str(round(BEGAN + at, 6))
            head = {"timestamp": stamp, "datetime": "", "type": "LOG", "step": step}
            lines.append("DLLL " + json.dumps({**head, "data": data}))
            return
        words = ["Training Epoch: {} ", "Training Iteration: {} "]
        where = step if isinstance(step, str) else "".join(map(str.format, words, step))
        units = {"e2e_train_time": "s", "raw_train_time": "s", "final_loss": None}
        values = (f"{name} : {value} {units.get(name, '')}" for name, value in data.items())
        stamp = datetime.fromtimestamp(BEGAN + at, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        lines.append(f"DLL {stamp} - {where} {' '.join(values)}")

    say(-9.5, "PARAMETER", Config=[f"Namespace({shown})"])
    say(-0.5, "PARAMETER", SEED=12439)
    say(0, "PARAMETER", train_start=True)
    say(0, "PARAMETER", batch_size_per_gpu=batch)
    at, overflows, left_out, trained = 0.0, 0, 0 if is_old else left_out, 0.0
    for step in range(1, steps + len(skipped) + 1):
        at += seconds if step > 20 else 3 * seconds
        overflows += step in skipped
        iteration = [0, step - overflows]
        if is_old and step in skipped:
            say(at, "PARAMETER", loss_scale=2.0 ** (20 - overflows))
        if step == steps + len(skipped):
            say(at + 0.5, iteration, final_loss=8.5)
        elif step % every == 0 and is_old:
            say(at, iteration, average_loss=9.5 - step / 200, step_loss=9.25, learning_rate=0.001)
        elif step % every == 0:
            loss = 9.5 - step / 200 if step > 1 else 0.0
            say(at, iteration, average_loss=loss, learning_rate=0.0, skipped_steps=overflows)
    slow = min(left_out, 20 * accumulation)
    trained = at + 0.5 - (3 * slow + left_out - slow) * seconds / accumulation
    batches = (steps + len(skipped)) * accumulation - left_out
    rate = batch * world * batches / trained
    summary = {"e2e_train_time": at + 12.5, "training_sequences_per_second": rate}
    say(at + 2.5, [], **summary, final_loss=8.5, raw_train_time=trained)
    return lines
