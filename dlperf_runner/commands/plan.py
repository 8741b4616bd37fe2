"""The command `plan`: what would run, without running it."""

from __future__ import annotations

from ..options import Chosen, print_json, print_note
from ..options.scheduler import chooses_and_schedules, scheduled

ORDER = 70
HELP = """
--campaign DIR: Create this campaign directory.
--resume DIR: Show only the unfinished runs of this campaign.
--schema: Print the JSON Schema of a campaign file, for editors.
"""


@chooses_and_schedules
def command(
    chosen: Chosen,
    campaign: str = "",
    resume: str = "",
    schema: bool = False,
    as_json: bool = False,
) -> None:
    """Show the commands that would run on each host, without running them.

    Example: dlperf plan -i inventory/mine --workload pytorch-resnet50v1.5"""
    from ..control import campaigns
    from ..report.plan_text import render

    if schema:
        from ..plan.campaign_file import schema as schema_of_files

        print_json(schema_of_files())
        return
    choice, nodes = chosen.choice, (chosen.inventories, chosen.limit)
    jobs = scheduled(chosen)
    if jobs.name:
        document = jobs.plan(chosen, campaign)
        scripts = (f"==> {path} <==\n{text}" for path, text in document["scripts"].items())
        print_json(document) if as_json else print("\n".join(scripts), end="")
        return
    document = campaigns.plan(
        choice, *nodes, campaign, resume, chosen.wait, print_note, file=chosen.file
    )
    if as_json:
        print_json(document)
    else:
        print(render(document), end="")
