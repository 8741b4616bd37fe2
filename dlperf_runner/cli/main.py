"""The command line. Only the modules of `cli` print and exit; `options` has the shared options.

Exit statuses: 0 success; 1 a run failed or is missing; 2 invalid input or usage, with a message on
standard error; 130 interrupted, 143 and 129 stopped by TERM and HUP. Each command imports what it
needs, and this module imports only typer, so that `--help` is fast.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from .. import __version__
from ..core.errors import Stopped, UserError
from . import playbooks
from .bundle import bundle
from .compare import compare
from .completion import completes
from .doctor import doctor
from .history import history
from .options import AsJson, Inventories, Limit, Wait, chooses, print_json
from .report import report
from .results import print_summary, status, summarize

if TYPE_CHECKING:
    from ..catalog.reader import Catalog
    from ..core.node import Node
    from ..plan.choice import Choice


# Shells can complete only one-word commands, so not `python -m dlperf_runner`.
AS_COMMAND = Path(sys.argv[0]).name == "dlperf"


# Prefixes of playbook variables that are not options of a campaign. Role names are also prefixes.
PREFIXES = ("ansible", "dlperf", "bench", "provision", "preflight")
# The order of use: commands for servers, then for results, then for the catalogue.
ORDER = (
    *("lab", "init", "bundle", "doctor", "provision", "plan", "run", "bench", "status"),
    *("decommission", "summarize", "compare", "report", "history", "list", "source"),
    *("container-command", "seal"),
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


app.command(context_settings=playbooks.PASSES_ON)(playbooks.bench)
app.command()(bundle)
app.command()(compare)
app.command(context_settings=playbooks.PASSES_ON)(playbooks.decommission)
app.command()(doctor)
app.command()(history)
app.command()(playbooks.init)
app.command(context_settings=playbooks.PASSES_ON)(playbooks.lab)
app.command(context_settings=playbooks.PASSES_ON)(playbooks.provision)
app.command()(report)
app.command()(status)
app.command()(summarize)


def main() -> None:
    app(prog_name="dlperf" if AS_COMMAND else "python -m dlperf_runner")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"dlperf_runner {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    pass


@app.command()
@chooses
def plan(
    choice: Choice,
    inventory: Inventories = None,
    limit: Limit = "",
    campaign: Annotated[
        str,
        typer.Option("--campaign", help="Create this campaign directory.", metavar="DIR"),
    ] = "",
    resume: Annotated[
        str,
        typer.Option(
            "--resume", help="Show only the unfinished runs of this campaign.", metavar="DIR"
        ),
    ] = "",
    wait: Wait = "",
    variables: Annotated[
        str, typer.Option("--variables", hidden=True, help="Extra variables of bench.yml, JSON.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show the commands that would run on each host, without running them."""
    from ..campaign import directory as campaigns
    from ..core.paths import project
    from ..plan.choice import choice_of_variables, parse_wait
    from ..plan.make import make_plan, plan_document
    from ..report.plan_text import render

    wait_s = parse_wait(wait)
    if variables:
        roles = (path.name for path in (project() / "roles").iterdir())
        choice = choice_of_variables(json.loads(variables), (*PREFIXES, *roles))
    if resume:
        document = campaigns.remaining_plan(Path(resume))
    else:
        catalog, nodes = _catalog(), _nodes(inventory, limit)
        runs = make_plan(choice, catalog, nodes)
        if campaign:
            document = campaigns.create_campaign(Path(campaign), choice, nodes, runs)
        else:
            document = plan_document(choice, nodes, runs)
    directory = resume or campaign
    if directory:
        where = str(Path(directory).resolve())
        document = {**document, "campaign": where, "wait_s": wait_s}
    if as_json:
        print_json(document)
    else:
        print(render(document), end="")


@app.command()
@chooses
def run(
    choice: Choice,
    inventory: Inventories = None,
    limit: Limit = "",
    campaign: Annotated[
        str,
        typer.Option("--campaign", help="The directory of the new campaign.", metavar="DIR"),
    ] = "",
    resume: Annotated[
        str, typer.Option("--resume", help="Resume this campaign.", metavar="DIR")
    ] = "",
    wait: Wait = "",
) -> None:
    """Run the benchmarks with bench.yml, show a progress bar, and print the results."""
    from ..campaign import directory as campaigns
    from ..campaign.execute import execute
    from ..plan.choice import parse_wait
    from ..plan.make import make_plan

    parse_wait(wait)
    if resume:
        directory = Path(resume).resolve()
        if not campaigns.remaining_plan(directory)["runs"]:
            raise typer.Exit(print_summary([directory]))
    else:
        nodes = _nodes(inventory, limit)
        directory = Path(campaign or campaigns.new_directory()).resolve()
        runs = make_plan(choice, _catalog(), nodes)
        campaigns.create_campaign(directory, choice, nodes, runs)
    inventories = [str(Path(i).resolve()) if "," not in i else i for i in inventory or []]
    problems = execute(directory, inventories, wait)
    status = print_summary([directory])
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    raise typer.Exit(1 if campaigns.remaining_plan(directory)["runs"] else status)


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
    from ..commands import listing

    catalog = _catalog()
    if as_json:
        print_json(listing.document(catalog, what))
    else:
        print(listing.render(catalog, what, _width()), end="")


@app.command("source")
def prepare(
    workload: Annotated[str, typer.Option("--workload", help="The workload.", metavar="NAME")],
    source: Annotated[
        str, typer.Option("--source", help="builtin or upstream.", metavar="NAME")
    ] = "builtin",
    mirror: Annotated[
        str,
        typer.Option(
            "--mirror",
            help="URL or directory of git mirrors; default: https://github.com.",
            metavar="MIRROR",
            show_default=False,
        ),
    ] = "",
    environment: Annotated[
        str,
        typer.Option(
            "--environment",
            help="The environment that runs use; default: the framework's own.",
            metavar="NAME",
            show_default=False,
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make the tar with a workload's patched source. Nodes unpack this tar."""
    from dataclasses import asdict

    from ..plan.sources import prepare_source

    prepared = prepare_source(
        _catalog(),
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


@app.command(hidden=True)
def seal(
    campaign: Annotated[Path, typer.Argument(help="The directory of the campaign.", metavar="DIR")],
    run: Annotated[str, typer.Argument(help="The ID of the run.", metavar="ID")],
) -> None:
    """Add the files of a run that has ended to the campaign's manifest, for bench.yml."""
    from ..campaign.manifest import seal_run

    seal_run(campaign, run)


def _catalog() -> Catalog:
    from ..catalog.reader import load_catalog

    return load_catalog()


def _nodes(inventories: Sequence[str] | None, limit: str) -> tuple[Node, ...]:
    from ..plan.inventory import read_inventory

    return read_inventory(inventories or (), limit or None)


def _width() -> int:
    """The width of the terminal in columns. 80 without a terminal."""
    return shutil.get_terminal_size((80, 24)).columns
