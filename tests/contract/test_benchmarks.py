"""The commands of benchmarks/ start in a clone as their texts say."""

import os
import re
from pathlib import Path

import pytest
from captured import captured

ROOT = Path(__file__).resolve().parents[2]
TEXTS = (*ROOT.glob("benchmarks/*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("benchmarks/*.py"))
# Not the command of plain_loops.py, which has another path and needs a framework.
COMMAND = re.compile(r"(?<!/workloads )(?:PYTHONPATH=\. )?python benchmarks/\w+\.py")
COMMANDS = {found for path in TEXTS for found in COMMAND.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_the_command_of_a_benchmark_starts(command: str) -> None:
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = captured("sh", "-c", f"{command} --help", cwd=ROOT, env=alone)
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout
