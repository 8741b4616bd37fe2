"""The campaign file: all that `run` and `plan` need to know, in YAML.

bench.yml takes it, too, so its keys are the names of that playbook's variables. The fields of
Choice declare those of the choice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field as DataclassField
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictStr, create_model

from ..catalog.entry import read_located, validated
from ..catalog.types import Count, CountOrNone, Entry, Name, Value, entry_error, show
from ..core.errors import UserError
from ..core.files import read_bytes
from ..core.node import CONTAINER_CHOICES
from ..schedulers import schedulers
from . import choice as choices
from .choice import FILE_ONLY, VARIABLES, Choice, option_name, text_of

KEPT = "campaign.yml"  # its name in the directory of a campaign
SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def _with(kind: Any, *more: object) -> Any:
    """A type with validators; mypy knows no types that are made at run time."""
    return Annotated[(kind, *more)]


def _several(kind: Any) -> Any:
    as_list = BeforeValidator(
        lambda value: value if isinstance(value, list | tuple) else [value],
        json_schema_input_type=kind | list[kind],
    )
    return _with(tuple[kind, ...], as_list)


def _one_of(names: Sequence[str]) -> Any:
    return Literal[tuple(names)]


# The type of a value, by what parses its text.
_TYPES: Mapping[Callable[[str, str], Any], Any] = {
    choices.parse_names: _several(StrictStr),
    choices.parse_numbers: _several(Count),
    choices.parse_number: Count,
    choices.parse_number_or_none: CountOrNone,
    choices.parse_text: StrictStr,
    choices.parse_sources: _several(_one_of(choices.SOURCE_NAMES)),
    choices.parse_engine: _one_of(CONTAINER_CHOICES),
    choices.parse_order: _one_of(choices.ORDERS),
    choices.parse_data: _one_of(choices.DATA),
    choices.parse_percentage: StrictStr,
}


def _checked(kind: Any, parse: Callable[[str], object]) -> Any:
    """A type whose values the parser of its text accepts."""

    def check(value: Any) -> Any:
        try:
            parse(text_of(value))
        except UserError as error:
            actual = error.found or show(value)
            raise entry_error(error.problem, error.expected or "another value", actual) from None
        return value

    return _with(kind, AfterValidator(check))


def _choice(item: DataclassField[Any]) -> tuple[Any, str]:
    parse = item.metadata["parse"]
    kind = _checked(_TYPES[parse], lambda text: parse(text, item.name))
    return kind, item.metadata["help"]


def _scheduler_model() -> Any:
    keys: dict[str, tuple[Any, str]] = {
        "allocation": (StrictStr, "One job for the campaign (default), each case, or each run."),
        "max_wait": (_checked(StrictStr, choices.parse_wait), "Cancel a job that waits longer."),
        "site": (StrictStr, "Variables of the nodes, in YAML; a path relative to this file."),
    }
    for each in schedulers().values():
        for name, metavar, text in each.options:
            keys.setdefault(name, (StrictStr if metavar else StrictBool, text))
    return create_model(
        "Scheduler",
        __base__=Entry,
        name=(_one_of([*schedulers()]), Field(description="The scheduler.")),
        **_optional(keys),
    )


def _optional(keys: Mapping[str, tuple[Any, str]]) -> Any:
    return {key: (kind | None, Field(None, description=text)) for key, (kind, text) in keys.items()}


_PARAMETER = _with(str, Field(pattern=r"^[A-Za-z_]\w*$"))
# The type of each key, and what it is.
_KEYS: dict[str, tuple[Any, str]] = {
    **{key: _choice(item) for key, item in VARIABLES.items()},
    "parameters": (
        _with(
            dict[_PARAMETER, _several(Value)],  # type: ignore[valid-type,misc]
            Field(json_schema_extra={"additionalProperties": False}),
        ),
        "Parameters of the workloads, each with one or more values.",
    ),
    "inventory": (
        _several(StrictStr),
        "Ansible inventories, by paths relative to this file, or lists of hosts (node1,node2,)."
        " Default: the one in ansible.cfg.",
    ),
    "scheduler": (_scheduler_model(), "Run as jobs of a scheduler, without an inventory."),
    "limit": (StrictStr, "Use only these hosts (an Ansible pattern)."),
    "wait": (
        _checked(StrictStr, choices.parse_wait),
        "How long to wait for nodes that another campaign uses, such as 90s, 30m or 2h.",
    ),
    "notes": (StrictStr, "What this campaign is for; kept with the results."),
    "campaign_tags": (_several(Name), "Words to find this campaign by; kept with the results."),
}
CampaignModel: type[Entry] = create_model("CampaignModel", __base__=Entry, **_optional(_KEYS))


def choice_fields(without: Collection[str]) -> dict[str, Any]:
    """The keys of a choice and its parameters, as fields of another model of the user's YAML."""
    names = [name for name in (*VARIABLES, "parameters") if name not in without]
    return dict(_optional({name: _KEYS[name] for name in names}))


