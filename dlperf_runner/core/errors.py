"""Errors that a user can act on: where, what was expected, what was found, what to do."""

from __future__ import annotations


class UserError(Exception):
    """Bad input. The command line prints it without a traceback and exits with status 2.

    `where` names the file and line, the option or the key; `expected` and `found` say what
    should have stood there and what did; `hint` says what to do about it.
    """

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
        # An exception is pickled as its positional arguments; this one has more.
        return (_again, (self.problem, self.where, self.expected, self.found, self.hint))

    def __str__(self) -> str:
        text = f"{self.where}: {self.problem}" if self.where else self.problem
        details = [
            f"{label} {value}"
            for label, value in (("expected", self.expected), ("found", self.found))
            if value is not None
        ]
        if details:
            text += f" ({', '.join(details)})"
        return f"{text}\n  {self.hint}" if self.hint else text


class Stopped(Exception):  # noqa: N818  nothing went wrong
    """A signal ended what was under way, in order; `hint` says how to go on."""

    def __init__(self, number: int, hint: str) -> None:
        super().__init__(number, hint)
        self.number = number
        self.hint = hint


def _again(problem: str, *rest: str | None) -> UserError:
    names = ("where", "expected", "found", "hint")
    return UserError(problem, **dict(zip(names, rest, strict=True)))
