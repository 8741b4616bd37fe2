"""Commands of dlperf, called in this process."""

import json
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from dlperf_runner.commands import app


@dataclass(frozen=True)
class Called:
    """The exit status of a command, and what it printed on standard output and standard error."""

    status: int
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


def call(*arguments: object, status: int | None = 0, input: str | None = None) -> Called:
    """A command that must end with this exit status; None: with any."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input)
    if status is not None:
        assert result.exit_code == status, result.output + str(result.exception)
    return Called(result.exit_code, result.stdout, result.stderr, result.output)


def output(*arguments: object, status: int = 0) -> str:
    """All that such a command printed."""
    return call(*arguments, status=status).both
