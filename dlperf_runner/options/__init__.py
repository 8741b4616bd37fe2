"""The options that several commands share, their completion in a shell, and how commands print."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_origin, get_type_hints

import typer

from ..core.errors import UserError, by_cause
from ..core.files import json_text
from ..core.printable import printable_lines

if TYPE_CHECKING:
    from ..plan.campaign_file import CampaignFile
    from ..plan.choice import Choice
    from ..report.terminal import Screen
    from ..results.statement import Statements

Item = TypeVar("Item")


def reading_logs(items: Iterable[Item], total: int) -> Iterable[Item]:
    """The items, with a progress bar for reading logs."""
    return followed(items, total, "reading logs")


def followed(items: Iterable[Item], total: int, doing: str) -> Iterable[Item]:
    """The items, with a progress bar that shows the activity and the count."""
    return _shown(items, total, doing) if sys.stderr.isatty() else items


def _shown(items: Iterable[Item], total: int, doing: str) -> Iterator[Item]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn(doing),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total)


def completes(kind: str | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion function for one value of this option, or of the given ones, or for several
    separated by commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        try:
            names = sorted(set(_names(kind) if isinstance(kind, str) else kind()))
        except Exception:  # a shell cannot show errors during completion
            return []
        return [before + comma + name for name in names if name.startswith(last)]

    return complete


def _names(kind: str) -> Iterable[str]:
    from ..campaign.job_files import ALLOCATIONS
    from ..catalog.published_numbers import load_reports
    from ..catalog.reader import load_catalog
    from ..compare.campaigns import BASELINES
    from ..compare.conditions import STATED
    from ..control.rounds import POLICIES
    from ..core.node import CONTAINER_CHOICES
    from ..plan.choice import DATA, ORDERS, SOURCE_NAMES
    from ..report.labels import LANGUAGES
    from ..schedulers import schedulers

    catalog = load_catalog()
    workloads = catalog.workloads.values()
    names: dict[str, Iterable[str]] = {
        "model": (name for workload in workloads for name in workload.model_names),
        "framework": catalog.frameworks,
        "workload": catalog.workloads,
        "stack": catalog.stacks,
        "precision": (
            batch.precision for w in workloads for m in w.matrices.values() for batch in m.batches
        ),
        "matrix": (name for workload in workloads for name in workload.matrices),
        "to": (report.name for report in load_reports()),
        "baseline": (path.stem for path in BASELINES.glob("*.json")),
        "condition": (f"{name}=" for name in STATED),
        "source": SOURCE_NAMES,
        "container": CONTAINER_CHOICES,
        "order": ORDERS,
        "data": DATA,
        "scheduler": schedulers(),
        "allocation": ALLOCATIONS,
        "on-node-loss": POLICIES,
        "lang": LANGUAGES,
        "unit": ("samples", "tokens", "steps"),
        "rates-are-per": ("world", "node", "device", "step"),
        "step-time-unit": ("s", "ms", "us"),
    }
    return names[kind]


# Options whose values shells complete.
COMPLETED = (
    *("model", "framework", "workload", "stack", "precision", "matrix", "to", "baseline"),
    *("condition", "source", "container", "order", "data", "scheduler", "allocation"),
    *("on-node-loss", "lang", "unit", "rates-are-per", "step-time-unit"),
)


def option(name: str, text: str, metavar: str | None = None, group: str = "", **more: Any) -> Any:
    """An option with its help text, the name of its value, and the title above it in `--help`.
    `name` may be two: `--limit -l`."""
    if (kind := name.split()[0].lstrip("-")) in COMPLETED:
        more = {"autocompletion": completes(kind)} | more
    panel = group or None
    return typer.Option(*name.split(), help=text, metavar=metavar, rich_help_panel=panel, **more)


# Titles in `--help`.
_RUNS, _NODES, JOBS = "Which runs", "Which nodes", "As jobs of a scheduler"
UNSAID, _LINES = "What neither the logs nor their names say", "Logs of any program"


LATEST = Path("results/latest")
# The texts of parameters that have the same name in several commands, as `described` takes them.
SHARED = f"""
as_json --json: Print JSON.
directory [DIR]: The directory of a campaign.
file [FILE]: A campaign file: choices, inventory and notes in YAML; options override it.
{_RUNS} | --parameter -p K=V[,V]: A parameter of the workload, with one or more values; may be
  repeated.
{_NODES} | --inventory -i PATH: Ansible inventory; may be repeated. Default: the one in ansible.cfg.
{_NODES} | --limit -l PATTERN: Use only these hosts.
{_NODES} | --wait TIME: How long to wait for nodes that another campaign uses, and before each run
  for nodes on which others compute, such as 90s, 30m or 2h; default: fail at once.
{JOBS} | --scheduler NAME: This scheduler (slurm), from a login node, without Ansible and SSH.
{JOBS} | --allocation KIND: One job for each campaign (default), case or run.
{JOBS} | --max-wait TIME: Cancel a job that waits longer, such as 2h.
{JOBS} | --site FILE: A YAML file of the inventory's variables for the cluster's nodes.
{UNSAID} | --model NAME: The model.
{UNSAID} | --framework NAME: The framework.
{UNSAID} | --topology 4n8g: Nodes and devices per node.
{UNSAID} | --batch-size N: The batch size per device.
{UNSAID} | --precision NAME: The precision.
{UNSAID} | --accelerator NAME: The accelerator.
{UNSAID} | --total-steps N: The number of steps.
{UNSAID} | --warmup-steps N: The number of warm-up steps.
{UNSAID} | --first-step N: The step of the first line with a rate, counted from 1.
{UNSAID} | --log-every N: The steps from one line with a rate to the next.
{UNSAID} | --global-batch-size N: The batch size of all devices in a step.
{UNSAID} | --sequence-length N: The tokens of a sample.
{UNSAID} | --accumulation-steps N: The batches that a step accumulates.
{UNSAID} | --rank N: The rank whose lines count.
{UNSAID} | --mapping FILE: What ran, by the paths of the logs; default: mapping.yml in their
  directory.
{_LINES} | --regex REGEX: The lines with a rate: a regular expression with the groups step, and rate
  or step_time.
{_LINES} | --unit UNIT: What the rates of --regex count: samples, tokens or steps.
{_LINES} | --rates-are-per WHOSE: Whose rates --regex gives: world, node, device or step.
{_LINES} | --step-time-unit UNIT: The unit of the group step_time: s, ms, us, or s/100 of 100 steps.
--condition K=V: A condition not recorded in the logs, such as data=real; may be repeated.
--ask-become-pass -K: Ask once for the password that sudo wants on the nodes.
--extra-vars -e NAME=VALUE|@FILE: A variable for all nodes, as ansible-playbook takes it; may be
  repeated.
