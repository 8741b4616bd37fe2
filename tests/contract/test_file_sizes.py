"""No Python file is too long to be read in one go."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_LINES = 400


def test_no_python_file_is_too_long() -> None:
    paths = [*ROOT.glob("[!.]*/**/*.py"), *ROOT.glob(".ci/*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_bytes().splitlines()) for path in paths}
    assert len(lengths) > 500
    assert {path: lines for path, lines in lengths.items() if lines > MOST_LINES} == {}
