"""What the user is told if something is refused."""

from collections.abc import Callable
from typing import Any

import pytest

from dlperf_runner.core.errors import UserError


def refusal(function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The text of the UserError that the call raises."""
    with pytest.raises(UserError) as caught:
        function(*arguments, **options)
    return str(caught.value)
