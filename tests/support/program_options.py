"""Options of the builtin programs."""

import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from types import ModuleType

import pytest


def refusal(program: ModuleType, options: Sequence[str]) -> str:
    """What a program says of options that it refuses, with exit status 2."""
    told = io.StringIO()
    with pytest.raises(SystemExit) as raised, redirect_stderr(told):
        program.parse_arguments(options)
    assert raised.value.code == 2
    return told.getvalue()
