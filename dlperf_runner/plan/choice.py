"""The user's choice of runs: strings from the command line or Ansible, parsed into values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..core.errors import UserError, unknown_name
from ..core.node import CONTAINER_CHOICES

SOURCE_NAMES = ("builtin", "upstream")
ORDERS = ("interleaved", "grouped", "random")
DATA = ("real", "synthetic-dataset", "synthetic")
# An interval of the median needs this many runs (see stats/sequential.py, which checks the number).
LEAST_ADAPTIVE_REPEATS = 5
MOST_ADAPTIVE_REPEATS = 20
_SECONDS = {"s": 1, "m": 60, "h": 3600}


def parse_names(text: str, _: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item for item in map(str.strip, text.split(",")) if item))


def parse_numbers(text: str, name: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(whole_number(item, name) for item in parse_names(text, name)))


def parse_number(text: str, name: str) -> int | None:
    return whole_number(text, name) if text else None


def parse_number_or_none(text: str, name: str) -> int | None:
    return whole_number(text, name, 0) if text else None


def parse_text(text: str, _: str) -> str | None:
    return text or None


def _one_of(text: str, name: str, thing: str, allowed: Sequence[str], otherwise: str = "") -> str:
    """The text. Raises UserError if it is neither empty nor a known one; `otherwise` says how to do
    without."""
    if text and text not in allowed:
        raise unknown_name(thing, text, allowed, option_name(name), otherwise)
    return text


def parse_sources(text: str, name: str) -> tuple[str, ...]:
    return tuple(_one_of(each, name, "source", SOURCE_NAMES) for each in parse_names(text, name))


def parse_engine(text: str, name: str) -> str | None:
    without = "; omit it to run without containers"
    return _one_of(text, name, "container engine", CONTAINER_CHOICES, without) or None


def parse_order(text: str, name: str) -> str:
    return _one_of(text, name, "order", ORDERS) or ORDERS[0]


def parse_data(text: str, name: str) -> str | None:
    return _one_of(text, name, "kind of data", DATA) or None


def parse_percentage(text: str, name: str) -> str | None:
    if text:
        fraction(text, option_name(name))
    return text or None


def whole_number(text: str, name: str, least: int = 1) -> int:
    """The number in the text of an option. Raises UserError if it is none, or below `least`."""
    # No count here needs more than nine digits, and int() is slow with thousands of digits.
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least:
        return int(text)
    raise UserError(
        "invalid number",
        where=option_name(name),
        expected=f"an integer of at least {least}",
        found=repr(text),
    )


def _option(
    metavar: str, text: str, parse: Callable[[str, str], Any], variable: str | None = None
) -> Any:
    """A field of Choice, with its metavar and help text, and the parser of its value. `variable` is
    its name in bench.yml, if Ansible reserves that of the field."""
    metadata = {"metavar": metavar, "help": text, "parse": parse, "variable": variable}
    return field(default=parse("", ""), metadata=metadata)


@dataclass(frozen=True)
class Choice:
    """The user's choice. An empty tuple or None means that the user did not set the option. NEW
    CHOICE: add a field here. It becomes an option of `plan` and `run`, and a variable of
    bench.yml."""

    model: tuple[str, ...] = _option(
        "NAME[,NAME]", "Models, networks of a model, or families of models.", parse_names
    )
    framework: tuple[str, ...] = _option("NAME[,NAME]", "Frameworks.", parse_names)
    workload: tuple[str, ...] = _option("NAME[,NAME]", "Workloads.", parse_names)
    precision: tuple[str, ...] = _option("NAME[,NAME]", "Precisions, such as fp32.", parse_names)
    batch_size: tuple[int, ...] = _option("N[,N]", "Batch sizes per device.", parse_numbers)
    nodes: tuple[int, ...] = _option("N[,N]", "Numbers of nodes.", parse_numbers)
    gpus_per_node: tuple[int, ...] = _option("N[,N]", "Devices used on each node.", parse_numbers)
    matrix: str | None = _option(
        "NAME", "published or smoke; default: dlperf_matrix in the inventory.", parse_text
    )
    repeats: int | None = _option("N", "Runs per case.", parse_number)
    order: str = _option(
        "NAME",
        "interleaved (default): each case once, then each again; grouped: all runs of a case,"
        " then the next case; random.",
        parse_order,
        variable="run_order",
    )
    seed: int | None = _option(
        "N",
        "Seed of the random order; default: a new one, which is recorded.",
        parse_number_or_none,
    )
    until_ci: str | None = _option(
        "PERCENT",
        "Add runs to each case until half the width of its interval is at most this share of the"
        " median (run only).",
        parse_percentage,
    )
    max_repeats: int | None = _option(
        "N",
        f"With --until-ci: at most this many runs per case; default: {MOST_ADAPTIVE_REPEATS}.",
        parse_number,
    )
    source: tuple[str, ...] = _option(
        "NAME[,NAME]",
        "builtin or upstream; default: builtin where it runs on the nodes' stack.",
        parse_sources,
    )
    data: str | None = _option(
        "KIND",
        "real, synthetic-dataset or synthetic; default: the data set in dlperf_datasets, or else"
        " synthetic.",
        parse_data,
    )
    iterations: int | None = _option("N", "Steps per run.", parse_number)
    warmup: int | None = _option(
        "N",
        "Warm-up steps, which are not measured; default: the published proportion.",
        parse_number_or_none,
    )
    container: str | None = _option(
        "ENGINE",
        "Run in containers: docker, podman; in jobs: enroot, apptainer, singularity, podman, auto.",
        parse_engine,
    )
    # Several values of a parameter are separated by commas.
    parameters: dict[str, str] = field(default_factory=dict)


# The fields that are options, in order; and the same by the names of their variables in bench.yml.
OPTIONS = tuple(item for item in fields(Choice) if item.metadata)
VARIABLES = {item.metadata["variable"] or item.name: item for item in OPTIONS}
# The keys of a campaign file that are neither choices nor parameters (see campaign_file).
FILE_ONLY = ("inventory", "scheduler", "limit", "wait", "notes", "campaign_tags")
# Further variables that bench.yml accepts.
FURTHER = ("parameters", "campaign", "resume", *FILE_ONLY)


def parse_choice(options: Mapping[str, object], parameters: Iterable[str] = ()) -> Choice:
    """Parse strings such as `nodes="1,2"`, by the names of the fields of Choice; an empty one means
    that the option is not set. `parameters` are strings `name=value`."""
    texts = {name: str(value).strip() for name, value in options.items() if value is not None}
    values = {
        item.name: item.metadata["parse"](texts.get(item.name, ""), item.name) for item in OPTIONS
    }
    return Choice(**values, parameters=_parameters(parameters))


def choice_of_variables(variables: Mapping[str, Any], prefixes: Iterable[str]) -> Choice:
    """The choice in the extra variables of a playbook (`-e name=value`). A variable that is neither
    an option of the campaign nor begins with one of `prefixes`, as those of roles and of Ansible
    do, would have no effect and raises a UserError."""
    names = [*VARIABLES, *FURTHER]
    beginnings = tuple(f"{prefix}_" for prefix in prefixes)
    for name in variables:
        if name not in names and not name.startswith(beginnings):
            raise unknown_name("option", name, names, f"-e {name}={variables[name]}")
    texts = {
        item.name: text_of(value)
        for variable, item in VARIABLES.items()
        if (value := variables.get(variable)) is not None
    }
    parameters = variables.get("parameters") or {}
    if not isinstance(parameters, Mapping):
        raise UserError(
            "parameters must be an object",
            where="-e parameters",
            expected='-e \'{"parameters": {"image_size": 64}}\'',
            found=repr(parameters),
        )
    return parse_choice(texts, (f"{k}={text_of(value)}" for k, value in parameters.items()))


def text_of(value: object) -> str:
    """A value, or several in a list, as an option has it."""
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def check_choice(choice: Choice) -> None:
    """Raise UserError if options contradict each other, or if one has no effect."""
    if choice.seed is not None and choice.order != "random":
        raise UserError(
            "a seed has an effect only on a random order",
            where=option_name("seed"),
            expected="--order random",
            found=f"--order {choice.order}",
        )
    if choice.max_repeats is None:
        return
    if choice.until_ci is None:
        raise UserError(
            "this option has an effect only with --until-ci", where=option_name("max_repeats")
        )
    least = max(LEAST_ADAPTIVE_REPEATS, choice.repeats or 0)
    if choice.max_repeats < least:
        raise UserError(
            "too few runs for an interval",
            where=option_name("max_repeats"),
            expected=f"at least {least}",
            found=str(choice.max_repeats),
        )


def recorded_choice(record: Mapping[str, Any]) -> Choice:
    """The choice that a plan recorded. Raises UserError on a key that this version lacks."""
    names = {item.name for item in fields(Choice)}
    if unknown := [name for name in record if name not in names]:
        raise UserError(
            "another version of this program recorded this choice", found=", ".join(unknown)
        )
    return Choice(**with_tuples(record))


def with_tuples(record: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a dataclass, from its JSON."""
    return {name: tuple(v) if isinstance(v, list) else v for name, v in record.items()}


