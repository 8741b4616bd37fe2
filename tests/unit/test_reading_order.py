"""Trees of logs give the same table in any order of their files and in any number of processes."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_logs import gluoncv, write
from pandas.testing import assert_frame_equal
from whole_logs import read_tree

from dlperf_runner.results import load as results
from dlperf_runner.results.load import load_results
from dlperf_runner.stats.summary import summarize

FEW = settings(max_examples=4, deadline=None)


@FEW
@given(st.permutations([380.0, 384.0, 383.0, 390.0, 381.0]))
def test_the_order_of_repeats_does_not_matter(rates: list[float]) -> None:
    files = {
        f"{topology}/rn50_b128_fp32_{repeat}.log": "\n".join(gluoncv(rate * factor)).encode()
        for topology, factor in (("1n1g", 1), ("1n4g", 3.5))
        for repeat, rate in enumerate(rates, start=1)
    }
    table = summarize(read_tree(files).frame)
    ordered = sorted(rates)
    expected = summarize(
        read_tree(
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
            write(tmp_path / place / name, gluoncv(384.25 + len(name)))
        frames.append(load_results(tmp_path / place).frame)
    assert_frame_equal(*frames)
    assert frames[0]["nodes"].tolist() == sorted(frames[0]["nodes"])


def test_many_logs_are_read_by_many_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for repeat in range(1, 6):
        write(tmp_path / f"1n1g/rn50_b128_fp32_{repeat}.log", gluoncv(384.25 + repeat))
    few = load_results(tmp_path)
    monkeypatch.setattr(results, "MANY_BYTES", 1)
    many = load_results(tmp_path, progress=lambda items, total: seen.append(total) or items)
    assert seen == [5]
    assert_frame_equal(few.frame, many.frame)


seen: list[int] = []
