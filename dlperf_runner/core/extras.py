"""What only some commands need: the extra `cluster`, which brings Ansible."""

from __future__ import annotations

import importlib.util

from .errors import UserError


def require_cluster() -> None:
    """Raise a UserError unless everything that drives machines is installed."""
    missing = [
        name
        for module, name in (("ansible", "ansible-core"), ("ansible_runner", "ansible-runner"))
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise UserError(
            f"this command drives machines and needs {' and '.join(missing)}",
            expected="the extra `cluster`",
            found="an installation for analysis only",
            hint="pip install 'dlperf_runner[cluster]', or 'pip install .[cluster]' in a clone",
        )