def schema() -> dict[str, Any]:
    """The JSON Schema of a campaign file, for editors."""
    document = CampaignModel.model_json_schema()
    head = {
        "$schema": SCHEMA,
        "title": "Campaign file of dlperf_runner",
        "description": "What `dlperf run` and `dlperf plan` measure, and on which nodes.",
    }
    return head | {k: v for k, v in document.items() if k not in head}


@dataclass(frozen=True)
class CampaignFile:
    """A campaign file: its content, its values by key, and where each key stands.

    `overridden`: what options of the command line replaced, a sentence each; `given`: its keys."""

    path: Path | None
    content: bytes
    values: Mapping[str, Any]
    place: Callable[[str], str]
    overridden: tuple[str, ...] = ()
    given: frozenset[str] = frozenset()

    @property
    def record(self) -> dict[str, Any]:
        """Its record in campaign.json."""
        tags = list(self.values.get("campaign_tags", ()))
        remarks = {"notes": self.values.get("notes"), "tags": tags}
        return remarks | {"overridden": list(self.overridden)}

    def options(self) -> dict[str, Any]:
        """Its values as the command line has them, by the name of the option."""
        names = {variable: item.name for variable, item in VARIABLES.items()}
        options: dict[str, Any] = {
            names.get(key, key): text_of(value)
            for key, value in self.values.items()
            if key in names or key in ("limit", "wait")
        }
        parameters = self.values.get("parameters", {})
        options["parameter"] = [f"{name}={text_of(value)}" for name, value in parameters.items()]
        options["inventory"] = [self._inventory(name) for name in self.values.get("inventory", ())]
        return options

    def scheduler(self) -> dict[str, Any]:
        """The options of a scheduler as the command line has them."""
        if (chosen := self.values.get("scheduler")) is None:
            return {}
        options = {name: getattr(chosen, name) for name in type(chosen).model_fields}
        if chosen.site:
            options["site"] = self.path.parent / chosen.site if self.path else Path(chosen.site)
        return {"scheduler": options.pop("name"), **options}

    def _inventory(self, name: str) -> str:
        relative = self.path is not None and "," not in name
        return str(self.path.parent / name) if self.path and relative else name


def read_campaign_file(path: Path) -> CampaignFile:
    """Read and check a campaign file. Raises UserError with file, line and key."""
    entry, place = read_located(path, CampaignModel)
    values = {name: getattr(entry, name) for name in entry.model_fields_set}
    stated = {name: value for name, value in values.items() if value is not None}
    return CampaignFile(path, read_bytes(path), stated, place)


@contextmanager
def located(file: CampaignFile | None) -> Iterator[None]:
    """Errors name the line of the file instead of an option that the user did not use."""
    try:
        yield
    except UserError as error:
        option = (error.where or "").partition(" ")[0]
        keys = {option_name(item.name): key for key, item in VARIABLES.items()}
        keys |= {f"--{key}": key for key in ("inventory", "limit", "wait")}
        keys |= {"--parameter": "parameters"}
        keys |= {option_name(name): "scheduler" for name in (file.scheduler() if file else ())}
        key = keys.get(option)
        if file and key is not None and key in file.values and key not in file.given:
            error.where = file.place(key)
        raise


