"""Commands of dlperf, called in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from dlperf_runner.cli.main import app


@dataclass(frozen=True)
class Called:
    """What a command printed, on standard output and standard error."""

    out: str
    err: str
    both: str

    @property
    def text(self) -> str:
        """Standard output with its white space folded."""
        return " ".join(self.out.split())

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def call(*arguments: object, status: int = 0) -> Called:
    """A command that must end with this exit status."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output + str(result.exception)
    return Called(result.stdout, result.stderr, result.output)
