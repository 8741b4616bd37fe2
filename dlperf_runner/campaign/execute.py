"""Run a campaign. ansible-runner starts the same `bench.yml` that users can start by hand.

Only this module imports ansible_runner. It reads logs only to show the current speed.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import FrameType
from typing import TYPE_CHECKING, Any

from ..core.errors import Stopped, UserError
from ..core.extras import require_cluster
from ..core.files import open_append, open_read, read_json, read_text
from ..core.paths import of_ansible, project
from ..plan import inventory
from .directory import UNREACHABLE
from .lock import exists
from .manifest import seal

if TYPE_CHECKING:
    from rich.progress import Progress

REFRESH_S = 0.5
PREFIX = f"dlperf-runner-{socket.gethostname()}-"  # of the folders of ansible-runner
PID_FILE = "playbook.pid"
REPORTED_ACTIONS = (
    "benchmark_record",
)  # actions whose errors are reported though the playbook ignores them
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class Playbook:
    """A running playbook: its events, its errors, and the state to stop it."""

    log: Path
    show_text: bool = False
    problems: list[str] = field(default_factory=list)
    unreachable: list[str] = field(default_factory=list)
    status: str = "starting"
    cancelled: threading.Event = field(default_factory=threading.Event)
    signal: int | None = None  # the last signal received that stops the campaign
    passed_on: int | None = None  # the last signal that was
    pid_file: Path | None = None  # the playbook writes its process ID here

    def on_event(self, event: Mapping[str, Any]) -> bool:
        """Log the output as on a terminal, and record each failed task."""
        text = event.get("stdout") or ""
        if text:
            # On a full disk, the playbook itself fails and says so.
            # Only for the owner: ansible-core prints some errors of tasks with no_log, too.
            with suppress(OSError, UserError), open_append(self.log, 0o600) as log:
                log.write(f"{text}\n".encode())
            if self.show_text:
                print(text, file=sys.stderr)
        data = event.get("event_data", {})
        result = data.get("res") or {}
        counts = not data.get("ignore_errors") or data.get("task_action") in REPORTED_ACTIONS
        if event.get("event") == "runner_on_failed" and counts:
            message = result.get("msg") or result.get("stderr") or "no message"
            self.problems.append(f"{data.get('host')}: {data.get('task')}: {message}")
        elif event.get("event") == "runner_on_unreachable":
            self.unreachable.append(f"{data.get('host')}{UNREACHABLE}{result.get('msg', '')}")
        return False  # do not keep events on disk: the campaign's files have all results

    def on_signal(self, number: int, _: FrameType | None = None) -> None:
        """INT ends the campaign after the current run. A second INT, or TERM, stops the current run
        and releases the nodes; another signal ends the playbook at once. HUP stops nothing."""
        if number == signal.SIGHUP:
            _drop_terminal()
        elif self.signal == signal.SIGTERM:
            self.cancelled.set()
        else:
            again = number == signal.SIGINT and self.signal == signal.SIGINT
            self.signal = signal.SIGTERM if again else number

    def pass_signal_on(self) -> None:
        """Send the signal to the playbook, once, as soon as its process exists."""
        if self.signal == self.passed_on or self.signal is None or self.pid_file is None:
            return
        with suppress(FileNotFoundError, ValueError, ProcessLookupError):
            os.kill(int(read_text(self.pid_file)), self.signal)
            self.passed_on = self.signal


@contextmanager
def handling_signals(
    handler: Callable[[int, Any], None], signals: Sequence[signal.Signals] = SIGNALS
) -> Iterator[None]:
    """Pass INT, TERM and HUP to a handler. Signals that are ignored stay ignored."""
    numbers = [number for number in signals if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _drop_terminal() -> None:
    """Redirect the terminal to /dev/null: writing to a closed terminal would be an error."""
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
    """Run a playbook of this project and wait for its end. Stores the outcome in `state`."""
    require_cluster()
    import ansible_runner

    _remove_left_folders()
    with tempfile.TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-") as private:
        state.pid_file = Path(private) / PID_FILE
        result = ansible_runner.run(
            private_data_dir=private,
            project_dir=str(project()),
            playbook=playbook,
            cmdline=shlex.join(
                [*(f"--inventory={name}" for name in inventories), *inventory.extra_options()]
            ),
            extravars=dict(variables),
            limit=limit or None,
            envvars={
                **of_ansible(),
                # ansible-runner would switch it off otherwise, whatever the configuration says.
                "ANSIBLE_HOST_KEY_CHECKING": "True",
                "ANSIBLE_NOCOLOR": "1",
                # Without this, ansible-runner would set it to its own plugins only.
                "ANSIBLE_CALLBACK_PLUGINS": str(project() / "playbooks/callback_plugins"),
                "DLPERF_RUNNER_PID": str(os.getpid()),
                "DLPERF_PID_FILE": str(state.pid_file),
            },
            event_handler=state.on_event,
            cancel_callback=state.cancelled.is_set,
            quiet=True,
            suppress_env_files=True,
        )
    state.status = result.status


def _remove_left_folders() -> None:
    """Remove the user's folders of ansible-runner whose controller was killed and cannot do so."""
    for private in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        with suppress(OSError):  # it is removed meanwhile
            if private.lstat().st_uid != os.getuid():
                continue
            pids = [private.name.removeprefix(PREFIX).partition("-")[0]]
            if (private / PID_FILE).exists():  # its playbook ends later than the controller
                pids.append(read_text(private / PID_FILE))
            if all(pid.isdecimal() and not exists(int(pid)) for pid in pids):
                shutil.rmtree(private)


