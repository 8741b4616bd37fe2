"""Commands of the project that run beside a test, and hear the signals that it sends."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lab_under_test import PROJECT, Lab


def hear_signals() -> None:
    """In a child: whoever runs the tests may ignore some (nohup), and what is ignored stays so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@contextmanager
def started(lab: Lab, *argv: str) -> Iterator[subprocess.Popen[str]]:
    """A command of the project, under way; ended at the test's end, whatever happens there."""
    process = subprocess.Popen(
        argv, cwd=PROJECT, env=lab.environment, text=True, start_new_session=True,
        preexec_fn=hear_signals,  # noqa: PLW1509  no thread of the tests
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
