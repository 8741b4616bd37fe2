"""The command line. Only the modules of `cli` print and exit; `options` has the shared options.

Exit statuses: 0 success; 1 a run failed or is missing; 2 invalid input or usage, with a message on
standard error; 130 interrupted, 143 and 129 stopped by TERM and HUP. Each command imports what it
needs, and this module imports only typer, so that `--help` is fast.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..core.errors import Stopped, UserError
from ..core.paths import OWN_CATALOG
from .completion import completes
from .options import AsJson, option, print_json, screen

# Shells can complete only one-word commands, so not `python -m dlperf_runner`.
AS_COMMAND = Path(sys.argv[0]).name == "dlperf"


# The order of use: commands for servers, then for results, then for the catalogue.
ORDER = (
    *("lab", "init", "bundle", "doctor", "provision", "env", "plan", "run", "bench", "status"),
    *("attach", "stop", "live", "decommission"),
    *("summarize", "compare", "aa", "report", "history", "export", "archive", "mlperf"),
    "bandwidth",
    *("list", "init-workload", "source", "container-command"),
)


class _Commands(TyperGroup):
    """Converts the errors of all commands to messages and exit statuses. Lists the commands in
    the order of ORDER."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and not command.short_help:
            # Use the whole first paragraph. Typer would cut it after about 40 characters.
            command.short_help = " ".join((command.help or "").split("\n\n")[0].split())
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take --catalog behind the command, too."""
        rest, own, words = [], [], iter(args)
        for word in words:
            if word == "--":
                rest += [word, *words]
            elif word == "--catalog":
                own += [word, *islice(words, 1)]
                if len(own) % 2:
                    ctx.fail("Option '--catalog' requires an argument.")
            elif word.startswith("--catalog="):
                own += word.split("=", 1)
            else:
                rest.append(word)
        return super().parse_args(ctx, [*own, *rest])

    def invoke(self, ctx: Any) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError):  # the reader, such as `head`, has exited
                raise
            # Errors that no module reports in more detail: a full disk, a missing permission.
            where = f"{error.filename}: " if error.filename else "output: "
            print(f"error: {where}{error.strerror or error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except Stopped as stopped:
            name = signal.Signals(stopped.number).name
            print(f"stopped by {name}; {stopped.hint}", file=sys.stderr)
            raise typer.Exit(128 + stopped.number) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    name="dlperf_runner",
    help="Run published deep-learning training benchmarks on a cluster and compare the results.",
    epilog="Exit status: 0 success, 1 a run failed or is missing, 2 invalid input or usage, "
    "130 interrupted, 143 and 129 stopped by TERM and HUP.",
    no_args_is_help=True,
    add_completion=AS_COMMAND,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


# The commands that other modules of this package have.
_MODULES = {
    **{name: name for name in ("aa", "bandwidth", "bundle", "compare", "doctor", "env")},
    **{name: name for name in ("export", "history", "init-workload", "live", "mlperf", "plan")},
    **{name: name for name in ("report", "run")},
    **dict.fromkeys(("bench", "decommission", "init", "lab", "provision"), "playbooks"),
    **dict.fromkeys(("archive", "attach", "status", "stop", "summarize"), "results"),
}


def _add_commands(called: Sequence[str]) -> None:
    """Add the called command; without one, all. To import all takes as long as to read 70 logs."""
    for name in _MODULES if set(ORDER).isdisjoint(called) else _MODULES.keys() & called:
        module = import_module(f".{_MODULES[name].replace('-', '_')}", __package__)
        settings = getattr(module, "SETTINGS", {}).get(name)
        app.command(name, context_settings=settings)(getattr(module, name.replace("-", "_")))


_add_commands(sys.argv[1:2])


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
    app.registered_commands = [
        command for command in app.registered_commands if [command.name] == sys.argv[1:2]
    ] or app.registered_commands
    app(prog_name="dlperf" if AS_COMMAND else "python -m dlperf_runner")


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


@app.command("list")
def list_catalogue(
    what: Annotated[
        str,
        typer.Argument(
            help="Show only workloads, matrices, frameworks, stacks or published.",
            metavar="[WHAT]",
            show_default=False,
            autocompletion=completes("catalogue"),
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the workloads, matrices, frameworks, stacks and published numbers of the catalogue."""
    from ..catalog.reader import load_catalog
    from ..commands import listing

    if as_json:
        print_json(listing.document(load_catalog(), what))
    else:
        print(listing.render(load_catalog(), what, screen().prose), end="")


@app.command("source")
def prepare(
    workload: Annotated[str, option("--workload", "The workload.", "NAME")],
    source: Annotated[str, option("--source", "builtin or upstream.", "NAME")] = "builtin",
    mirror: Annotated[
        str,
        option(
            "--mirror", "URL or directory of git mirrors; default: https://github.com.", "MIRROR"
        ),
    ] = "",
    environment: Annotated[
        str,
        option(
            "--environment", "The environment that runs use; default: the framework's own.", "NAME"
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make the tar with a workload's patched source. Nodes unpack this tar."""
    from dataclasses import asdict

    from ..catalog.reader import load_catalog
    from ..plan.sources import prepare_source

    prepared = prepare_source(
        load_catalog(),
        workload,
        source or "builtin",
        mirror or None,
        environment=environment or None,
    )
    if as_json:
        print_json({**asdict(prepared), "path": str(prepared.path)})
    else:
        print(prepared.path)


@app.command("container-command", hidden=True)
def container_command() -> None:
    """Print the command that tests an image, for the role container. Reads and prints JSON."""
    from dataclasses import asdict

    from ..plan.containers import proof_command

    print_json(asdict(proof_command(**json.load(sys.stdin))))