"""


@dataclass(frozen=True)
class Chosen:
    """The user's choice of runs and nodes. `given`: the options of Choice that are set,
    by name. `options`: all that are in force, with those of further parameters."""

    choice: Choice
    inventories: Sequence[str]
    limit: str
    wait: str
    file: CampaignFile | None
    given: frozenset[str]
    options: Mapping[str, Any]


def chooses(
    command: Callable[..., None],
    *,
    further: Sequence[inspect.Parameter] = (),
    without: Collection[str] = (),
) -> Callable[..., None]:
    """Add the options of Choice and of the nodes to a command, and those that are `further`. The
    command gets Chosen as first argument. `without`: the fields of Choice that it decides."""
    from ..plan.choice import OPTIONS, option_name

    options = [
        text_option(
            item.name,
            option_name(item.name),
            item.metadata["help"],
            item.metadata["metavar"],
            _RUNS,
        )
        for item in OPTIONS
        if item.name not in without
    ]
    nodes = [
        keyword("parameter", list[str] | None),
        keyword("inventory", list[str] | None),
        keyword("limit", str, ""),
        keyword("wait", str, ""),
    ]
    return with_options(command, [*options, *nodes], _chosen, further)


def _chosen(given: Mapping[str, Any]) -> Chosen:
    """The choice by the options, and by a campaign file, if one of them is its path."""
    from ..plan.choice import OPTIONS, parse_choice

    file = None
    if path := given.get("file"):
        from ..plan.campaign_file import combined, read_campaign_file

        file, given = combined(read_campaign_file(path), given)
        for line in file.overridden:
            print_note(line)
    texts = {item.name: given.get(item.name, "") for item in OPTIONS}
    choice = parse_choice(texts, given["parameter"] or [])
    nodes = (given["inventory"] or (), given["limit"], given["wait"])
    return Chosen(choice, *nodes, file, frozenset(name for name in texts if texts[name]), given)


@dataclass(frozen=True)
class AboutLogs:
    """The user's statements about logs: texts by field, empty if not stated, and a mapping."""

    texts: Mapping[str, str]
    mapping: Path | None

    def statements(self) -> Statements:
        from ..results.statement import statements_of

        return statements_of(self.texts, self.mapping)


