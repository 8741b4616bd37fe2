"""Launch a run on a node, wait for its end, show its progress, and fetch its log and telemetry.

One task per run keeps the harness's overhead small; see benchmarks/README.md.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from dlperf_runner.campaign.launch import (
    DAMAGED,
    TAIL,
    UnfitError,
    checked,
    fetched,
    launch_of,
    printable,
    sampled,
)
from dlperf_runner.core.files import remove, write_whole

display = Display()

DOCUMENTATION = """
action: benchmark_launch
short_description: Launch a run on a node, wait for it, and fetch its log
options:
  run: {description: The run., type: dict, required: true}
  campaign: {description: Directory of the campaign on the controller., type: path, required: true}
  lock: {description: The lock on the campaign's nodes., type: dict, required: true}
  settings: {description: Variables of the role without its name., type: dict, required: true}
"""

STOP_S = 90  # the longest time that a supervisor needs for TERM, KILL and removing containers
OVERDUE_S = 300  # the longest time that a node needs to stop a command and clean up
SHOW_S = 15
RETRY_S = 2
PEER_S = 30  # how long a launch may go on when another one of its run has failed: it may say more
# Keys that are passed on from a failed module's answer; the rest is not trusted.
TOLD = ("failed", "unreachable", "lost", "skipped", "changed", "msg", "module_stderr", "exception")
STOPPED = {"reason": "stopped"}  # so that the resumed campaign runs it again


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("run", "campaign", "lock", "settings"))
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments, variables = self._task.args, task_vars or {}
        run, campaign = arguments["run"], Path(arguments["campaign"])
        host = str(variables["inventory_hostname"])
        place = campaign / "runs" / run["id"]
        self.is_first = host == run["commands"][0]["host"]  # it reports the progress of the run
        self.progress = place / "progress.json"
        # Shared by the launches of a run, which are processes of this controller.
        self.peers, self.peers_since = place / ".failed", 0.0
        self.variables, self.interrupted = variables, False
        self.settings = arguments["settings"]
        launch = launch_of(run, host, campaign, arguments["lock"], self.settings)
        launch["launch"] = uuid.uuid4().hex
        if stop_level() == "now":
            return failed("not launched because its campaign was stopped") | STOPPED
        try:
            result = self.waited(run["id"], launch)
        finally:
            if self.is_first:
                remove(self.progress)
        if not result.get("finished"):
            return result
        log = place / (run["log_name"] + ("" if self.is_first else f".{host}"))
        try:
            outcome = checked(result, launch["sample_hosts"])
        except DAMAGED as error:
            return failed(f"the node's answer is damaged: {error}")
        return outcome | fetched(result.get("files"), launch, log, self.part)

    def waited(self, name: str, launch: dict[str, Any]) -> dict[str, Any]:
        """The last answer of the node: when the command has finished, or why it cannot be said."""
        began = shown = heard = time.monotonic()
        is_launched = False
        while True:
            call = {"launch": launch, "launched": is_launched, **self.order()}
            try:
                result = self._execute_module(
                    "benchmark_job", module_args=call, task_vars=self.variables
                )
                heard = time.monotonic()
            except AnsibleConnectionFailure as error:
                result = {"unreachable": True, "msg": str(error)}
                # The command goes on as long as its lease, so a broken connection is no end.
                if is_launched and time.monotonic() < heard + launch["lease_s"]:
                    time.sleep(RETRY_S)
                    continue
            if result.get("failed") or result.get("unreachable") or result.get("skipped"):
                # The signal may have ended this call's ssh too.
                if stop_level() and not self.interrupted:
                    self.interrupted = True
                    continue
                if not result.get("skipped"):
                    self.tell_peers()
                kept = {key: result[key] for key in TOLD if key in result}
                return kept | (STOPPED if stop_level() == "now" else {})
            if result.get("finished"):
                if result.get("reason") or result.get("exit_status"):
                    self.tell_peers()
                return result
            is_launched = True
            tail, now = str(result.get("tail", ""))[-TAIL:], time.monotonic()
            self.show(tail, result.get("devices"))
            if now - began > launch["timeout_s"] + launch["idle_wait_s"] + OVERDUE_S:
                return failed(
                    f"the node reports that the command still runs {OVERDUE_S} s after its"
                    f" time limit of {launch['timeout_s']} s; its state there is damaged"
                )
            if now - shown >= SHOW_S:
                shown = now
                display.display(f"{name}: {now - began:.0f} s, {last_line(tail)}")

    def order(self) -> dict[str, Any]:
        """The orders of the next call, and its longest wait."""
        if stop_level() == "now":
            return {"order": "stopped", "wait_s": STOP_S}
        order = ""
        if self.peers.exists():
            self.peers_since = self.peers_since or time.monotonic()
            order = "peer" if time.monotonic() >= self.peers_since + PEER_S else ""
        return {"order": order, "wait_s": float(self.settings["wait_s"])}

    def tell_peers(self) -> None:
        with suppress(OSError):  # a full disk; the launches on other nodes then end by themselves
            self.peers.touch()

    def show(self, tail: str, devices: object) -> None:
        if self.is_first:
            with suppress(OSError):  # on a full disk, too, the run goes on
                text = json.dumps({"tail": tail, "devices": sampled(devices)})
                write_whole(self.progress, text)

    def part(self, **which: Any) -> object:
        """A part of a file that is too large for the answer."""
        answer = self._execute_module(
            "benchmark_fetch", module_args=which, task_vars=self.variables
        )
        if "content" not in answer:
            raise UnfitError(printable(answer.get("msg", "the node did not answer"), 400))
        return answer["content"]


def failed(message: str) -> dict[str, Any]:
    return {"failed": True, "msg": message}


def stop_level() -> str:
    """Stop that a signal asks the campaign for: `finish`, `now`, or nothing (campaign_stop.py)."""
    stop = Path(os.environ.get("DLPERF_STOP") or "/nowhere")
    return stop.read_text() if stop.exists() else ""


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1], 120) if lines else "no output yet"
