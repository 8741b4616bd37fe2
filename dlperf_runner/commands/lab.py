"""The command `lab`."""

from __future__ import annotations

from ..control.playbooks import PASSES_ON, PlaybookOptions, start

ORDER = 10
SETTINGS = PASSES_ON
HELP = "state [up|down|checked]: Start it, stop it, or check this machine."
_STATES = {"up": "present", "down": "absent", "checked": "checked"}


def command(
    state: str = "up",
    options: PlaybookOptions = None,
) -> None:
    """Start or stop the built-in lab. It emulates a cluster on this machine.

    Example: dlperf lab up -e lab_nodes=2"""
    # If the first argument is not a state, it is an option of ansible-playbook.
    given = ["-e", f"lab_state={_STATES[state]}"] if state in _STATES else [state]
    start("playbooks/lab.yml", [*given, *(options or [])])
