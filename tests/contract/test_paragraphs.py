"""The pages can be read: no paragraph, item of a list or cell of a table has more than 60 words."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = 60
ITEM = re.compile(r"([-*]|\d+\.) ")


def parts(text: str) -> Iterator[str]:
    """Paragraphs, items and cells, without blocks of code."""
    lines: list[str] = []
    is_code = False
    for line in [*text.splitlines(), ""]:
        if line.lstrip().startswith("```"):
            is_code = not is_code
        starts = not line.strip() or line.lstrip().startswith(("#", "|", "```")) or is_code
        if (starts or ITEM.match(line.lstrip())) and lines:
            yield " ".join(lines)
            lines = []
        if line.lstrip().startswith("|"):
            yield from line.split("|")
        elif not starts and (lines or not line.startswith("    ") or ITEM.match(line.lstrip())):
            lines.append(line.strip())


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_no_paragraph_is_longer_than_60_words(page: Path) -> None:
    long = [part for part in parts(page.read_text(encoding="utf-8")) if len(part.split()) > WORDS]
    assert long == []


def test_the_parts_of_a_page() -> None:
    page = "# A b\n\none\ntwo\n- three\n  four\n\n    code\n\n| a | b c |\n```\nx y\n```\nfive\n"
    told = [part.strip() for part in parts(page) if part.strip()]
    assert told == ["one two", "- three four", "a", "b c", "five"]
