"""Record the start of a run, or its outcome, in its run.json on the controller."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dlperf_runner.campaign.outcome import record_end, record_start
from dlperf_runner.core.errors import UserError

DOCUMENTATION = """
action: benchmark_record
short_description: Record the start of a run, or its outcome
options:
  campaign: {description: Directory of the campaign on the controller., type: path, required: true}
  run: {description: The run., type: dict, required: true}
  hosts: {description: Facts of its hosts by name, type: dict}
  versions: {description: Versions of its software., type: dict}
  results:
    description: Results of benchmark_launch by host; without them, the run starts.
    type: dict
"""


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("campaign", "run", "hosts", "versions", "results"))
    _requires_connection = False

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = self._task.args
        campaign, run = Path(arguments["campaign"]), dict(arguments["run"])
        try:
            if "results" in arguments:
                record_end(campaign, run, arguments["results"])
            else:
                record_start(campaign, run, arguments["hosts"], arguments["versions"])
        except (UserError, OSError) as error:
            return {"failed": True, "msg": f"cannot record {run['id']}: {error}"}
        return {"changed": True}
