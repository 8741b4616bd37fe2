"""A limit for the time that a user's regular expression may take on a log: some expressions need
exponential time, and whoever wrote the log may know which."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ..core.errors import UserError

LIMIT_S = 10.0  # for any log
BYTES_PER_S = 1e6  # and for so many bytes; a plain expression reads ten times as many


@contextmanager
def limited(name: str, size: int) -> Iterator[None]:
    """Raise UserError if the block takes too much processor time for a log of this size. Python
    checks for signals while it searches, but only in the main thread, where logs are read."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seconds = LIMIT_S + size / BYTES_PER_S

    def stop(*_: object) -> None:
        raise UserError(
            "the regular expression of the log format takes too long",
            where=name,
            expected=f"at most {seconds:.0f} s of processor time",
            hint="avoid repetitions inside of repetitions, such as (a+)+, and .* between groups",
        )

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
