"""Dependencies that only some commands need: the extra `cluster`, which installs Ansible, `report`
with plots and statistics, and those of exports."""

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
            hint=_installing("cluster"),
        )


def lacks(module: str | None) -> UserError | None:
    """The error of a command that imports a module of the extra `report`, or the one with which
    `bundle` reads Debian's files; None for others."""
    extra, package = {
        "debian": ("cluster", "python-debian"),
        "scipy": ("report", "scipy"),
        "vl_convert": ("report", "vl-convert-python"),
        "xlsxwriter": ("report", "xlsxwriter"),
    }.get((module or "").partition(".")[0], ("", ""))
    return _lacking(extra, package) if extra else None


def require(extra: str, *modules: str) -> None:
    """Raise a UserError if a module of an extra is missing."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise _lacking(extra, *missing)


def _lacking(extra: str, *packages: str) -> UserError:
    return UserError(
        f"this command requires the extra `{extra}`",
        expected=" and ".join(packages),
        found="an installation without",
        hint=_installing(extra),
    )


def _installing(extra: str) -> str:
    return f"pip install '.[{extra}]' in the clone, or 'WHEEL_FILE[{extra}]'"
