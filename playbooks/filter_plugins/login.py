"""The command by which a user of one node proves that it can log in to another one."""

from __future__ import annotations

from typing import Any


def check(name: str, user: str) -> dict[str, Any]:
    """`id -un` on the other node must print the user's name."""
    options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    return {"name": name, "argv": ["ssh", *options, name, "id", "-un"], "expect": f"^{user}$"}


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"login_check": check}