def choice_options(choice: Choice) -> dict[str, str]:
    """The choice as strings for `parse_choice`. Options that are not set are omitted."""
    return {
        name: text_of(value)
        for name, value in asdict(choice).items()
        if name != "parameters" and value not in (None, ())
    }


def parse_wait(text: str, where: str = "--wait") -> int:
    """Parse a duration such as 90s, 30m or 2h into seconds. An empty string gives 0."""
    number, unit = text.strip()[:-1], text.strip()[-1:]
    if not unit:
        return 0
    # Nobody needs a duration with more than six digits.
    if unit in _SECONDS and number.isascii() and number.isdigit() and len(number) <= 6:
        return int(number) * _SECONDS[unit]
    raise UserError(
        "invalid duration", where=where, expected="a duration like 90s, 30m or 2h", found=repr(text)
    )


def option_name(name: str) -> str:
    """The command-line option for a field of Choice."""
    return "--" + name.replace("_", "-")


def _parameters(texts: Iterable[str]) -> dict[str, str]:
    parameters: dict[str, str] = {}
    for text in texts:
        if not text:
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier() or not value.isprintable():
            raise UserError(
                "invalid parameter", where="--parameter", expected="name=value", found=repr(text)
            )
        if parameters.setdefault(name.strip(), value) != value:
            raise UserError(
                "the parameter is given twice",
                where="--parameter",
                expected=f"{name}={parameters[name.strip()]},{value} for both values",
                found=repr(text),
            )
    return parameters


_PERCENT = re.compile(r"(\d+(?:\.\d+)?) ?%", re.ASCII)


def fraction(text: str, where: str, *, above_0: bool = False) -> float:
    """The percentage as a fraction: 0.03 for `3%`. Raises UserError unless it is below 100 %, and
    above 0 % if it must be."""
    match = _PERCENT.fullmatch(text.strip())
    value = float(match[1]) / 100 if match else 1.0
    if not value < 1 or (above_0 and not value):
        expected = f"a percentage{' above 0 and' if above_0 else ''} below 100, like 3%"
        raise UserError("invalid percentage", where=where, expected=expected, found=text)
    return value
