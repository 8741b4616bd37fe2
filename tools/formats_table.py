"""Writes the table of log formats into docs/log-formats.md, from the examples of the formats:

python -m tools.formats_table
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from dlperf_runner import logs

PAGE = Path("docs/log-formats.md")
EXAMPLES = Path(logs.__file__).parent / "examples"
_ROW = re.compile(r"^\| `(\w+)` \|.*\n", re.MULTILINE)


def render(page: str) -> str:
    """The page with a row for each format, in the order that it has; new ones are the last."""
    rows = {path.parent.name: _row(path) for path in sorted(EXAMPLES.glob("*/examples.yml"))}
    order = dict.fromkeys([name for name in _ROW.findall(page) if name in rows] + [*rows])
    first = _ROW.search(page)
    if first is None:
        raise SystemExit(f"{PAGE} has no row like | `megatron` | ... |")
    before, after = page[: first.start()], _ROW.sub("", page[first.start() :])
    return before + "".join(rows[name] for name in order) + after


def _row(path: Path) -> str:
    about = yaml.safe_load(path.read_text(encoding="utf-8"))
    cells = (f"`{path.parent.name}`", about["program"], about["rate"], about["counts"])
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
