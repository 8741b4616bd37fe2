"""The command line: the only module that prints, exits or imports typer.

Exit statuses: 0 all is well; 1 a run failed or is missing; 2 bad input or usage, told on
standard error; 130 interrupted. Everything but typer is imported by the command that needs it,
so that `--help` is instant.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.core import TyperGroup

from . import __version__
from .errors import UserError

if TYPE_CHECKING:
    from .catalog import Catalog
    from .choice import Choice
    from .inventory import Node


class _Commands(TyperGroup):
    """Turns bad input into a message and an exit status, for every command alike."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            print(f"error: {error}", file=sys.stderr)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    name="dlperf_runner",
    help="Run published deep-learning training benchmarks on a cluster, and compare.",
    epilog="Exit status: 0 all is well, 1 a run failed or is missing, 2 bad input or usage, "
    "130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    app(prog_name="python -m dlperf_runner")


# The options that choose what runs: name, its metavar, and what it says. An empty text means
# "not given" everywhere: Ansible passes options on that nobody set.
_CHOICE = (
    ("model", "NAME[,NAME]", "Models, their networks, or families of models."),
    ("framework", "NAME[,NAME]", "Frameworks."),
    ("workload", "NAME[,NAME]", "Workloads."),
    ("precision", "NAME[,NAME]", "Precisions, such as fp32."),
    ("batch_size", "N[,N]", "Batch sizes per device."),
    ("nodes", "N[,N]", "Numbers of nodes."),
    ("gpus_per_node", "N[,N]", "Devices used on each node."),
    ("matrix", "NAME", "published or smoke; default: the inventory's dlperf_matrix."),
    ("repeats", "N", "Runs of each case."),
    ("source", "NAME[,NAME]", "builtin (default) or upstream."),
    ("iterations", "N", "Steps of each run."),
    ("warmup", "N", "First steps, which are not measured; default: in the published proportion."),
)
ParameterTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter", "-p", help="A parameter of the workload; may be repeated.", metavar="K=V"
    ),
]
Inventories = Annotated[
    list[str] | None,
    typer.Option(
        "--inventory",
        "-i",
        help="Inventory, as Ansible takes it; may be repeated. Default: as in ansible.cfg.",
        metavar="PATH",
    ),
]
Limit = Annotated[
    str,
    typer.Option(
        "--limit", "-l", help="Only these hosts, as Ansible takes it.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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


def _chooses(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `_CHOICE`; it gets the Choice as its first argument."""

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        from .choice import parse_choice

        texts = {name: values.pop(name) for name, _, _ in _CHOICE}
        command(parse_choice(texts, values.pop("parameter") or []), **values)

    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default="",
            annotation=Annotated[
                str,
                typer.Option(
                    f"--{name.replace('_', '-')}", metavar=metavar, help=text, show_default=False
                ),
            ],
        )
        for name, metavar, text in _CHOICE
    ]
    # Choice is imported for type checkers only; no option is of that type.
    types = get_type_hints(command, localns={"Choice": object}, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    parameter = inspect.Parameter(
        "parameter", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ParameterTexts
    )
    keywords = [
        item.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[item.name])
        for item in own
    ]
    signature = inspect.Signature([*options, parameter, *keywords])
    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    # Typer reads the types from here; those of the wrapped function would hide the new options.
    wrapped.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
    del wrapped.__wrapped__
    return wrapped


@app.command()
@_chooses
def plan(
    choice: Choice,
    inventory: Inventories = None,
    limit: Limit = "",
    campaign: Annotated[
        str,
        typer.Option("--campaign", help="Make this campaign directory.", metavar="DIR"),
    ] = "",
    resume: Annotated[
        str,
        typer.Option("--resume", help="Only what is not done yet of this campaign.", metavar="DIR"),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Show every command that would run, per host, and run nothing."""
    from . import campaign as campaigns
    from .plan import make_plan, plan_document

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
        document = {**document, "campaign": str(Path(directory).resolve())}
    if as_json:
        _print_json(document)
    else:
        _print_plan(document)


@app.command()
@_chooses
def run(
    choice: Choice,
    inventory: Inventories = None,
    limit: Limit = "",
    campaign: Annotated[
        str,
        typer.Option("--campaign", help="Directory of the new campaign.", metavar="DIR"),
    ] = "",
    resume: Annotated[
        str, typer.Option("--resume", help="Go on with this campaign.", metavar="DIR")
    ] = "",
) -> None:
    """Run the benchmarks: bench.yml with a progress bar, and the table at its end."""
    from . import campaign as campaigns
    from .choice import choice_options
    from .execute import execute
    from .plan import make_plan

    variables: dict[str, Any]
    if resume:
        directory = Path(resume).resolve()
        if not campaigns.remaining_plan(directory)["runs"]:
            _print_summary(directory, None)
            return
        variables = {"resume": str(directory)}
    else:
        # Bad input is told here and now; bench.yml makes the same plan again.
        make_plan(choice, _catalog(), _nodes(inventory, limit))
        directory = Path(campaign or campaigns.new_directory()).resolve()
        campaigns.refuse_taken(directory)
        variables = {**choice_options(choice), "parameters": choice.parameters}
    if limit:
        variables["limit"] = limit
    inventories = [str(Path(i).resolve()) if "," not in i else i for i in inventory or []]
    problems = execute(variables, inventories, directory)
    _print_summary(directory, None)
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if campaigns.remaining_plan(directory)["runs"]:
        raise typer.Exit(1)


@app.command()
def status(
    directory: Annotated[Path, typer.Argument(help="A campaign's directory.", metavar="DIR")],
) -> None:
    """Say what became of each run of a campaign; exit status 1 where one is not done."""
    from . import campaign as campaigns

    records = campaigns.read_records(directory)
    left = [record for record in records if not campaigns.is_done(directory, record)]
    for record in left:
        outcome = record["outcome"]
        message = f": {outcome['message']}" if outcome.get("message") else ""
        print(f"{record['id']}  {outcome['status']}{message}")
    print(f"{len(records) - len(left)} of {len(records)} runs done")
    if left:
        raise typer.Exit(1)


@app.command("list")
def list_catalogue(as_json: AsJson = False) -> None:
    """Show the workloads, frameworks and stacks of the catalogue."""
    catalog = _catalog()
    if as_json:
        _print_json(
            {
                "workloads": _dumped(catalog.workloads),
                "frameworks": _dumped(catalog.frameworks),
                "stacks": _dumped(catalog.stacks),
            }
        )
        return
    _print_table(
        "Workloads",
        ("name", "framework", "model=", "precisions", "sources", "title"),
        [
            (
                workload.name,
                workload.framework,
                ", ".join(workload.model_names),
                ", ".join(workload.precisions),
                ", ".join(name for name, _ in workload.sources.items()),
                workload.title,
            )
            for workload in catalog.workloads.values()
        ],
    )
    _print_table(
        "Matrices",
        ("workload", "matrix", "topologies", "batches", "iterations", "repeats"),
        [
            (
                workload.name,
                name,
                " ".join(str(topology) for topology in matrix.topologies),
                ", ".join(
                    f"{entry.variant} {entry.precision} b{entry.batch_size_per_device}".strip()
                    for entry in matrix.batches
                ),
                f"{rule.total_steps} ({rule.warmup_steps} warm-up)",
                str(matrix.repeats),
            )
            for workload in catalog.workloads.values()
            for name, matrix in workload.matrices.items()
            for rule in [workload.rule_of(name)]
        ],
    )
    _print_table(
        "Frameworks",
        ("name", "stacks", "title"),
        [
            (framework.name, ", ".join(framework.environments), framework.title)
            for framework in catalog.frameworks.values()
        ],
    )
    _print_table(
        "Stacks",
        ("name", "accelerator", "suites", "title"),
        [
            (stack.name, stack.accelerator, ", ".join(stack.suites), stack.title)
            for stack in catalog.stacks.values()
        ],
    )


@app.command("source")
def prepare(
    workload: Annotated[str, typer.Option("--workload", help="A workload.", metavar="NAME")],
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
            help="The one that its runs use; default: the framework's own.",
            metavar="NAME",
            show_default=False,
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make the tar of a workload's source, patched as declared, that nodes unpack."""
    from dataclasses import asdict

    from .sources import prepare_source

    prepared = prepare_source(
        _catalog(),
        workload,
        source or "builtin",
        mirror or None,
        environment=environment or None,
    )
    if as_json:
        _print_json({**asdict(prepared), "path": str(prepared.path)})
    else:
        print(prepared.path)


@app.command()
def summarize(
    directory: Annotated[
        Path, typer.Argument(help="A campaign, or a tree of published logs.", metavar="DIR")
    ],
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", help="Where the results go; default: DIR.", metavar="DIR"),
    ] = None,
) -> None:
    """Compute speeds, speed-ups and efficiencies from logs, and print the table."""
    if not _print_summary(directory, output_dir):
        raise typer.Exit(2)


@app.command()
def bundle(
    stack: Annotated[str, typer.Option("--stack", help="A stack.", metavar="NAME")] = "cpu",
    suite: Annotated[
        str,
        typer.Option(
            "--suite",
            help="The nodes' Debian release; default: the stack's first.",
            metavar="NAME",
            show_default=False,
        ),
    ] = "",
    framework: Annotated[
        str,
        typer.Option(
            "--framework",
            help="Only the environments of these; default: of all that have one for the stack.",
            metavar="NAME[,NAME]",
            show_default=False,
        ),
    ] = "",
    python: Annotated[
        str,
        typer.Option(
            "--python",
            help="Version of the nodes' python_env_interpreter; default: of the release's Python.",
            metavar="X.Y",
            show_default=False,
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", help="Default: .cache/mirror/<stack>-<suite> of the project.", metavar="DIR"
        ),
    ] = None,
    debian_mirror: Annotated[
        str,
        typer.Option(
            "--debian-mirror",
            help="Where packages come from; default: where this machine has its own.",
            metavar="URL",
            show_default=False,
        ),
    ] = "",
    debian_security_mirror: Annotated[
        str,
        typer.Option(
            "--debian-security-mirror",
            help="Their security updates; default: beside --debian-mirror.",
            metavar="URL",
            show_default=False,
        ),
    ] = "",
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Look for newer packages in the archive.")
    ] = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="Only show what would be in it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make the mirror folder from which nodes without a way out install."""
    from .bundle import listing, make
    from .bundle.mirror import choose
    from .choice import parse_choice

    suite = suite or next(iter(_catalog().stack(stack, "--stack").suites), "")
    needs, settings = choose(
        stack,
        suite,
        output,
        debian_mirror or None,
        debian_security_mirror or None,
        refresh,
        parse_choice({"framework": framework}).framework,
        python,
    )
    for skipped in needs.skipped:
        print(f"left out: {skipped}", file=sys.stderr)
    if list_only:
        columns = ("kind", "name", "wanted by")
        rows = listing(needs)
        if as_json:
            _print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            _print_table(f"{stack} on {suite}", columns, rows)
        return
    made = make(needs, settings, say=lambda text: print(text, file=sys.stderr, flush=True))
    if as_json:
        _print_json(made.manifest.to_json())
        return
    print(
        f"{settings.output}: {_count(len(made.manifest.files), 'file')},"
        f" {len(made.fetched)} fetched, {len(made.removed)} removed"
    )


def _print_summary(directory: Path, output_dir: Path | None) -> bool:
    """Print the table and where it is kept; False where a log could not be believed."""
    from .summarize import summarize as summarize_directory

    result = summarize_directory(directory, output_dir)
    print(result.text)
    for path in result.paths:
        here = path.is_absolute() and path.is_relative_to(Path.cwd())
        print(path.relative_to(Path.cwd()) if here else path)
    for problem in result.problems:
        print(f"error: {problem}", file=sys.stderr)
    return not result.problems


def _catalog() -> Catalog:
    from .catalog import load_catalog

    return load_catalog()


def _nodes(inventories: Sequence[str] | None, limit: str) -> tuple[Node, ...]:
    from .inventory import read_inventory

    return read_inventory(inventories or (), limit or None)


def _dumped(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: entry.model_dump(mode="json", exclude_none=True) for name, entry in entries.items()
    }


def _print_json(document: object) -> None:
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _print_plan(document: Mapping[str, Any]) -> None:
    """Every command, per host, grouped by case; repeats with the same commands once."""
    for case, runs in itertools.groupby(document["runs"], lambda run: run["case"]):
        print(f"{case}: {_described(grouped := list(runs))}")
        for commands, same in itertools.groupby(grouped, lambda run: run["commands"]):
            repeats = [run["repeat"] for run in same]
            label = f"r{repeats[0]}" + (f"..r{repeats[-1]}" if len(repeats) > 1 else "")
            for command in commands:
                print(f"  {label} on {command['host']}: {_shell_line(command)}")
        print()
    cases = len({run["case"] for run in document["runs"]})
    print(f"{_count(cases, 'case')}, {_count(len(document['runs']), 'run')}; nothing was run")
    if "campaign" in document:
        print(f"campaign {document['campaign']}")


def _described(runs: Sequence[Mapping[str, Any]]) -> str:
    first = runs[0]
    return (
        f"{_count(first['nodes'], 'node')} with {_count(first['gpus_per_node'], 'device')}"
        f" ({', '.join(first['hosts'])}), {first['precision']}, batch"
        f" {first['batch_size_per_device']} per device, {first['total_steps']} iterations of which"
        f" {first['warmup_steps']} are warm-up, {_count(len(runs), 'run')}"
    )


def _shell_line(command: Mapping[str, Any]) -> str:
    """The command as it could be pasted into a shell; it is never run through one."""
    variables = [f"{name}={value}" for name, value in command["env"].items()]
    line = shlex.join([*(["env", *variables] if variables else []), *command["argv"]])
    return f"cd {shlex.quote(command['cwd'])} && {line}" if command["cwd"] else line


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table by rich on a terminal; aligned plain text elsewhere, which tools can read."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table

        table = Table(*header, title=title, title_justify="left", box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    print(title)
    for row in (header, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join(cells).rstrip())
    print()
