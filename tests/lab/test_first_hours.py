"""The first hours of three strangers: what README and the pages of each way say is typed, literally
and in order, on a fresh Debian 12, and prints what the pages show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from first_hour import Person, below, commands, fresh_debian

pytestmark = [
    pytest.mark.lab,
    pytest.mark.heavy,
    pytest.mark.hours,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make root filesystems"),
]


def shows(output: str, table: str) -> None:
    """The output has each line that the page shows."""
    missing = [line for line in table.splitlines() if line not in output.splitlines()]
    assert not missing, f"{missing}\nis not in\n{output}"


def is_at(folder: Path, person: Person) -> bool:
    return (person.root / "root/dlperf_runner" / folder).exists()


def test_a_student_with_logs(tmp_path: Path) -> None:
    me = fresh_debian(tmp_path / "debian", {"DIR": "examples/logs"})
    needed, typed = below("README.md", "Three ways to begin")[0], below("README.md", "I have logs")
    me.types("apt-get -qq update")
    me.types_all(needed, answer="y\n")
    printed = me.types_all(typed[0])
    shows(printed, below("README.md", "What you get")[0].text)
    assert is_at(Path("results/logs/report.html"), me)

    page = "docs/start-logs.md"
    first = below(page, "I have logs")[0]
    assert commands(first)[:3] == commands(typed[0])[:3]  # what stands in README, typed already
    for command in commands(first)[3:]:
        printed = me.types(command)
        shows(printed, below(page, "What you get")[0].text)
    for command in below(page, "What next")[0].lines:
        me.types(command)
