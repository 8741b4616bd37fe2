"""The command `container-command`, which the role container calls."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from ..options import print_json

ORDER = 270
SETTINGS = {"hidden": True}


def command() -> None:
    """Print the command that tests an image, for the role container. Reads and prints JSON."""
    from ..plan.containers import proof_command

    print_json(asdict(proof_command(**json.load(sys.stdin))))
