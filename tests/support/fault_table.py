"""The table of faults in docs/reliability.md, from what the suite measured:

python tests/support/fault_table.py
"""

import json
import re
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[2]
MEASURED = PROJECT / ".cache/faults.jsonl"
PAGE = PROJECT / "docs/reliability.md"
BEGIN, END = "<!-- measured faults -->\n", "<!-- end of the measured faults -->"
HEAD = """
| fault | how | times | outcome | results lost | processes left | seconds |
| --- | --- | --- | --- | --- | --- | --- |
"""


def rows(lines: list[str]) -> str:
    by_fault: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        row = json.loads(line)
        by_fault.setdefault(row["fault"], []).append(row)
    return "".join(map(row_of, by_fault.values()))


def row_of(tries: list[dict[str, Any]]) -> str:
    outcomes = ", ".join(dict.fromkeys(each["outcome"] for each in tries))
    seconds = sorted(each["seconds"] for each in tries if each["seconds"] is not None)
    span = dict.fromkeys((seconds[0], seconds[-1])) if seconds else ["-"]
    cells = (tries[-1]["fault"], tries[-1]["how"], len(tries), outcomes)
    worst = (sum(each["lost"] for each in tries), sum(each["left"] for each in tries))
    told = " to ".join(f"{s:.0f}" if isinstance(s, float) else s for s in span)
    return "| " + " | ".join(map(str, (*cells, *worst, told))) + " |\n"


def main() -> None:
    page = PAGE.read_text()
    table = HEAD + rows(MEASURED.read_text().splitlines()) + "\n"
    pattern = re.compile(f"(?<={BEGIN}).*(?={END})", re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: table, page))


if __name__ == "__main__":
    main()
