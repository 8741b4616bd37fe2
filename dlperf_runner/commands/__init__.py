"""The commands: one file each, or `command.py` in the folder of a feature.

A module is a command if it has a function `command`; its options are the parameters, and `HELP` has
their texts. `ORDER` is its place in `--help`, `SETTINGS` may have further settings of typer's. Only
commands print and exit.

Exit statuses: 0 success; 1 a run failed or is missing; 2 invalid input or usage, with a message on
standard error; 130 interrupted, 143 and 129 stopped by TERM and HUP.
"""

from __future__ import annotations

import codecs
import io
import json
import locale
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from .. import __version__
from ..core.errors import Stopped, UserError
from ..core.extras import lacks
from ..core.paths import OWN_CATALOG
from ..options import described, option

_PACKAGE = Path(__file__).parents[1]


@cache
def _built(name: str, path: Path) -> Any:
    """The command in a module, as typer builds it; None if the module is none."""
    parts = path.relative_to(_PACKAGE).with_suffix("").parts
    module = import_module(".".join([_PACKAGE.name, *parts]))
    if not hasattr(module, "command"):
        return None
    single = typer.Typer(add_completion=False, rich_markup_mode=None)
    add = single.command(name, cls=_Command, **getattr(module, "SETTINGS", {}))
    add(described(module.command, getattr(module, "HELP", "")))
    command: Any = typer.main.get_command(single)
    # The whole first paragraph. Typer would cut it after about 40 characters.
    command.short_help = " ".join((command.help or "").split("\n\n")[0].split())
    command.order = module.ORDER
    return command


class _Command(TyperCommand):
    """Shows its options in groups, and arguments as their metavars say."""

    def collect_usage_pieces(self, _: Any) -> list[str]:
        arguments = [one for one in self.params if one.param_type_name == "argument"]
        return [*(one.metavar or "" for one in arguments), "[OPTIONS]"]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if record := one.get_help_record(ctx):
                is_argument = one.param_type_name == "argument"
                group = "Arguments" if is_argument else getattr(one, "rich_help_panel", "")
                name, text = (one.metavar if is_argument else record[0]), record[1]
                words = text.replace("x>=", "at least ").replace("<=x<=", " to ")
                groups.setdefault(group or "Options", []).append((name or "", words))
        for title, rows in groups.items():
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


class _CommandsInFiles(Mapping[str, Any]):
    """The commands by name, in the order of `--help`. Each is imported when it is needed."""

    def __init__(self) -> None:
        files = {path.stem: path for path in _PACKAGE.glob("commands/[!_]*.py")}
        files |= {path.parent.name: path for path in _PACKAGE.glob("*/command.py")}
        self._files = {name.replace("_", "-"): path for name, path in files.items()}

    def __getitem__(self, name: str) -> Any:
        if (command := _built(name, self._files[name])) is None:
            raise KeyError(name)
        return command

    def __iter__(self) -> Iterator[str]:
        commands = {name: command for name in self._files if (command := self.get(name))}
        return iter(sorted(commands, key=lambda name: commands[name].order))

    def __len__(self) -> int:
        return len(list(self))


def _discard_output() -> None:
    """Drop what cannot be written, which Python would try once more at its end."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _errors_as_messages() -> Iterator[None]:
    try:
        try:
            yield
        except UserError:
            try:
                sys.stdout.flush()
            except OSError:  # the message matters more
                _discard_output()
            raise
        finally:
            sys.stdout.flush()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except ModuleNotFoundError as error:
        if (lacking := lacks(error.name)) is None:
            raise
        print(f"error: {lacking}", file=sys.stderr)
        raise typer.Exit(2) from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has exited
            raise
        # Errors that no module reports in more detail: a full disk, a missing permission.
        where = f"{error.filename}: " if error.filename else "output: "
        print(f"error: {where}{error.strerror or error}", file=sys.stderr)
        _discard_output()
        raise typer.Exit(2) from None
    except Stopped as stopped:
        name = signal.Signals(stopped.number).name
        print(f"stopped by {name}; {stopped.hint}", file=sys.stderr)
        raise typer.Exit(128 + stopped.number) from None
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise typer.Exit(130) from None


class _Commands(TyperGroup):
    """Has all commands. Converts their errors to messages and exit statuses."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _CommandsInFiles()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take --catalog behind the command, too."""
        rest, named, words = [], [], iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word == "--catalog":
                named += [word, *islice(words, 1)]
                if len(named) % 2:
                    ctx.fail("Option '--catalog' requires an argument.")
            elif word.startswith("--catalog="):
                named += word.split("=", 1)
            else:
                rest.append(word)
        with _errors_as_messages():  # --help and --version print here
            return super().parse_args(ctx, [*named, *rest])

    def invoke(self, ctx: Any) -> Any:
        with _errors_as_messages():
            return super().invoke(ctx)


app = typer.Typer(
    cls=_Commands,
    name="dlperf_runner",
    help="Run published deep-learning training benchmarks on a cluster and compare the results.",
    epilog="Exit status: 0 success, 1 a run failed or is missing, 2 invalid input or usage, "
    "130 interrupted, 143 and 129 stopped by TERM and HUP.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _escaped(error: UnicodeError) -> tuple[str | bytes, int]:
    """A letter that standard output cannot write, as JSON escapes it; a byte of a file's name that
    is no letter, as it is."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letter, rest = error.object[error.start], error.start + 1
    if "\udc80" <= letter <= "\udcff":
        return bytes([ord(letter) - 0xDC00]), rest
    return json.dumps(letter)[1:-1], rest


def main() -> None:
    codecs.register_error("escaped", _escaped)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="escaped")
    if locale.getlocale()[1] != "UTF-8":
        os.environ["LC_ALL"] = "C.UTF-8"  # Ansible refuses others, such as LC_ALL=C
    app(prog_name="dlperf")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dlperf_runner {__version__}")
        raise typer.Exit


def _use_catalog(folder: Path | None) -> None:
    """Name the folder in the environment, so that playbooks and other processes know it, too."""
    if folder is not None:
        os.environ[OWN_CATALOG] = str(folder.absolute())


@app.callback()
def _options(
    version: Annotated[
        bool, option("--version", "Print the version.", callback=_show_version, is_eager=True)
    ] = False,
    catalog: Annotated[
        Path | None,
        option(
            "--catalog",
            "Your own folder of the catalogue, beside the built-in one; for every command.",
            "DIR",
            envvar=OWN_CATALOG,
            callback=_use_catalog,
        ),
    ] = None,
) -> None:
    pass
