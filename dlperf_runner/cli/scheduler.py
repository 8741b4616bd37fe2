"""The options of `plan` and `run` for a scheduler."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from ..core.errors import UserError
from .options import Chosen, option, print_note

if TYPE_CHECKING:
    from ..campaign.job_files import SchedulerSettings
    from ..commands.rounds import Policy
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
        from ..commands import scheduled
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

    def run(self, directory: Path, policy: Policy) -> list[str]:
        from ..commands import scheduled

        return scheduled.run(directory, print_note, policy)

    def scripts(self, chosen: Chosen, campaign: str) -> str:
        """The scripts of the jobs that `run` would submit."""
        from ..campaign.directory import new_directory
        from ..commands import scheduled
        from ..plan.campaign_file import located

        directory = Path(campaign or new_directory()).resolve()
        with located(chosen.file):
            choice, nodes, settings = self._planned(chosen)
            runs = scheduled.plan(choice, nodes, print_note)
        return scheduled.script_text(directory, settings, runs)

    def _planned(self, chosen: Chosen) -> tuple[Choice, tuple[Node, ...], SchedulerSettings]:
        from ..commands import scheduled
        from ..plan.choice import parse_wait

        without = {
            "inventory": chosen.inventories,
            "limit": chosen.limit,
            "wait": chosen.wait,
        }
        for name, value in without.items():
            if value:
                raise UserError("this option has no effect with --scheduler", where=f"--{name}")
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


_SCHEDULER = Annotated[
    str,
    option(
        "--scheduler",
        "Run as jobs of this scheduler (slurm), from a login node, without Ansible and SSH.",
        "NAME",
    ),
]
_ALLOCATION = Annotated[
    str,
    option(
        "--allocation",
        "With --scheduler: one job for each campaign (default), case or run.",
        "KIND",
    ),
]
_MAX_WAIT = Annotated[
    str,
    option("--max-wait", "With --scheduler: cancel a job that waits longer, such as 2h.", "TIME"),
]
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

    own = {"scheduler": _SCHEDULER, "allocation": _ALLOCATION, "max_wait": _MAX_WAIT, "site": _SITE}
    for each in schedulers().values():
        for name, metavar, text in each.options:
            kind: Any = str if metavar else bool
            help_text = f"With --scheduler: {text[0].lower()}{text[1:]}"
            own.setdefault(name, Annotated[kind, option(f"--{name}", help_text, metavar or None)])
    names = [name for name in own if name not in ("scheduler", "allocation", "max_wait", "site")]

    @functools.wraps(command)
    def wrapped(chosen: Chosen, **values: Any) -> None:
        given = {name: values.pop(name) for name in own}
        if (file := chosen.file) is not None:
            from ..plan.campaign_file import with_scheduler

            told = len(file.overridden)
            file, given = with_scheduler(file, given)
            for line in file.overridden[told:]:
                print_note(line)
            chosen = replace(chosen, file=file)
        options = {name: str(given[name]) for name in names if given[name]}
        scheduled = Scheduled(
            given["scheduler"],
            options,
            *(given[name] for name in ("allocation", "max_wait", "site")),
        )
        if not scheduled.name and (set_ := [name for name in own if given[name]]):
            raise UserError(
                "this option has an effect only with --scheduler",
                where=f"--{set_[0].replace('_', '-')}",
            )
        command(chosen, scheduled=scheduled, **values)

    types = get_type_hints(command, include_extras=True)
    parameters = [
        item.replace(annotation=types[item.name])
        for item in inspect.signature(command).parameters.values()
        if item.name != "scheduled"
    ]
    switches = {
        option[0] for each in schedulers().values() for option in each.options if not option[1]
    }
    defaults: dict[str, Any] = {"site": None} | dict.fromkeys(switches, False)
    parameters += [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=defaults.get(name, ""), annotation=kind
        )
        for name, kind in own.items()
    ]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {item.name: item.annotation for item in parameters}
    del wrapped.__wrapped__
    return wrapped
