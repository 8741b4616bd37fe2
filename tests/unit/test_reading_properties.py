"""Reading whole directories: whatever stands in the logs there is a result or a message for each,
no number comes of damage, and neither order nor processes matter."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from make_logs import (
    CONVNETS,
    KNOWN,
    LLAMA,
    MAXTEXT,
    MEGATRON,
    ROOT,
    dllogger,
    dllogger_pytorch,
    gluoncv,
    known_model,
    maxtext,
    megatron,
    plsc,
    speedometer,
    torchtitan,
    write,
)
from pandas.testing import assert_frame_equal

from dlperf_runner.results import load as results
from dlperf_runner.results.load import Results, load_results
from dlperf_runner.stats.summary import summarize

EXAMPLES = settings(max_examples=40, deadline=None)
FEW = settings(max_examples=8, deadline=None)  # each starts processes
SPEED = 384.25
NAMES = {
    "gluoncv": ("1n1g/rn50_b128_fp32_1.log", gluoncv(SPEED, world=1)),
    "speedometer": ("1n1g/r100_b64_fp32_1.log", speedometer(234.2)),
    "plsc": ("1n1g/r50_b128_fp32_1.log", plsc(397.75)),
    "dllogger": ("tf_gpu8_amp_bs256.txt", dllogger(SPEED, 8, amp=True, final=380.0)),
    "dllogger_pytorch": ("1n1g/rn50_b256_amp_1.log", dllogger_pytorch(2480.33)),
    "torchtitan": ("1n8g/llama_b2_bf16_1.log", torchtitan(6835, world=8)),
    "maxtext": ("1n8g/llama_b4_bf16_1.log", maxtext(8671.794, world=8)),
    "megatron": ("1n8g/gpt_b2_bf16_1.log", megatron(123.4)),
}
# The models of language, with the format that tells them apart.
OTHERS = {
    "dllogger_pytorch": ("resnet50v1.5", "rn50", CONVNETS),
    "torchtitan": ("llama-8b", "llama", LLAMA),
    "maxtext": ("llama-7b", "llama", MAXTEXT),
    "megatron": ("gpt", "gpt", MEGATRON),
}
ALL_KNOWN = (
    *KNOWN,
    *(
        known_model(f"pytorch-{form}", *names, form, rule)
        for form, (*names, rule) in OTHERS.items()
    ),
)
LOGS = {name: ("\n".join(lines) + "\n").encode() for name, (_, lines) in NAMES.items()}
REAL = sorted((ROOT / "tests" / "fixtures" / "logs").rglob("*.log"))


def read(files: dict[str, bytes], jobs: int = 1) -> Results:
    with tempfile.TemporaryDirectory() as name:
        for path, data in files.items():
            (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(name) / path).write_bytes(data)
        return load_results(Path(name), ALL_KNOWN, jobs=jobs)


def speed(found: Results) -> float | None:
    rows = found.frame[found.frame["metric"] == "samples_per_second"]
    (value,) = rows["value"] if len(rows) else [None]
    return None if value is None or math.isnan(value) else float(value)


def check(found: Results) -> None:
    """Every log is counted or told, and a number is one that training can have."""
    assert len(found.counted) + len(found.problems) + len(found.notes) > 0
    valid = found.frame[found.frame["valid"]]
    rates = valid[valid["metric"] == "samples_per_second"]["value"]
    assert len(rates) == len(found.counted)
    assert all(0 < rate < 1e12 for rate in rates)
    for problem in found.problems:
        assert problem.where
        assert problem.problem


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """A log with some bytes replaced, removed, doubled or moved."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        end = min(len(data), start + draw(st.integers(0, 300)))
        piece = draw(st.one_of(st.binary(max_size=20), st.just(data[start:end] * 2), st.just(b"")))
        data = data[:start] + piece + data[end:]
    return data