# What can be stated.
_STATED = (
    *("model", "framework", "topology", "batch_size", "precision", "accelerator", "total_steps"),
    *("warmup_steps", "first_step", "log_every", "global_batch_size", "sequence_length"),
    *("accumulation_steps", "rank", "regex", "unit", "rates_are_per", "step_time_unit"),
)
ABOUT_LOGS = tuple(f"--{name.replace('_', '-')}" for name in _STATED)


def states(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that state what neither a log nor its name says. The command gets AboutLogs
    as first argument."""

    def about(values: Mapping[str, Any]) -> AboutLogs:
        return AboutLogs({name: values[name] for name in _STATED}, values["mapping"])

    options = [keyword(name, str, "") for name in _STATED]
    return with_options(command, [*options, keyword("mapping", Path | None)], about)


def keyword(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def text_option(
    name: str, shown: str, text: str, metavar: str, group: str = "", **more: Any
) -> inspect.Parameter:
    return keyword(name, Annotated[str, option(shown, text, metavar, group, **more)], "")


def with_options(
    command: Callable[..., None],
    options: Sequence[inspect.Parameter],
    first: Callable[[Mapping[str, Any]], object] = dict,
    last: Sequence[inspect.Parameter] = (),
) -> Callable[..., None]:
    """The command with these options in place of its first parameter, which `first` makes of their
    values. Those in `last` come after the command's own."""

    def wrapped(**values: Any) -> None:
        given = {item.name: values.pop(item.name) for item in (*options, *last)}
        command(first(given), **values)

    types = get_type_hints(command, include_extras=True)
    _, *others = inspect.signature(command).parameters.values()
    others = [keyword(item.name, types[item.name], item.default) for item in others]
    parameters = [*options, *others, *last]
    wrapped.__doc__ = command.__doc__
    return _with_types(wrapped, parameters)


def _with_types(
    command: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    # Typer reads both.
    vars(command)["__signature__"] = inspect.Signature(parameters)
    command.__annotations__ = {item.name: item.annotation for item in parameters}
    return command


_ROW = re.compile(
    r"^(?:([^:|\n]+) \| )?([a-z_]+ )?((?:--?[A-Za-z][\w-]* ?)*)(.*?): (.*(?:\n .*)*)", re.MULTILINE
)


def described(command: Callable[..., None], rows: str) -> Callable[..., None]:
    """The command with the help texts of its parameters, which are in rows that go on in indented
    lines: `GROUP | --option -o VALUE: text`. The parameter stands before its option if it has
    another name; one without an option is an argument. What has no text takes that of SHARED."""
    types = get_type_hints(command, include_extras=True)
    for group, word, shown, value, lines in _ROW.findall(f"{rows}\n{SHARED}"):
        name = word.strip() or shown.split()[0].lstrip("-").replace("-", "_")
        if name in types and get_origin(types[name]) is not Annotated:
            text = " ".join(lines.split())
            argument = typer.Argument(help=text, metavar=value)
            types[name] = Annotated[
                types[name], option(shown, text, value or None, group) if shown else argument
            ]
    signature = inspect.signature(command)
    items = [item.replace(annotation=types[item.name]) for item in signature.parameters.values()]
    return _with_types(command, items)


def refuse_given(given: Mapping[str, object], problem: str) -> None:
    """Raise a UserError at the first of these options that was given."""
    for name, value in given.items():
        if value:
            raise UserError(problem, where=f"--{name.replace('_', '-')}")


def print_json(document: object) -> None:
    print(json_text(document), end="")


def print_errors(problems: Iterable[object]) -> None:
    """Print the problems, those with the same cause as one."""
    for problem in by_cause([*problems]):
        print(f"error: {problem}", file=sys.stderr)


def exit_with(problems: Collection[object], is_negative: object = False) -> None:
    """Print the problems. Exit with status 2 if there are any, with 1 if the result is negative."""
    print_errors(problems)
    if problems or is_negative:
        raise typer.Exit(2 if problems else 1)


def print_note(line: str) -> None:
    print(printable_lines(line), file=sys.stderr)


def screen() -> Screen:
    """The terminal or pipe that standard output is."""
    from ..report.terminal import Screen

    return Screen.from_stream(sys.stdout)