def combined(file: CampaignFile, given: Mapping[str, Any]) -> tuple[CampaignFile, dict[str, Any]]:
    """The file with what the command line overrides in it, and the options that are in force.
    `given`: the options of the command line by name, empty if not given."""
    of_jobs = file.scheduler()
    of_file = file.options() | of_jobs
    keys = {item.name: key for key, item in VARIABLES.items()} | {"parameter": "parameters"}
    keys |= dict.fromkeys(of_jobs, "scheduler")
    in_force = {name: value or of_file.get(name) or value for name, value in given.items()}
    in_force["parameter"] = _with_parameters(of_file["parameter"], given["parameter"] or [])
    overridden = [
        name
        for name, value in given.items()
        if value and of_file.get(name) and not _holds(in_force[name], of_file[name])
    ]
    sentences = tuple(
        f"{option_name(name)} {text_of(given[name])} overrides {file.place(keys.get(name, name))}"
        for name in overridden
    )
    replaced = {name for name, value in given.items() if value and name not in of_jobs}
    replaced = {keys.get(name, name) for name in (*replaced, *overridden)}
    return replace(file, overridden=sentences, given=frozenset(replaced)), in_force


def _holds(value: str | list[str], of_file: str | list[str]) -> bool:
    """True if a value of the file is in force; of parameters and inventories, all of them."""
    return value == of_file or (isinstance(of_file, list) and {*of_file} <= {*value})


def _with_parameters(of_file: Sequence[str], given: Sequence[str]) -> list[str]:
    """Parameters `name=value` of a file and of the command line, which has precedence."""
    names = {text.partition("=")[0] for text in given}
    return [*(text for text in of_file if text.partition("=")[0] not in names), *given]


def of_variables(
    variables: Mapping[str, Any], choice: Choice, inventories: Sequence[str]
) -> CampaignFile | None:
    """A campaign file that says the same as the variables of bench.yml, whose `-e @campaign.yml`
    does not say which file it was. None if no variable is a key of the file."""
    if not set(variables) & set(CampaignModel.model_fields):
        return None
    values = {name: variables[name] for name in FILE_ONLY if variables.get(name)}
    for key, item in VARIABLES.items():
        if variables.get(key):
            value = getattr(choice, item.name)
            values[key] = list(value) if isinstance(value, tuple) else value
    if choice.parameters:
        values["parameters"] = dict(choice.parameters)
    checked = vars(validated(values, CampaignModel, "-e"))
    if checked["scheduler"] is not None:
        raise UserError(
            "bench.yml cannot run on a scheduler",
            where="-e scheduler",
            hint="run the campaign file with `dlperf run FILE` on a login node",
        )
    for name in checked["inventory"] or ():
        if not any(_same_end(name, used) for used in inventories):
            raise UserError(
                "the campaign file names another inventory than this command",
                where="-e inventory",
                expected=name,
                found=", ".join(inventories),
                hint=f"add -i {name}; `dlperf run` does so itself",
            )
    # The strings and lists of Ansible are of its own types, which no YAML represents.
    plain = {name: checked[name] for name in FILE_ONLY if name in values}
    values |= {k: list(value) if isinstance(value, tuple) else value for k, value in plain.items()}
    content = yaml.safe_dump(values, sort_keys=False, allow_unicode=True).encode()
    return CampaignFile(None, content, values, lambda key: f"-e {key}")


def _same_end(name: str, used: str) -> bool:
    """True if a path, relative to an unknown directory, may be this one."""
    parts = [part for part in PurePath(name).parts if part not in (".", "..")]
    return name == used or list(PurePath(used).parts[-len(parts) :]) == parts
