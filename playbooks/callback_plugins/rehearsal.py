"""List what provision.yml would change on each node, if it runs in check mode.

The file named by DLPERF_REHEARSAL gets the lists; without it they are printed at the end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: rehearsal
type: aggregate
short_description: List what provision.yml would change on each node
"""
LATER = "would have run if not in check mode"


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "rehearsal"
    is_on = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        is_provisioning = Path(playbook._file_name).name == "provision.yml"
        self.is_on = is_provisioning and bool(context.CLIARGS.get("check"))
        self.changes: dict[str, list[tuple[str, str]]] = {}
        self.failures: dict[str, str] = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        if self.is_on and "results" not in result._result:
            answer = result._result
            self._note(result, bool(answer.get("changed") or answer.get("rehearsal_note")))

    v2_runner_item_on_ok = v2_runner_on_ok

    def v2_runner_on_skipped(self, result: Any) -> None:
        """A task is left out only because of check mode if that is its last condition."""
        if not self.is_on or "results" in result._result:
            return
        answer, task = result._result, result._task
        is_later = LATER in str(answer.get("msg")) or "ansible_check_mode" in str(
            answer.get("false_condition")
        )
        self._note(result, is_later and task.changed_when != [False])

    v2_runner_item_on_skipped = v2_runner_on_skipped

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        if self.is_on and not ignore_errors:
            message = result._result.get("msg") or result._result.get("stderr") or "no message"
            self.failures[result._host.get_name()] = f"{result._task.get_name()}: {message}"

    v2_runner_on_unreachable = v2_runner_on_failed

    def _note(self, result: Any, is_change: bool) -> None:
        from dlperf_runner.provision.rehearsal import NOTES, of_task

        task, answer = result._task, result._result
        noted = self.changes.setdefault(result._host.get_name(), [])
        facts = answer.get("ansible_facts") or {}
        noted += [(NOTES, str(text)) for text in facts.get("provision_notes", ())]
        if not is_change:
            return
        invoked = answer.get("invocation")
        arguments = invoked.get("module_args") if isinstance(invoked, Mapping) else None
        arguments = {**(task.args if isinstance(task.args, Mapping) else {}), **(arguments or {})}
        note = str(answer.get("rehearsal_note") or task.vars.get("rehearsal_note", ""))
        noted += of_task(task.get_name(), task.action, arguments, answer, note)

    def v2_playbook_on_stats(self, stats: Any) -> None:  # noqa: ARG002
        if not self.is_on:
            return
        from dlperf_runner.core.files import write_json
        from dlperf_runner.provision.rehearsal import listed

        changes = {
            name: items
            for name, items in self.changes.items()
            if name not in ("localhost", *self.failures)
        }
        if path := os.environ.get("DLPERF_REHEARSAL"):
            write_json(Path(path), {"changes": changes, "failures": self.failures})
        else:
            self._display.display(listed(changes, self.failures))
