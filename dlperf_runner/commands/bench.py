"""`dlperf bench`, which earlier versions had."""

from __future__ import annotations

from ..control.playbooks import PASSES_ON, PlaybookOptions
from ..core.errors import UserError

ORDER = 90
SETTINGS = {**PASSES_ON, "hidden": True}


def command(_: PlaybookOptions = None) -> None:
    """Refer to what took its place."""
    hint = "dlperf run --model NAME, or in a clone: ansible-playbook bench.yml -e model=NAME"
    raise UserError("dlperf bench was removed", hint=hint)
