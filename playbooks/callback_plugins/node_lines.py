"""On a terminal, a line for each node: the task that it works on, and for how long. Ansible's own
text goes to the file DLPERF_ANSIBLE_LOG. `dlperf provision` and `dlperf lab` set both.

    Provisioning: 0:41, about 0:50 left
    node1  0:12  Build Horovod's wheel
    node2        waits for others
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible import constants
from ansible.plugins.callback.default import CallbackModule as Default

DOCUMENTATION = """
name: node_lines
type: stdout
short_description: A line for each node
extends_documentation_fragment: [default_callback, result_format_callback]
"""
EVERY_S = 1.0
RED, PLAIN = "\033[31m", "\033[0m"


class CallbackModule(Default):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "node_lines"

    def __init__(self) -> None:
        super().__init__()
        from dlperf_runner.core.files import open_append, read_text

        self.log = Path(os.environ["DLPERF_ANSIBLE_LOG"])
        self.text = open_append(self.log, 0o600)
        self.text.truncate(0)
        self._display.display = self.write  # warnings go there, too
        self.started = time.monotonic()
        self.tasks: list[tuple[str, float]] = []  # and when each began
        self.nodes: dict[str, tuple[str, float]] = {}  # the task that each works on, and since when
        self.failures: dict[str, str] = {}
        self.shown = self.warnings = 0
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.last: list[tuple[str, float]] = []
        with suppress(OSError, ValueError, TypeError):
            self.last = [(str(name), float(at)) for name, at in json.loads(read_text(self.times))]

    @property
    def times(self) -> Path:
        """When each task began the last time: what is left is estimated from it."""
        return self.log.with_suffix(".times.json")

    def write(
        self, message: str, color: str | None = None, stderr: bool = False, **kind: Any
    ) -> None:
        """The output that Ansible displays."""
        if kind.get("log_only"):  # the same with colours goes to the screen
            return
        self.text.write(f"{message}\n".encode())
        self.text.flush()
        self.warnings += message.startswith("[WARNING]")
        if stderr and color == constants.COLOR_ERROR:
            self.draw(message)

    # ---- events

    def v2_playbook_on_start(self, playbook: Any) -> None:
        super().v2_playbook_on_start(playbook)
        self.name = Path(playbook._file_name).stem
        threading.Thread(target=self.tick, daemon=True).start()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        super().v2_playbook_on_play_start(play)
        self.nodes = {}

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        super().v2_playbook_on_task_start(task, is_conditional)
        self.tasks.append((task.get_name(), time.monotonic() - self.started))

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        super().v2_runner_on_start(host, task)
        self.nodes[host.get_name()] = task.get_name(), time.monotonic()

    def v2_runner_on_ok(self, result: Any) -> None:
        super().v2_runner_on_ok(result)
        self.nodes[name_of(result)] = "", 0.0

    def v2_runner_on_skipped(self, result: Any) -> None:
        super().v2_runner_on_skipped(result)
        self.nodes[name_of(result)] = "", 0.0

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        super().v2_runner_on_failed(result, ignore_errors)
        self.nodes[name_of(result)] = "", 0.0
        if not ignore_errors:
            self.failures[name_of(result)] = f"{field(result, 'task').get_name()}: {reason(result)}"

    def v2_runner_on_unreachable(self, result: Any) -> None:
        super().v2_runner_on_unreachable(result)
        self.nodes[name_of(result)] = "", 0.0
        self.failures[name_of(result)] = f"unreachable: {reason(result)}"

    def v2_playbook_on_stats(self, stats: Any) -> None:
        super().v2_playbook_on_stats(stats)
        self.ended.set()
        summaries = {host: stats.summarize(host) for host in sorted(stats.processed)}
        failed = {
            host: self.failures.get(host, "failed; see the log")
            for host, counts in summaries.items()
            if counts["failures"] or counts["unreachable"]
        }
        width = max(map(len, summaries), default=0)
        for host, counts in summaries.items():
            changed = f"{counts['changed']} changed" if counts["changed"] else "nothing to change"
            self.draw(f"{host:{width}}  {'failed' if host in failed else f'ok, {changed}'}")
        for host, why in failed.items():
            self.draw(red(f"{host}: {why}"))
        warned = f", with {self.warnings} warnings" if self.warnings else ""
        self.draw(f"{clock(time.monotonic() - self.started)}; Ansible's text{warned}: {self.log}")
        self.nodes = {}
        self.draw()
        if not failed:
            from dlperf_runner.core.files import write_whole

            with suppress(OSError):
                write_whole(self.times, json.dumps([*self.tasks, ("", self.elapsed())]))

    # ---- what is drawn

    def elapsed(self) -> float:
        return time.monotonic() - self.started

    def tick(self) -> None:
        while not self.ended.wait(EVERY_S):
            self.draw()

    def left(self) -> float | None:
        """The seconds from the current task to the end, if it takes as long as last time."""
        if not self.tasks:
            return None
        name, began = self.tasks[-1]
        number = sum(each == name for each, _ in self.tasks)
        same = [at for each, at in self.last if each == name]
        if len(same) < number:
            return None
        return max(0.0, self.last[-1][1] - same[number - 1] - (self.elapsed() - began))

    def draw(self, message: str = "") -> None:
        """Print a message that stays, and the lines again below it."""
        with self.lock:
            columns, rows = shutil.get_terminal_size()
            lines = [] if self.ended.is_set() else self.lines(rows - 3)
            text = f"\033[{self.shown}A\033[J" if self.shown else ""
            text += f"{message}\n" if message else ""
            text += "".join(f"{line[: columns - 1]}\n" for line in lines)
            self.shown = len(lines)
            with suppress(OSError, ValueError):
                sys.__stdout__.write(text)
                sys.__stdout__.flush()

    def lines(self, most: int) -> list[str]:
        left = self.left()
        rest = f", about {clock(left)} left" if left is not None else ""
        width = max(map(len, self.nodes), default=0)
        busy = sorted(self.nodes.items(), key=lambda node: (not node[1][0], node[0]))
        lines = [
            f"{host:{width}}  {clock(time.monotonic() - since)}  {task}"
            if task
            else f"{host:{width}}        waits for others"
            for host, (task, since) in busy[:most]
        ]
        more = [f"and {len(busy) - most} more nodes"] if len(busy) > most else []
        return [f"{self.name}: {clock(self.elapsed())}{rest}", *lines, *more]


def field(result: Any, name: str) -> Any:
    """A field of a result. ansible-core 2.16 has it as a private one."""
    return getattr(result, name, None) or getattr(result, f"_{name}")


def name_of(result: Any) -> str:
    return str(field(result, "host").get_name())


def reason(result: Any) -> str:
    res = field(result, "result")
    return str(res.get("msg") or res.get("stderr") or "no message").strip()


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def red(text: str) -> str:
    return text if os.environ.get("NO_COLOR") else f"{RED}{text}{PLAIN}"