def outcomes(campaign: Path) -> dict[str, dict[str, Any]]:
    """The current outcome of each run of a campaign, from its run.json, by run ID."""
    by_run = {}
    for path in sorted(campaign.glob("runs/*/*/run.json")):
        document = read_json(path)
        of_run = {name: document[name] for name in ("workload", "log_format", "case")}
        by_run[document["id"]] = document.get("outcome", {}) | of_run
    return by_run


def current_rate(run: Path, log_format: str) -> float | None:
    """The last rate that the active run printed. None if it printed none yet."""
    from ..catalog.reader import format_named
    from ..logs import parse_tail

    try:
        tail = json.loads(read_text(run / "progress.json"))["tail"]
    except FileNotFoundError:
        return None
    return parse_tail(format_named(log_format), tail)


class RunLines:
    """A line for each run that ends, and on a terminal a bar below them: the running run, its rate,
    and the time that is left."""

    def __init__(self, campaign: Path, progress: Progress) -> None:
        self.campaign, self.progress = campaign, progress
        self.bar = progress.add_task("preparing the nodes", total=None)
        self.ended = {name for name, run in outcomes(campaign).items() if is_ended(run)}

    def show(self) -> None:
        """Update it from the campaign's files."""
        from ..catalog.reader import printed_unit

        runs = outcomes(self.campaign)
        for name, run in runs.items():
            if is_ended(run) and name not in self.ended:
                self.ended.add(name)
                line = line_of(name, run)
                self.progress.console.print(line, markup=False, highlight=False, soft_wrap=True)
        running = next((n for n, run in runs.items() if run.get("status") == "running"), None)
        text = "" if runs else "preparing the nodes"
        place = self.campaign / "runs" / (running or "")
        since = {running: since_start(place, time.time()) or 0.0} if running else {}
        records = [{"id": name, "case": run["case"], "outcome": run} for name, run in runs.items()]
        if (left := time_left(records, since)) and len(self.ended) < len(runs):
            text = f"{clock(left)} left  "
        if running:
            rate = current_rate(place, runs[running]["log_format"])
            unit = printed_unit(runs[running]["workload"])
            text += running if rate is None else f"{running}  {rate:.5g} {unit}"
        self.progress.update(
            self.bar, total=len(runs) or None, completed=len(self.ended), description=text
        )


def is_ended(outcome: Mapping[str, Any]) -> bool:
    return outcome.get("status") in ("done", "failed", "invalid")


def line_of(name: str, outcome: Mapping[str, Any]) -> str:
    """`done    CASE/r1  23 s`; of a failed run, why."""
    seconds = outcome.get("elapsed_s")
    took = f"  {seconds:.0f} s" if isinstance(seconds, int | float) else ""
    why = f"  {outcome['message']}" if outcome.get("message") else ""
    return f"{outcome['status']:6}  {name}{took}{why.splitlines()[0] if why else ''}"