@EXAMPLES
@given(st.data(), st.sampled_from(sorted(NAMES)))
def test_damaged_logs_are_told_or_counted(data: st.DataObject, name: str) -> None:
    check(read({NAMES[name][0]: data.draw(mutated(LOGS[name]))}))


@EXAMPLES
@given(st.data(), st.sampled_from(REAL))
def test_damaged_real_logs_are_told_or_counted(data: st.DataObject, path: Path) -> None:
    check(read({"1n1g/rn50_b128_fp32_1.log": data.draw(mutated(path.read_bytes()))}))


@EXAMPLES
@given(st.binary(max_size=2000))
def test_any_bytes(data: bytes) -> None:
    check(read({"1n1g/rn50_b128_fp32_1.log": data, "1n1g/rn50_b128_fp32_2.log": LOGS["gluoncv"]}))


@EXAMPLES
@given(st.sampled_from(sorted(NAMES)), st.floats(0, 1))
@example("dllogger", 0.962890625)  # in the middle of the last step's rate, 384.25
@example("dllogger", 0.9985)  # in the middle of what follows the rate over the whole run
def test_a_truncated_log_has_the_whole_number_or_none(name: str, part: float) -> None:
    path, whole = NAMES[name][0], LOGS[name]
    found = read({path: whole[: int(part * len(whole))]})
    assert speed(found) in (None, speed(read({path: whole})))


@EXAMPLES
@given(st.integers(1, 119), st.booleans())
def test_a_step_that_is_missing_or_there_twice_is_told(step: int, twice: bool) -> None:
    path, lines = NAMES["gluoncv"]
    (at,) = [n for n, line in enumerate(lines) if f"Batch[{step}]\tSpeed" in line]
    lines = [*lines[:at], *([lines[at]] * 2 if twice else []), *lines[at + 1 :]]
    found = read({path: "\n".join(lines).encode()})
    assert speed(found) is None
    (problem,) = found.problems
    assert str(step) in str(problem)


@FEW
@given(st.permutations([380.0, 384.0, 383.0, 390.0, 381.0]), st.sampled_from([1, 2]))
def test_neither_order_of_repeats_nor_processes_matter(rates: list[float], jobs: int) -> None:
    files = {
        f"{topology}/rn50_b128_fp32_{repeat}.log": "\n".join(gluoncv(rate * factor)).encode()
        for topology, factor in (("1n1g", 1), ("1n4g", 3.5))
        for repeat, rate in enumerate(rates, start=1)
    }
    table = summarize(read(files, jobs).frame)
    ordered = sorted(rates)
    expected = summarize(
        read(
            {
                path: "\n".join(gluoncv(ordered[n % 5] * (1 if n < 5 else 3.5))).encode()
                for n, path in enumerate(files)
            }
        ).frame
    )
    assert_frame_equal(table, expected)


def test_order_in_which_files_were_made_does_not_matter(tmp_path: Path) -> None:
    names = [
        f"{topology}/rn50_b128_fp32_{n}.log" for topology in ("10n8g", "2n8g") for n in (2, 10, 1)
    ]
    frames = []
    for place, order in (("a", names), ("b", names[::-1])):
        for name in order:
            write(tmp_path / place / name, gluoncv(SPEED + len(name)))
        frames.append(load_results(tmp_path / place, KNOWN).frame)
    assert_frame_equal(*frames)
    assert frames[0]["nodes"].tolist() == sorted(frames[0]["nodes"])


def test_many_logs_are_read_by_many_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for repeat in range(1, 6):
        write(tmp_path / f"1n1g/rn50_b128_fp32_{repeat}.log", gluoncv(SPEED + repeat))
    few = load_results(tmp_path, KNOWN)
    monkeypatch.setattr(results, "MANY_BYTES", 1)
    many = load_results(tmp_path, KNOWN, progress=lambda items, total: seen.append(total) or items)
    assert seen == [5]
    assert_frame_equal(few.frame, many.frame)


seen: list[int] = []
