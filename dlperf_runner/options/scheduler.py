"""The options of `plan` and `run` for a scheduler."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from . import (
    Chosen,
    keyword,
    keywords_of,
    option,
    print_note,
    refuse_given,
    set_parameters,
    text_option,
)

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

        if resume:
            directory = Path(resume).resolve()
            if not read_settings(directory):
                return None
            scheduled.refuse_policy(policy)
            return directory
        if not self.name:
            return None
        scheduled.refuse_policy(policy)
        directory = Path(campaign or new_directory()).resolve()
        with located(chosen.file):
            choice, nodes, settings = self._planned(chosen)
            scheduled.create(directory, choice, nodes, settings, print_note, chosen.file)
        return directory

    def scripts(self, chosen: Chosen, campaign: str) -> str:
        """The scripts of the jobs that `run` would submit."""
        from ..campaign.directory import new_directory
        from ..control import scheduled
        from ..plan.campaign_file import located

        directory = Path(campaign or new_directory()).resolve()
        with located(chosen.file):
            choice, nodes, settings = self._planned(chosen)
            runs = scheduled.plan(choice, nodes, print_note)
        return scheduled.script_text(directory, settings, runs)

    def _planned(self, chosen: Chosen) -> tuple[Choice, tuple[Node, ...], SchedulerSettings]:
        from ..control import scheduled
        from ..plan.choice import parse_wait

        names = ("inventory", "limit", "wait")
        without = dict(zip(names, (chosen.inventories, chosen.limit, chosen.wait), strict=True))
        refuse_given(without, "this option has no effect with --scheduler")
        options = dict(self.options)
        if options.get("time"):
            options["time"] = str(parse_wait(options["time"], "--time"))
        site = scheduled.read_site(self.site)
        nodes = scheduled.nodes_of(self.name, options, site)
        wait_s = parse_wait(self.max_wait, "--max-wait")
        allocation = self.allocation or "campaign"
        settings = scheduled.settings_of(self.name, options, site, nodes, allocation, wait_s)
        is_given = "order" in chosen.given
        return scheduled.in_order_of_jobs(chosen.choice, settings, is_given), nodes, settings


_TEXTS = (
    (
        "scheduler",
        "Run as jobs of this scheduler (slurm), from a login node, without Ansible and SSH.",
        "NAME",
    ),
    ("allocation", "With --scheduler: one job for each campaign (default), case or run.", "KIND"),
    ("max_wait", "With --scheduler: cancel a job that waits longer, such as 2h.", "TIME"),
)
_SITE = Annotated[
    Path | None,
    option(
        "--site",
        "With --scheduler: a YAML file of the inventory's variables for the cluster's nodes.",
        "FILE",
    ),
]


def schedules(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of schedulers to a command. It gets Scheduled by the keyword `scheduled`."""
    from ..schedulers import schedulers

    of_jobs: dict[str, inspect.Parameter] = {}
    for name, metavar, words in (each for own in schedulers().values() for each in own.options):
        shown = (f"--{name}", f"With --scheduler: {words[0].lower()}{words[1:]}")
        of_jobs.setdefault(
            name,
            text_option(name, *shown, metavar)
            if metavar
            else keyword(name, Annotated[bool, option(*shown)], False),
        )
    texts = [text_option(name, f"--{name.replace('_', '-')}", *shown) for name, *shown in _TEXTS]
    options = [*texts, keyword("site", _SITE), *of_jobs.values()]

    @functools.wraps(command)
    def wrapped(chosen: Chosen, **values: Any) -> None:
        given = {item.name: values.pop(item.name) for item in options}
        if (file := chosen.file) is not None:
            from ..plan.campaign_file import with_scheduler

            told = len(file.overridden)
            file, given = with_scheduler(file, given)
            for line in file.overridden[told:]:
                print_note(line)
            chosen = replace(chosen, file=file)
        scheduled = Scheduled(
            given["scheduler"],
            {name: str(given[name]) for name in of_jobs if given[name]},
            *(given[name] for name in ("allocation", "max_wait", "site")),
        )
        if not scheduled.name:
            refuse_given(given, "this option has an effect only with --scheduler")
        command(chosen, scheduled=scheduled, **values)

    own = [item for item in keywords_of(command) if item.name != "scheduled"]
    set_parameters(wrapped, [*own, *options])
    return wrapped