def clock(seconds: float) -> str:
    """`1:05`, `2:01:05`."""
    hours, rest = divmod(int(seconds), 3600)
    minutes = f"{rest // 60:02d}" if hours else f"{rest // 60}"
    return f"{f'{hours}:' if hours else ''}{minutes}:{rest % 60:02d}"


def since_start(run: Path, now: float) -> float | None:
    """Seconds since a run was recorded as running."""
    with suppress(OSError):
        return max(0.0, now - (run / "run.json").stat().st_mtime)
    return None


def time_left(records: Sequence[Mapping[str, Any]], elapsed: Mapping[str, float]) -> float | None:
    """The expected seconds until all runs have ended: for each the median of its case, or of all,
    less what has `elapsed` of it. None if no run is done yet."""
    lengths: dict[str, list[float]] = {}
    for record in records:
        length = record["outcome"].get("elapsed_s")
        if record["outcome"].get("status") == "done" and isinstance(length, int | float):
            lengths.setdefault(record["case"], []).append(length)
    if not lengths:
        return None
    usual = median(length for of_case in lengths.values() for length in of_case)
    left = [record for record in records if not is_ended(record["outcome"])]
    return sum(
        max(0.0, median(lengths.get(record["case"], [usual])) - elapsed.get(record["id"], 0))
        for record in left
    )


def execute(
    campaign: Path,
    inventories: Sequence[str],
    wait: str = "",
    stop_at: float | None = None,
    *,
    stop_on_node_loss: bool = False,
    show_text: bool = False,
) -> list[str]:
    """Run the remaining runs of a campaign. Their outcomes are in their run.json. Returns the
    errors that occurred outside the runs.

    `wait` is how long to wait for nodes that another campaign uses. After `stop_at`, by
    time.monotonic, or if a node is lost, no further run starts. A signal stops the campaign (see
    Playbook.on_signal) and then raises Stopped. If this process is killed, the playbook stops the
    current run, and if it is killed too, the nodes do (see benchmark_job).
    """
    campaign.mkdir(parents=True, exist_ok=True)
    state = Playbook(campaign / "ansible.log", show_text)
    with suppress(FileNotFoundError):
        open_read(state.log).close()  # refuses a link before anything runs
    before = outcomes(campaign)
    variables = {"resume": str(campaign), **({"wait": wait} if wait else {})}
    worker = threading.Thread(
        target=run_playbook, args=("bench.yml", variables, inventories, state)
    )
    by_itself = False
    with _progress() as progress:
        lines = RunLines(campaign, progress)
        with handling_signals(state.on_signal):
            worker.start()
            while worker.is_alive():
                worker.join(REFRESH_S)
                if state.signal is None and (
                    (stop_at is not None and time.monotonic() >= stop_at)
                    or (stop_on_node_loss and _lost(campaign, before))
                ):
                    by_itself = True
                    state.signal = signal.SIGINT
                state.pass_signal_on()
                lines.show()
    if state.log.is_file():
        seal(campaign, state.log.name, [state.log])
    if state.signal is not None and not (by_itself and state.signal == signal.SIGINT):
        again = f"dlperf run --resume {shlex.quote(str(campaign))}"
        raise Stopped(state.signal, f"resume with: {again}")
    if (
        outcomes(campaign) == before
        and not by_itself
        and (state.problems or state.unreachable or state.status != "successful")
    ):
        reasons = state.problems + state.unreachable or [state.status]
        raise UserError("no run could be started:\n  " + "\n  ".join(reasons), where=str(state.log))
    return state.problems + state.unreachable


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
        console=console,
        disable=not console.is_terminal,
        refresh_per_second=2,
    )


def follow(campaign: Path, goes_on: Callable[[], bool]) -> None:
    """Show the progress of a campaign that another process runs."""
    with _progress() as progress:
        lines = RunLines(campaign, progress)
        while goes_on():
            lines.show()
            time.sleep(REFRESH_S)


def _lost(campaign: Path, before: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(
        outcome.get("lost") and outcome != before.get(name)
        for name, outcome in outcomes(campaign).items()
    )
