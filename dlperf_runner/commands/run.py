"""The command `run`: a campaign from its plan to its table."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import typer

from ..control.playbooks import use_ansible_options
from ..core.errors import UserError
from ..options import Chosen, print_errors, print_note
from ..options.scheduler import chooses_and_schedules, scheduled
from .summarize import print_summary

if TYPE_CHECKING:
    from ..control.rounds import Policy

ORDER = 80
HELP = """
--campaign DIR: The directory of the new campaign.
--resume DIR: Resume this campaign.
--retry-failed: With --resume: run failed runs again, too.
--stop-after TIME: Start no further run after this time, such as 30m or 2h; default: no limit.
--on-node-loss POLICY: What to do with the runs of a lost node: retry them, shrink the plan (remove
  them), or stop the campaign.
--detach: Run in the background; see `attach`, `status` and `stop`.
--live: Serve a page of the campaign to this machine, and print its address.
--verbose -v: Show Ansible's text, too. It is in ansible.log anyway.
"""


@chooses_and_schedules
def command(
    chosen: Chosen,
    campaign: str = "",
    resume: str = "",
    retry_failed: bool = False,
    stop_after: str = "",
    on_node_loss: str = "retry",
    ask_become_pass: bool = False,
    extra_vars: list[str] | None = None,
    detach: bool = False,
    live: bool = False,
    verbose: bool = False,
) -> None:
    """Run the benchmarks with bench.yml, show each run and the time left, and print the results.

    Ctrl-C stops after the current run; a second one, or TERM, stops the current run, too.

    Example: dlperf run -i inventory/mine --workload pytorch-resnet50v1.5"""
    from ..campaign import lock
    from ..campaign.directory import missing_runs
    from ..control import campaigns, controllers
    from ..control.rounds import Execution, Policy, execute_campaign

    use_ansible_options(ask_become_pass, extra_vars)
    jobs = scheduled(chosen)
    policy = Policy(stop_after, on_node_loss)
    if retry_failed and not resume:
        raise UserError("--retry-failed is for --resume DIR")
    job_campaign = jobs.campaign(chosen, campaign, resume, policy)
    directory = job_campaign or campaigns.prepare(
        *(chosen.choice, chosen.inventories, chosen.limit, chosen.wait, print_note),
        *(campaign, resume, chosen.file),
    )
    if detach:
        options = _options(chosen, policy, retry_failed=retry_failed, live=live)
        pid = controllers.detach(directory, options).pid
        print(f"process {pid} runs {directory}; follow it: dlperf attach {directory}")
        return
    if live:
        from ..live.command import announce_page
    around = announce_page if live else nullcontext
    with lock.held(directory), around(directory):
        if retry_failed:
            campaigns.retry_failed_runs(directory)
        if job_campaign:
            from ..control.scheduled import run as run_jobs

            problems = run_jobs(directory, print_note, policy)
        else:
            place = Execution(chosen.inventories, chosen.wait, print_note)
            problems = execute_campaign(directory, place, policy, show_text=verbose)
    status = print_summary([directory])
    print_errors(problems)
    raise typer.Exit(1 if missing_runs(directory) else status)


def _options(chosen: Chosen, policy: Policy, *, retry_failed: bool, live: bool) -> list[str]:
    """The options of the process that runs the campaign in the background."""
    options = [f"--inventory={path}" for path in chosen.inventories]
    options += [f"--wait={chosen.wait}"] if chosen.wait else []
    options += [f"--stop-after={policy.stop_after}"] if policy.stop_after else []
    options += [f"--on-node-loss={policy.on_node_loss}"]
    return [*options, *["--retry-failed"] * retry_failed, *["--live"] * live]
