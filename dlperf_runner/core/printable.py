"""Texts of others, such as names of directories and words of logs, as they may be shown."""

from __future__ import annotations

import re


def printable(text: str) -> str:
    r"""The text with escapes such as \x1b for what a terminal would obey, and for what is no text,
    as in names that are not UTF-8."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable_lines(text: str) -> str:
    """A text of several lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def for_xml(text: str, replacement: str = "") -> str:
    """The text without the characters that XML 1.0 cannot hold, not even escaped."""
    return re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", replacement, text)
