"""Files that provisioning leaves: the table of the FAQ's "What does it leave on my servers?"."""

import re
from fnmatch import fnmatchcase

from lab_under_test import PROJECT


def listed() -> list[str]:
    """The patterns in the first column of the FAQ's table."""
    page = (PROJECT / "docs/faq.md").read_text()
    section = page.partition("## What does it leave on my servers?")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(/[^`]+)`", row)]


def names(pattern: str, path: str) -> bool:
    """A pattern with /** also names its folder; a path that is computed may be the pattern's
    beginning."""
    globs = (pattern, pattern.replace("/**/", "/"), pattern.removesuffix("/**"))
    is_beginning = path.endswith("*") and pattern.startswith(path[:-1])
    return is_beginning or any(fnmatchcase(path, each) for each in globs)
