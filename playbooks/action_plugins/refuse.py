"""Refuse a node for the problems that a role's preflight has found, or collect them.

    refuse:
      problems: ["{{ __cuda_refusal }}"]

Empty problems do not count. provision.yml sets `provision_collects` while it runs the preflight of
every role: the problems then go to `ansible_facts.refusals`, so that all are told at once. A role
that is used alone fails.
"""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset({"problems"})

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        told = [" ".join(str(problem).split()) for problem in self._task.args["problems"]]
        problems = [problem for problem in told if problem]
        result["changed"] = False
        if problems and variables.get("provision_collects"):
            before = list(variables.get("ansible_facts", {}).get("refusals", []))
            added = [problem for problem in problems if problem not in before]
            result["ansible_facts"] = {"refusals": before + added}
        elif problems:
            result |= {"failed": True, "msg": problems[0]}
            if len(problems) > 1:
                listed = "".join(f"\n- {problem}" for problem in problems)
                result["msg"] = f"{len(problems)} problems, and nothing was changed:{listed}"
        return result
