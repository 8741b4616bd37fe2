"""Run a campaign: the same `bench.yml` that users run by hand, driven through ansible-runner.

This is the only module that imports ansible_runner. It reads no log but to show a sign of life.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..core.errors import Stopped, UserError
from ..core.extras import require_cluster
from ..core.paths import project
from .directory import point_latest_at

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

REFRESH_S = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Playbook:
    """A playbook under way: its events, what went wrong, and how to stop it."""

    log: Path
    problems: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    status: str = "starting"
    cancelled: threading.Event = field(default_factory=threading.Event)
    signal: int | None = None  # the one that asked for its end
    pid_file: Path | None = None  # where the playbook says its process
    is_told: bool = False

    def on_event(self, event: Mapping[str, Any]) -> bool:
        """Keep the output as it would stand on a terminal, and each task that failed."""
        text = event.get("stdout") or ""
        if text:
            with self.log.open("a", encoding="utf-8") as log:
                log.write(text + "\n")
        data = event.get("event_data", {})
        result = data.get("res") or {}
        if event.get("event") == "runner_on_failed" and not data.get("ignore_errors"):
            message = result.get("msg") or result.get("stderr") or "no message"
            self.problems.append(f"{data.get('host')}: {data.get('task')}: {message}")
        elif event.get("event") == "runner_on_unreachable":
            self.unreachable.append(f"{data.get('host')}: {result.get('msg', 'unreachable')}")
        return False  # nothing is kept on disk: the campaign's own files hold what matters

    def on_signal(self, number: int, _: FrameType | None) -> None:
        """The first signal lets the playbook end in order, the second one ends it."""
        if number == signal.SIGHUP:
            _drop_terminal()
        if self.signal is None:
            self.signal = number
        else:
            self.cancelled.set()

    def pass_signal_on(self) -> None:
        """Tell the playbook, once, and as soon as there is one."""
        if self.signal is None or self.is_told or self.pid_file is None:
            return
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(int(self.pid_file.read_text()), signal.SIGTERM)
            self.is_told = True


@contextmanager
def signals_to(state: Playbook) -> Iterator[None]:
    """Give the signals that end this process to the playbook; those that are ignored stay so."""
    before = {
        number: signal.signal(number, state.on_signal)
        for number in SIGNALS
        if signal.getsignal(number) != signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _drop_terminal() -> None:
    """Writing to a terminal that is gone is an error."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in _TERMINAL:
        os.dup2(nothing, descriptor)


_TERMINAL = [descriptor for descriptor in (0, 1, 2) if os.isatty(descriptor)]


def run_playbook(
    playbook: str,
    variables: Mapping[str, Any],
    inventories: Sequence[str],
    state: Playbook,
    limit: str = "",
) -> None:
    """Run a playbook of this project to its end; blocks. The outcome is in `state`."""
    require_cluster()
    import ansible_runner

    with tempfile.TemporaryDirectory(prefix="dlperf-runner-") as private:
        state.pid_file = Path(private) / "playbook.pid"
        result = ansible_runner.run(
            private_data_dir=private,
            project_dir=str(project()),
            playbook=playbook,
            cmdline=" ".join(f"--inventory={shlex.quote(name)}" for name in inventories),
            extravars=dict(variables),
            limit=limit or None,
            envvars={
                "ANSIBLE_CONFIG": str(project() / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                # ansible-runner has plugins of its own, for which it sets this.
                "ANSIBLE_CALLBACK_PLUGINS": str(project() / "playbooks/callback_plugins"),
                "DLPERF_RUNNER_PID": str(os.getpid()),
                "DLPERF_PID_FILE": str(state.pid_file),
                # ansible-playbook stands beside the interpreter, activated or not.
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            },
            event_handler=state.on_event,
            cancel_callback=state.cancelled.is_set,
            quiet=True,
            suppress_env_files=True,
        )
    state.status = result.status


def outcomes(campaign: Path) -> dict[str, dict[str, Any]]:
    """Outcome of each run of a campaign by run id, as its run.json says now."""
    found = {}
    for path in sorted(campaign.glob("runs/*/*/run.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        found[document["id"]] = document.get("outcome", {}) | {"log_format": document["log_format"]}
    return found


def current_rate(run: Path, log_format: str) -> float | None:
    """Samples per second that the run under way printed last; None before its first."""
    from ..logs import parse_tail

    try:
        tail = json.loads((run / "progress.json").read_text(encoding="utf-8"))["tail"]
    except FileNotFoundError:
        return None
    return parse_tail(log_format, tail)


def show(campaign: Path, progress: Progress, bar: TaskID) -> None:
    """Bring the bar up to date from the campaign's files."""
    runs = outcomes(campaign)
    states = [run.get("status") for run in runs.values()]
    ended = sum(state in ("done", "failed") for state in states)
    running = next((name for name, run in runs.items() if run.get("status") == "running"), None)
    text = f"{ended} of {len(runs)} runs" if runs else "making the nodes ready"
    if running:
        rate = current_rate(campaign / "runs" / running, runs[running]["log_format"])
        text = running + (f"  {rate:.2f} samples/s" if rate is not None else "")
    progress.update(bar, total=len(runs) or None, completed=ended, description=text)


def execute(campaign: Path, inventories: Sequence[str], wait: str = "") -> list[str]:
    """Run what is planned of a campaign; what its runs came to stands in their run.json.

    Returns what went wrong beside the runs themselves, a sentence each.

    `wait` is how long it waits for nodes that another campaign holds. INT, TERM and HUP let it end
    the run under way and give the nodes back, then raise Stopped; a second one ends it at once, and
    the nodes end what they run by themselves when nobody asks for it any more (see benchmark_job).
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    campaign.mkdir(parents=True, exist_ok=True)
    state = Playbook(log=campaign / "ansible.log")
    before = outcomes(campaign)
    variables = {"resume": str(campaign), **({"wait": wait} if wait else {})}
    worker = threading.Thread(
        target=run_playbook,
        args=("bench.yml", variables, inventories, state),
    )
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, disable=not console.is_terminal, refresh_per_second=2
    ) as progress:
        bar = progress.add_task("making the nodes ready", total=None)
        with signals_to(state):
            worker.start()
            while worker.is_alive():
                worker.join(REFRESH_S)
                state.pass_signal_on()
                show(campaign, progress, bar)
    if outcomes(campaign) != before:
        point_latest_at(campaign)
    if state.signal is not None:
        again = f"python -m dlperf_runner run --resume {shlex.quote(str(campaign))}"
        raise Stopped(state.signal, f"resume with: {again}")
    if outcomes(campaign) == before and (
        state.problems or state.unreachable or state.status != "successful"
    ):
        reasons = state.problems + state.unreachable or [state.status]
        raise UserError("no run could be started:\n  " + "\n  ".join(reasons), where=str(state.log))
    return state.problems + state.unreachable
