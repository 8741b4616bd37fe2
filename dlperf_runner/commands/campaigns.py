"""Plans campaigns, runs them, and says which runs are done."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..campaign import directory as campaigns
from ..catalog.reader import load_catalog
from ..core.paths import project
from ..plan import inventory
from ..plan.choice import Choice, choice_of_variables, parse_wait
from ..plan.make import make_plan, plan_document

# Prefixes of playbook variables that are not options of a campaign. Role names are also prefixes.
PREFIXES = ("ansible", "dlperf", "bench", "provision", "preflight")


def choice_of_playbook(variables: str) -> Choice:
    """The choice in the extra variables of bench.yml, which are JSON."""
    roles = (path.name for path in (project() / "roles").iterdir())
    return choice_of_variables(json.loads(variables), (*PREFIXES, *roles))


def plan(
    choice: Choice,
    inventories: Sequence[str] = (),
    limit: str = "",
    campaign: str = "",
    resume: str = "",
    wait: str = "",
) -> dict[str, Any]:
    """The plan document: of a new campaign in the directory `campaign`, of the unfinished runs of
    the campaign `resume`, or, with neither, of runs for which nothing is written."""
    wait_s = parse_wait(wait)
    if resume:
        document = campaigns.remaining_plan(Path(resume))
    else:
        nodes = inventory.read_inventory(inventories, limit or None)
        runs = make_plan(choice, load_catalog(), nodes)
        if campaign:
            document = campaigns.create_campaign(Path(campaign), choice, nodes, runs)
            campaigns.point_latest_at(Path(campaign))
        else:
            document = plan_document(choice, nodes, runs)
    if directory := resume or campaign:
        document |= {"campaign": str(Path(directory).resolve()), "wait_s": wait_s}
    return document


def run(
    choice: Choice,
    inventories: Sequence[str] = (),
    limit: str = "",
    campaign: str = "",
    resume: str = "",
    wait: str = "",
) -> tuple[Path, list[str]]:
    """Run a new campaign, or the unfinished runs of the campaign `resume`. Returns the directory
    and what went wrong."""
    from ..campaign.execute import execute

    directory = Path(resume or campaign or campaigns.new_directory()).resolve()
    parse_wait(wait)
    if not resume:
        nodes = inventory.read_inventory(inventories, limit or None)
        runs = make_plan(choice, load_catalog(), nodes)
        campaigns.create_campaign(directory, choice, nodes, runs)
    elif not unfinished(directory):
        return directory, []
    paths = [name if "," in name else str(Path(name).resolve()) for name in inventories]
    return directory, execute(directory, paths, wait)


def unfinished(directory: Path) -> bool:
    return bool(campaigns.remaining_plan(directory)["runs"])


def status_of(directory: Path) -> dict[str, Any]:
    """The runs of a campaign with their status, and how many of them are done."""
    runs = []
    for record in campaigns.read_records(directory):
        outcome = record["outcome"]
        if campaigns.is_cut_off(outcome):
            outcome = {"status": "cut off", "message": "its controller ended"}
        done = campaigns.is_done(directory, record)
        told = {name: outcome.get(name) for name in ("status", "message")}
        runs.append({"id": record["id"], "done": done, **told})
    return {"runs": runs, "done": sum(run["done"] for run in runs), "total": len(runs)}
