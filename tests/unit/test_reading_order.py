"""Trees of logs give the same table in any order of their files and in any number of processes."""

from pathlib import Path

import pytest
from make_logs import gluoncv, write
from pandas.testing import assert_frame_equal

from dlperf_runner.results import load as results
from dlperf_runner.results.load import load_results


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
