"""What the user chose to run: texts from the command line or from Ansible, made into values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from ..core.errors import UserError
from ..core.node import ENGINES

SOURCE_NAMES = ("builtin", "upstream")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True)
class Choice:
    """What the user chose; an empty tuple or None means that nothing was said."""

    model: tuple[str, ...] = ()
    framework: tuple[str, ...] = ()
    workload: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    batch_size: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    gpus_per_node: tuple[int, ...] = ()
    matrix: str | None = None
    repeats: int | None = None
    source: tuple[str, ...] = ()
    iterations: int | None = None
    warmup: int | None = None
    container: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)


def parse_choice(options: Mapping[str, object], parameters: Iterable[str] = ()) -> Choice:
    """A choice from texts such as `nodes="1,2"`; an empty text means that nothing was said.

    `options` has the names of Choice's fields. `parameters` are texts `name=value`.
    """
    texts = {name: str(value).strip() for name, value in options.items() if value is not None}
    source = _names(texts, "source")
    for name in source:
        if name not in SOURCE_NAMES:
            raise UserError(
                f"unknown source {name!r}",
                where=option_name("source"),
                expected=f"one of {', '.join(SOURCE_NAMES)}",
            )
    container = texts.get("container") or None
    if container not in (None, *ENGINES):
        raise UserError(
            f"unknown container engine {container!r}",
            where=option_name("container"),
            expected=f"one of {', '.join(ENGINES)}; none for no container",
        )
    return Choice(
        model=_names(texts, "model"),
        framework=_names(texts, "framework"),
        workload=_names(texts, "workload"),
        precision=_names(texts, "precision"),
        batch_size=_numbers(texts, "batch_size"),
        nodes=_numbers(texts, "nodes"),
        gpus_per_node=_numbers(texts, "gpus_per_node"),
        matrix=texts.get("matrix") or None,
        repeats=_number(texts, "repeats"),
        source=source,
        iterations=_number(texts, "iterations"),
        warmup=_number(texts, "warmup", least=0),
        container=container,
        parameters=_parameters(parameters),
    )


def choice_options(choice: Choice) -> dict[str, str]:
    """The choice as texts that `parse_choice` takes, what was not said left out."""
    options: dict[str, str] = {}
    for name, value in asdict(choice).items():
        if name == "parameters" or value is None or value == ():
            continue
        is_list = isinstance(value, list | tuple)
        options[name] = ",".join(str(item) for item in value) if is_list else str(value)
    return options


def parse_wait(text: str) -> int:
    """Seconds of a text such as 90s, 30m or 2h; 0 of an empty one."""
    number, unit = text.strip()[:-1], text.strip()[-1:]
    if not unit:
        return 0
    # More than six digits are no time that anybody waits.
    if unit in _SECONDS and number.isascii() and number.isdigit() and len(number) <= 6:
        return int(number) * _SECONDS[unit]
    raise UserError(
        "this is no time to wait", where="--wait", expected="90s, 30m or 2h", found=repr(text)
    )


def option_name(name: str) -> str:
    """The command line's name of a field of Choice."""
    return "--" + name.replace("_", "-")


def _names(texts: Mapping[str, str], name: str) -> tuple[str, ...]:
    items = (item.strip() for item in texts.get(name, "").split(","))
    return tuple(dict.fromkeys(item for item in items if item))


def _numbers(texts: Mapping[str, str], name: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_whole(item, name, 1) for item in _names(texts, name)))


def _number(texts: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = texts.get(name)
    return _whole(text, name, least) if text else None


def _whole(text: str, name: str, least: int) -> int:
    # More than nine digits is no count of anything here, and int() of thousands is slow.
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least:
        return int(text)
    raise UserError(
        "this is no such number",
        where=option_name(name),
        expected=f"whole numbers of at least {least}",
        found=repr(text),
    )


def _parameters(texts: Iterable[str]) -> dict[str, str]:
    parameters = {}
    for text in texts:
        if not text:
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier() or not value.isprintable():
            raise UserError(
                "this is no parameter", where="--parameter", expected="name=value", found=repr(text)
            )
        parameters[name.strip()] = value
    return parameters
