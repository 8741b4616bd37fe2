"""The example logs of each format, and what a correct reading of each gives.

A format's examples are the folder `dlperf_runner/logs/examples/<format>`: logs, and examples.yml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from dlperf_runner.catalog.entry import LOADER

FOLDER = Path(__file__).resolve().parents[2] / "dlperf_runner" / "logs" / "examples"


@dataclass(frozen=True)
class Example:
    """`entry` is that of examples.yml: where the log is from, and its reading: `headers`, `rates`
    (line, step, rate and loss of each line with a rate) and `unix_times` of these lines; or why it
    is `refused` as the log of a run. `tables` are those of nccl-tests."""

    form: str
    path: Path
    entry: Mapping[str, Any]

    @property
    def name(self) -> str:
        return f"{self.form}/{self.path.stem}"

    @cached_property
    def data(self) -> bytes:
        return self.path.read_bytes()

    @property
    def is_real(self) -> bool:
        """Whether a program printed the log, rather than a person who read the program."""
        return "sha256" in self.entry


def documents() -> dict[str, dict[str, Any]]:
    """The content of examples.yml by format."""
    return {
        path.parent.name: LOADER(path.read_text(encoding="utf-8")).get_single_data()
        for path in sorted(FOLDER.glob("*/examples.yml"))
    }


def example(name: str) -> Example:
    """The example of that name, like torchtitan/wording."""
    (found,) = (each for each in EXAMPLES if each.name == name)
    return found


EXAMPLES = [
    Example(form, FOLDER / form / entry["log"], entry)
    for form, document in documents().items()
    for entry in document["examples"]
]


@cache
def _text_of(name: str) -> str:
    return example(name).data.decode()


def lines_of(name: str) -> list[str]:
    """The lines of the example of that name."""
    return _text_of(name).splitlines()


def _value(words: str) -> str:
    """A pattern of the value that stands behind these words, which are a group of their own."""
    start = r"\b" if words[0].isalnum() else ""
    return rf"({start}{re.escape(words)}\W+)[\w.:-]+(?>(?:[,+]\d+)*)"


def setting(line: str, name: str) -> str:
    """What the line says of that setting: its name, its value, and what is between."""
    found = re.search(rf"{_value(name)}'?", line)
    assert found, f"{name} is not in {line!r}"
    return found[0]


def reworded(
    line: str, values: Mapping[str, object], *, everywhere: bool = True, **more: object
) -> str:
    """The line with other values behind these words. Not `everywhere`: each may be absent."""
    for words, value in {**values, **more}.items():
        changed, number = re.subn(_value(words), rf"\g<1>{value}", line)
        assert number or not everywhere, f"{words} is not in {line!r}"
        line = changed
    return line
