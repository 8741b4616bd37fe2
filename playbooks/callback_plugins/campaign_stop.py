"""Stop bench.yml cleanly on a signal: end and record the current run, release the nodes, and start
no further run. A second signal stops it at once. Signals within SAME_S of the first count as one,
because a runner that ends sends two: TERM, and HUP from its terminal.

The file named by DLPERF_STOP tells all processes of this playbook to stop. If dlperf_runner drives
the playbook, it learns the process from DLPERF_PID_FILE, and its death counts as a TERM.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ansible import constants
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: campaign_stop
type: aggregate
short_description: Stop bench.yml cleanly on a signal
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG = 1
SAME_S = 3


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "campaign_stop"
    holds = gives_back = False
    told = 0.0  # when the first signal came

    def v2_playbook_on_start(self, playbook: Any) -> None:
        if Path(playbook._file_name).name != "bench.yml":
            return
        self.process = os.getpid()
        self.stop = Path(constants.DEFAULT_LOCAL_TMP) / "stop"
        os.environ["DLPERF_STOP"] = str(self.stop)
        # A signal that is ignored (nohup, a shell's background job) stays ignored.
        self.before = {
            number: signal.signal(number, self.on_signal)
            for number in SIGNALS
            if signal.getsignal(number) != signal.SIG_IGN
        }
        runner = int(os.environ.get("DLPERF_RUNNER_PID") or 0)
        if runner:
            die_with_parent()
            Path(os.environ["DLPERF_PID_FILE"]).write_text(str(self.process))
            if os.getppid() != runner:  # it has already ended
                os.kill(self.process, signal.SIGTERM)

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:  # noqa: ARG002
        """Track whether this campaign holds nodes; only then must it stop cleanly."""
        if self.gives_back:
            self.holds = self.gives_back = False
        if task.action == "node_lock":
            self.gives_back = task.args["state"] == "absent"
            self.holds = task.args["state"] != "free"

    def on_signal(self, number: int, _: FrameType | None) -> None:
        if os.getpid() != self.process:
            return  # a worker process, which checks for the file
        if number == signal.SIGHUP or os.getppid() != int(
            os.environ.get("DLPERF_RUNNER_PID") or os.getppid()
        ):
            drop_terminal()
        if self.holds and not self.stop.exists():
            self.stop.touch()
            self.told = time.monotonic()
            with suppress(OSError):
                os.write(2, b"\nStopping the current run; another signal stops all at once.\n")
            return
        if self.stop.exists() and time.monotonic() < self.told + SAME_S:
            return
        signal.signal(number, self.before[number])
        os.kill(self.process, number)


def die_with_parent() -> None:
    """Use Linux's prctl(2). Elsewhere do nothing; then the nodes' leases expire."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    except (AttributeError, OSError):
        return


def drop_terminal() -> None:
    """Writing to a closed terminal is an error and would stop the playbook."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        if os.isatty(descriptor) or not is_writable(descriptor):
            os.dup2(nothing, descriptor)


def is_writable(descriptor: int) -> bool:
    try:
        os.write(descriptor, b"\n")
    except OSError:
        return False
    return True
