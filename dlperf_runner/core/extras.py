"""Dependencies that only some commands need: the extra `cluster`, which installs Ansible."""

from __future__ import annotations

import importlib.util

from .errors import UserError


def require_cluster() -> None:
    """Raise a UserError if a package that is needed to control servers is missing."""
    missing = [
        name
        for module, name in (("ansible", "ansible-core"), ("ansible_runner", "ansible-runner"))
        if importlib.util.find_spec(module) is None
    ]
    if missing:
        raise UserError(
            f"this command controls servers and requires {' and '.join(missing)}",
            expected="an installation with the extra `cluster`",
            found="an installation for analysis only",
            hint="pip install 'dlperf_runner[cluster]', or 'pip install .[cluster]' in a clone",
        )
