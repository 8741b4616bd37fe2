"""Refuse a node for the problems that a role's preflight has found, or collect them.

    refuse:
      problems: ["{{ __cuda_refusal }}"]
      families: ["{{ __cuda_family }}"]

`families`: what the role gives to the module package_family. The node's own package sources must be
able to serve them, which the module package_sources_info examines.

Empty problems do not count, nor do those of a part that `--tags` or `--skip-tags` leaves out.
provision.yml sets `provision_collects` while it runs the preflight of
every role: problems and families then go to `ansible_facts.refusals` and
`ansible_facts.refuse_families`, so that all are told at once, and one module examines all families.
With `work`, packages of somebody else are not moved to other versions without consent
(`dlperf_replace`), and the node is not changed under jobs of Slurm (unless `dlperf_drain` is set)
or under containers that have GPUs. `installs`: packages of the distribution that the role needs, as
`installs` also collected; `removes`: the node is decommissioned. In check mode, running work is
listed as a step instead of refusing the node.

Sources are not examined if a role says `own_sources: false`, because apt will not read them.
A role that is used alone fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from dlperf_runner.provision.adoption import moved_refusals, work_refusal

CONSENTS = {
    "driver": ("nvidia_driver_replace", "rocm_replace"),
    "container_runtime": ("container_runtime_replace",),
}


class ActionModule(ActionBase):  # type: ignore[misc]
    TRANSFERS_FILES = False
    _VALID_ARGS = frozenset({"problems", "families", "own_sources", "work", "installs", "removes"})

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        lines = [" ".join(str(problem).split()) for problem in self._task.args["problems"]]
        problems = [problem for problem in lines if problem]
        families = self._task.args.get("families", [])
        result["changed"] = False
        if not is_chosen(self._task.tags, variables):
            return result
        facts = variables.get("ansible_facts", {})
        if variables.get("provision_collects"):
            added = {"refusals": problems, "refuse_families": families}
            added["refuse_installs"] = self._task.args.get("installs", [])
            if not self._task.args.get("own_sources", True):
                added["refuse_replaced_sources"] = [self._task.get_name()]
            return result | {"ansible_facts": collected(facts, added)}
        # Roles check again when provisioning comes to them.
        examined = facts.get("refuse_examined", [])
        families = [family for family in families if family not in examined]
        work = facts["dlperf_node"]["work"] if self._task.args.get("work") else {}
        installs = self._task.args.get("installs", []) if work.get("gpu_containers") else []
        reads_sources = not facts.get("refuse_replaced_sources")
        lacking: list[str] = []
        if installs or (families and (work or reads_sources)):
            sources = self._execute_module(
                "package_sources_info",
                {"families": families, "packages": installs},
                task_vars=variables,
            )
            if sources.get("failed"):
                return result | sources
            problems += sources["problems"] if reads_sources else []
            problems += moved_refusals(
                sources["foreign"], allowed(variables, self._templar.template), problems
            )
            lacking = sources["lacking"]
            if reads_sources and not problems:
                result["ansible_facts"] = {"refuse_examined": [*examined, *families]}
        is_drained = boolean(variables.get("dlperf_drain", False))
        removes = bool(self._task.args.get("removes"))
        if busy := work_refusal(work, lacking, is_drained, removes):
            if self._task.check_mode:
                result["rehearsal_note"] = f"other steps: wait, because {busy}"
                if removes:  # nothing lists its steps
                    result["warnings"] = [*result.get("warnings", []), busy]
            else:
                problems.append(busy)
        if problems:
            result |= {"failed": True, "msg": problems[0]}
            if len(problems) > 1:
                listed = "".join(f"\n- {problem}" for problem in problems)
                result["msg"] = f"{len(problems)} problems, and nothing was changed:{listed}"
        return result


def allowed(variables: Mapping[str, Any], value_of: Callable[[Any], Any]) -> list[str]:
    """The parts whose replacement the inventory allows, also by the variables of roles."""
    of_roles = (
        part
        for part, names in CONSENTS.items()
        if any(boolean(value_of(variables.get(name, False)), strict=False) for name in names)
    )
    return [*(value_of(variables.get("dlperf_replace")) or []), *of_roles]


def collected(facts: Mapping[str, Any], added: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The facts with what a preflight adds to them."""
    return {
        name: [*before, *(item for item in items if item not in before)]
        for name, items in added.items()
        if (before := list(facts.get(name, []))) or items
    }


def is_chosen(tags: Iterable[str], variables: Mapping[str, Any]) -> bool:
    """True if the part runs to which a check belongs. All checks have the tag `always`; their part
    has their other tags and the name of their role."""
    names = {*tags, str(variables.get("ansible_role_name", "")).rpartition(".")[2]} - {"always", ""}
    run = set(variables.get("ansible_run_tags") or ["all"])
    skipped = set(variables.get("ansible_skip_tags") or [])
    return not names or (not names & skipped and bool(run & {"all", "tagged", "verify", *names}))
