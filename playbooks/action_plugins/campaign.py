"""Plan a campaign, prepare its sources, or release it, on the controller.

campaign: {plan: {variables: {}, inventories: [], limit: "", wait: "", campaign: DIR, resume: ""}}
campaign: {sources: {runs: [], mirror: ""}}
campaign: {release: DIR}
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.parsing.dataloader import DataLoader
from ansible.plugins.action import ActionBase
from ansible.utils.vars import load_extra_vars

from dlperf_runner.campaign import lock
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.control.campaigns import plan_of_playbook
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.files import json_text
from dlperf_runner.plan.sources import prepare_source


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("plan", "sources", "release"))
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = self._task.args
        try:
            if "plan" in arguments:
                variables = load_extra_vars(DataLoader())
                return {"changed": True, **plan_of_playbook(variables, **arguments["plan"])}
            if "sources" in arguments:
                return {"changed": False, "sources": list(sources(**arguments["sources"]))}
            playbook = int(os.environ.get("DLPERF_PLAYBOOK_PID") or 0)
            lock.release(Path(arguments["release"]), playbook or None)
        except (UserError, OSError) as error:
            return {"failed": True, "msg": f"error: {error}"}
        return {"changed": False}


def sources(runs: Sequence[Mapping[str, Any]], mirror: str) -> Iterator[dict[str, Any]]:
    """The source of each workload of the runs, as the role benchmark_source takes it."""
    keys = ("workload", "source", "environment")
    for workload, source, environment in dict.fromkeys(tuple(run[k] for k in keys) for run in runs):
        made = prepare_source(
            load_catalog(), workload, source, mirror or None, environment=environment or None
        )
        yield json.loads(json_text({**asdict(made), "path": str(made.path)}))
