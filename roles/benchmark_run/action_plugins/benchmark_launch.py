"""Controller side of `benchmark_job`: wait for a launch with signs of life, bring its log and its
telemetry home.

One task per run keeps what the harness adds to a run small; see benchmarks/README.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
STOP_S = 90  # as long as a supervisor may need: TERM, KILL, and what removes containers

DOCUMENTATION = """
action: benchmark_launch
short_description: Launch a command on a node, wait for its end, fetch its log
options:
  job: {description: Options of the benchmark_job module., type: dict, required: true}
  label: {description: Name of the run in messages., type: str, required: true}
  destination: {description: Path of the log on the controller., type: path, required: true}
  progress: {description: Whether this node tells the run's progress., type: bool, default: true}
  show_every_s: {description: Seconds between two signs of life., type: int, default: 15}
"""


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("job", "label", "destination", "progress", "show_every_s"))
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = self._task.args
        destination = Path(arguments["destination"])
        progress = destination.with_name("progress.json")
        tells = boolean(arguments.get("progress", True))  # one node of a run does
        job = dict(arguments["job"], launch=uuid.uuid4().hex)
        began = shown = time.monotonic()
        if is_stopped():
            return {"failed": True, "msg": "not launched, because its campaign was stopped"}
        try:
            while True:
                if is_stopped():
                    job |= {"stop": True, "wait_s": STOP_S}
                result = self._execute_module("benchmark_job", module_args=job, task_vars=task_vars)
                if result.get("failed") or result.get("unreachable") or result.get("skipped"):
                    # The signal may have ended this call's ssh as well.
                    if is_stopped() and not job.get("stop"):
                        continue
                    return dict(result)
                if result["finished"]:
                    break
                if tells:
                    write_whole(progress, json.dumps({"tail": result["tail"]}))
                now = time.monotonic()
                if now - shown >= int(arguments.get("show_every_s", 15)):
                    shown = now
                    display.display(
                        f"{arguments['label']}: {now - began:.0f} s, {last_line(result['tail'])}"
                    )
        finally:
            if tells:
                progress.unlink(missing_ok=True)
        result["log_sha256"] = self._fetch(result["log"], destination)
        result["destination"] = str(destination)
        for telemetry in result.get("telemetry", []):
            self._fetch_telemetry(telemetry, destination)
        return dict(result)

    def _fetch(self, remote: str, destination: Path) -> str:
        partial = destination.with_name(destination.name + ".part")
        try:
            self._connection.fetch_file(remote, str(partial))
        except Exception as error:
            raise AnsibleActionFail(f"{remote} could not be fetched: {error}") from error
        partial.replace(destination)
        with destination.open("rb") as log:
            return hashlib.file_digest(log, "sha256").hexdigest()

    def _fetch_telemetry(self, remote: str, log: Path) -> None:
        """Samples are welcome, and no run fails for want of them."""
        try:
            self._fetch(remote, log.with_name(PurePosixPath(remote).name))
        except AnsibleActionFail as error:
            display.warning(str(error))


def is_stopped() -> bool:
    """Whether a signal asked for the campaign's end (playbooks/callback_plugins)."""
    stop = os.environ.get("DLPERF_STOP")
    return stop is not None and Path(stop).exists()


def write_whole(path: Path, text: str) -> None:
    """Write so that a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    printable = (
        "".join(c if c.isprintable() else " " for c in lines[-1]) if lines else "no output yet"
    )
    return printable[:120]
