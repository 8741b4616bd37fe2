"""Write a run's outcome to its run.json on the controller, atomically and without a module."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

DOCUMENTATION = """
action: benchmark_record
short_description: Update the outcome of a run in its run.json
options:
  directory: {description: "The run's directory, created if missing.", type: path, required: true}
  run: {description: "The run, written if run.json is missing.", type: dict, required: true}
  outcome: {description: New keys of the outcome., type: dict, required: true}
  command:
    description: A command, as argv and chdir, to execute after run.json is written.
    type: dict
"""


# Of an earlier attempt.
ENDED = ("beside", "unsampled_from_s", "reason", "lost", "category", "advice")


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("directory", "run", "outcome", "command"))
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        path = Path(self._task.args["directory"]) / "run.json"
        if path.exists():
            document = json.loads(path.read_text(encoding="utf-8"))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            document = dict(self._task.args["run"])
        outcome = document.get("outcome", {}) | dict(self._task.args["outcome"])
        outcome.pop("controller", None)
        if outcome.get("status") == "running":
            for name in ENDED:
                outcome.pop(name, None)
            path.with_name(".failed").unlink(missing_ok=True)
            # From this, `status` recognises an interrupted run.
            outcome["controller"] = {"host": socket.gethostname(), "pid": os.getppid()}
        document["outcome"] = outcome
        temporary = path.with_name(path.name + ".tmp")
        try:
            temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            return {"failed": True, "msg": f"cannot write {path}: {error.strerror}"}
        if outcome.get("status") == "done":
            point_latest_at(path.parents[3])
        command = self._task.args.get("command")
        return {"changed": True, **(executed(**command) if command else {})}


def executed(argv: list[str], chdir: str) -> dict[str, Any]:
    """Nothing, or why the command failed."""
    done = subprocess.run(
        argv, cwd=chdir, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if not done.returncode:
        return {}
    return {"failed": True, "msg": f"{' '.join(argv)}: {(done.stderr or done.stdout).strip()}"}


def point_latest_at(campaign: Path) -> None:
    """Make `results/latest` a link to a campaign with a finished run, if its parent is named
    `results`."""
    link = campaign.parent / "latest"
    if campaign.parent.name != "results" or is_link_to(link, campaign):
        return
    temporary = link.with_name(f".latest.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(campaign.name)
    temporary.replace(link)


def is_link_to(link: Path, campaign: Path) -> bool:
    return link.is_symlink() and str(link.readlink()) == campaign.name
