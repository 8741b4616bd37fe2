"""What a doctor finds: one line per check of a node, or of the nodes compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "failed"]
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """`node` is empty where nodes were compared; `hint` says what to do, and is empty where all
    is well."""

    node: str
    check: str
    status: Status
    expected: str
    found: str
    hint: str = ""


def judged(
    node: str,
    check: str,
    is_good: bool | None,
    expected: str,
    found: object,
    hint: str,
    otherwise: Status = "failed",
) -> Finding:
    """ok where it is good, `otherwise` where it is not; what is not known is a warning."""
    text = "not known" if found is None else str(found)
    if is_good is None:
        return Finding(node, check, "warning", expected, text, hint)
    if is_good:
        return Finding(node, check, "ok", expected, text)
    return Finding(node, check, otherwise, expected, text, hint)


def as_declared(node: str, check: str, declared: str, found: str | None, hint: str) -> Finding:
    """A version against the stack's: 7.6.5 is what 7.6.5.32 names, as far as it goes."""
    is_good = found is not None and (found == declared or declared.startswith(f"{found}."))
    return judged(node, check, is_good, declared, found or "none", hint)
