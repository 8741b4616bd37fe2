"""The options of `plan` and `run` for a scheduler."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ..schedulers import schedulers
from . import JOBS, Chosen, chooses, keyword, option, print_note, refuse_given, with_options

if TYPE_CHECKING:
    from ..campaign.job_files import SchedulerSettings
    from ..control.rounds import Policy
    from ..core.node import Node
    from ..plan.choice import Choice


@dataclass(frozen=True)
class Scheduled:
    """The scheduler that the user chose, if any, and its options."""

    name: str
    options: dict[str, str]
    allocation: str
    max_wait: str
    site: Path | None

    def campaign(self, chosen: Chosen, campaign: str, resume: str, policy: Policy) -> Path | None:
        """The directory of the new or resumed campaign; None if bench.yml runs it."""
        from ..campaign.directory import new_directory
        from ..campaign.job_files import read_settings
        from ..control import scheduled
        from ..plan.campaign_file import located

        directory = Path(resume or campaign or new_directory()).resolve()
        if not (read_settings(directory) if resume else self.name):
            return None
        scheduled.refuse_policy(policy)
        if not resume:
            with located(chosen.file):
                choice, nodes, settings = self.planned(chosen)
                scheduled.create(directory, choice, nodes, settings, print_note, chosen.file)
        return directory

    def plan(self, chosen: Chosen, campaign: str) -> dict[str, Any]:
        """The plan, and the scripts of the jobs that `run` would submit, by path."""
        from ..campaign.directory import new_directory
        from ..control import scheduled
        from ..control.campaigns import planned
        from ..plan.campaign_file import located
        from ..plan.make import plan_document

        directory = Path(campaign or new_directory()).resolve()
        with located(chosen.file):
            choice, nodes, settings = self.planned(chosen, max(chosen.choice.nodes, default=_NODES))
            document = plan_document(*planned(choice, nodes, print_note))
        scripts = scheduled.scripts(directory, settings, document["runs"])
        return {**document, "scripts": scripts}

    def planned(
        self, chosen: Chosen, planned_nodes: int = 0
    ) -> tuple[Choice, tuple[Node, ...], SchedulerSettings]:
        """The plan on the scheduler's nodes, and how its jobs are made."""
        from ..control.scheduled import in_order_of_jobs

        names = ("inventory", "limit", "wait")
        without = dict(zip(names, (chosen.inventories, chosen.limit, chosen.wait), strict=True))
        nodes, settings = self.nodes(without, planned_nodes)
        is_given = "order" in chosen.given
        return in_order_of_jobs(chosen.choice, settings, is_given), nodes, settings

    def nodes(
        self, without: Mapping[str, object], planned_nodes: int = 0
    ) -> tuple[tuple[Node, ...], SchedulerSettings]:
        """The scheduler's nodes, and how its jobs are made. `without`: the values of options that
        are about other nodes."""
        from ..control import scheduled
        from ..plan.choice import parse_wait

        refuse_given(without, "this option has no effect with --scheduler")
        options = dict(self.options)
        if options.get("time"):
            options["time"] = str(parse_wait(options["time"], "--time"))
        site = scheduled.read_site(self.site)
        offers = scheduled.offers_of(self.name, options, site, planned_nodes, print_note)
        nodes = scheduled.nodes_of(offers, site)
        wait_s = parse_wait(self.max_wait, "--max-wait")
        allocation = self.allocation or "campaign"
        return nodes, scheduled.settings_of(
            self.name, options, site, nodes, allocation, wait_s, offers
        )


_NODES = 4  # of a plan away from the scheduler, unless --nodes has more


def _of_jobs() -> dict[str, inspect.Parameter]:
    """The options of the schedulers' jobs, by name."""
    options: dict[str, inspect.Parameter] = {}
    for name, metavar, words in (
        each for scheduler in schedulers().values() for each in scheduler.options
    ):
        shown = option(f"--{name}", words, metavar or None, JOBS)
        kind, default = (str, "") if metavar else (bool, False)
        options.setdefault(name, keyword(name, Annotated[kind, shown], default))
    return options


def chooses_and_schedules(command: Callable[..., None]) -> Callable[..., None]:
    """Add a campaign file, the options of `chooses` and those of schedulers to a command. It gets
    Chosen as first argument, which has what `scheduled` needs."""
    return chooses(command, further=[keyword("file", Path | None), *of_scheduler()])


def of_scheduler() -> list[inspect.Parameter]:
    """The options of schedulers."""
    texts = [keyword(name, str, "") for name in ("scheduler", "allocation", "max_wait")]
    return [*texts, keyword("site", Path | None), *_of_jobs().values()]


def schedules(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of schedulers to a command. It gets Scheduled as first argument."""
    return with_options(command, of_scheduler(), _scheduled)


def scheduled(chosen: Chosen) -> Scheduled:
    """The chosen scheduler with its options. Raises UserError if only its options were."""
    return _scheduled(chosen.options)


def _scheduled(given: Mapping[str, Any]) -> Scheduled:
    of_jobs = {name: str(value) for name in _of_jobs() if (value := given[name])}
    others = {name: given[name] for name in ("allocation", "max_wait", "site")}
    if not (name := given["scheduler"]):
        refuse_given(others | of_jobs, "this option has an effect only with --scheduler")
    return Scheduled(name, of_jobs, **others)
