"""Errors that the user can fix. Each states where, expected, found and a hint."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter

from .lists import grouped, shortened
from .printable import printable, printable_lines

_FEW = 12  # names that fit into a message


class UserError(Exception):
    """Invalid input. The command line prints it without a traceback and exits with status 2.
    `where` names the file and line, the option or the key. `expected` and `found` describe the
    required and the actual content. `hint` tells the user how to fix it."""

    def __init__(
        self,
        problem: str,
        *,
        where: str | None = None,
        expected: str | None = None,
        found: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = where
        self.expected = expected
        self.found = found
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # By default, pickle keeps only the positional arguments of an exception.
        details = {name: getattr(self, name) for name in ("where", "expected", "found", "hint")}
        return partial(UserError, **details), (self.problem,)

    def __str__(self) -> str:
        where = f"{printable(self.where)}: " if self.where else ""
        details = [
            f"{label} {printable(value)}"
            for label, value in (("expected", self.expected), ("found", self.found))
            if value is not None
        ]
        text = where + printable_lines(self.problem)
        if details:
            text += f" ({', '.join(details)})"
        # Only a problem and a hint have lines of their own.
        return text + (f"\n  {printable_lines(self.hint)}" if self.hint else "")


def unknown_name(
    kind: str, name: object, names: Iterable[object], where: str | None = None, otherwise: str = ""
) -> UserError:
    """The error about a name that is none of `names`. It asks about a similar one; else, or if
    there are few, it has them all. `otherwise` says how to do without."""
    texts = [str(each) for each in names]
    similar = difflib.get_close_matches(str(name), texts, 1, cutoff=0.65)
    is_short = not similar or len(texts) <= _FEW
    return UserError(
        f"unknown {kind} {str(name)!r}",
        where=where,
        expected=f"one of {', '.join(texts) or 'none'}{otherwise}" if is_short else None,
        hint=f"did you mean {similar[0]}?" if similar else None,
    )


def lacks_nodes(
    place: str, names: Collection[str], unknown: str, where: str, hint: str = ""
) -> UserError:
    """The error about nodes that an inventory, a partition or an allocation does not have."""
    return UserError(
        f"{place} lacks a node",
        where=where,
        expected=f"some of {', '.join(names)}",
        found=unknown,
        hint=hint or f"{where.split()[0]} {','.join(names)}",
    )


def by_cause(problems: Collection[object]) -> list[object]:
    """The problems, of which those with the same cause are one that names all places."""
    merged: list[object] = [problem for problem in problems if not isinstance(problem, UserError)]
    errors = [problem for problem in problems if isinstance(problem, UserError)]
    for first, *others in grouped(errors, attrgetter("problem", "expected", "hint")).values():
        where, found = first.where, first.found
        if others:
            where = shortened([each.where for each in (first, *others) if each.where]) or None
        if found is not None and any(each.found != found for each in others):
            found += " in the first"
        details = {"where": where, "expected": first.expected, "found": found, "hint": first.hint}
        merged.append(UserError(first.problem, **details))
    return merged


@contextmanager
def as_user_error(problem: str, where: object, hint: str | None = None) -> Iterator[None]:
    """Report an OSError as a UserError with this problem, place and hint."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(problem, where=str(where), found=reason, hint=hint) from None


class Stopped(Exception):  # noqa: N818  this is not an error
    """A signal stopped the operation cleanly. `hint` tells the user how to resume."""

    def __init__(self, number: int, hint: str) -> None:
        super().__init__(number, hint)
        self.number = number
        self.hint = hint
