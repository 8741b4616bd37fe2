"""Stop bench.yml cleanly on a signal. INT lets the current run end; a second INT, or TERM, stops
and records it. Either way, the nodes are released and no further run starts. A signal after that
stops the playbook at once. Signals within SAME_S of it count as one, because a runner that ends
sends two: TERM, and HUP from its terminal. HUP alone stops nothing: the terminal was closed.

The file named by DLPERF_STOP tells all processes of this playbook what to do: FINISH or NOW. If
dlperf_runner drives the playbook, it learns the process from DLPERF_PID_FILE, and its death counts
as a TERM.
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
FINISH, NOW = "finish", "now"
SAME_S = 3
SAID = {
    FINISH: b"\nFinishing the current run, then stopping. Ctrl-C again stops it now.\n",
    NOW: b"\nStopping the current run; another signal stops all at once.\n",
}


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "campaign_stop"
    holds = gives_back = False
    stopped_at = 0.0  # when the first signal came

    def v2_playbook_on_start(self, playbook: Any) -> None:
        if Path(playbook._file_name).name != "bench.yml":
            return
        self.process = os.getpid()
        self.stop = Path(constants.DEFAULT_LOCAL_TMP) / "stop"
        os.environ["DLPERF_STOP"] = str(self.stop)
        os.environ["DLPERF_PLAYBOOK_PID"] = str(self.process)  # it has the campaign's lock
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
        if number == signal.SIGHUP:
            return
        level = self.stop.read_text() if self.stop.exists() else ""
        if self.holds and level != NOW:
            wanted = FINISH if number == signal.SIGINT and not level else NOW
            self.stop.with_suffix(".tmp").write_text(wanted)
            self.stop.with_suffix(".tmp").replace(self.stop)
            self.stopped_at = time.monotonic()
            with suppress(OSError):
                os.write(2, SAID[wanted])
            return
        if level == NOW and time.monotonic() < self.stopped_at + SAME_S:
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
