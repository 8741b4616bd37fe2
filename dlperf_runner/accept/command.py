"""The command `accept`: verdicts on each part of a cluster, and a page that others can check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..compare.verdicts import PASSED
from ..core.errors import UserError
from ..options import (
    AsJson,
    Inventories,
    Wait,
    exit_with,
    option,
    print_errors,
    print_json,
    print_note,
    reading_logs,
    refuse_given,
    screen,
)
from ..options.scheduler import Scheduled, schedules

ORDER = 175
_MEASURED = Path("results/acceptance")


_Suite = Annotated[Path, typer.Argument(help="The targets of the parts, in YAML.", metavar="SUITE")]
_Results = Annotated[Path | None, option("--results", "Judge these logs; run nothing.", "DIR")]
_Measure = Annotated[
    Path | None,
    option(
        "--measure",
        "Run what the suite lacks, in campaigns below this folder, and judge by them; repeat it"
        " to go on. Default: results/acceptance.",
        "DIR",
    ),
]
_Page = Annotated[Path | None, option("--page", "Write the page to this folder.", "DIR")]
_Sign = Annotated[Path | None, option("--sign", "With --page: sign it with this SSH key.", "KEY")]
_Check = Annotated[Path | None, option("--check", "Compare a page with the logs.", "DIR")]
_AllowedSigners = Annotated[
    Path | None,
    option("--allowed-signers", "With --check: require a signature by one of these.", "FILE"),
]


@schedules
def command(
    jobs: Scheduled,
    suite_file: _Suite,
    results: _Results = None,
    measure: _Measure = None,
    inventory: Inventories = None,
    wait: Wait = "",
    page: _Page = None,
    sign: _Sign = None,
    check: _Check = None,
    allowed_signers: _AllowedSigners = None,
    as_json: AsJson = False,
) -> None:
    """Accept a cluster: measure each node, pair, scalable unit, and all of it until it is decided
    whether it reaches its target, with known error rates. The exit status is 1 unless all parts
    passed.

    Example: dlperf accept suite.yml --results results/rack7 --page acceptance"""
    from ..control.rounds import Execution
    from . import page as pages
    from .judge import judge, load
    from .runs import inventories_of
    from .runs import measure as run_missing
    from .suite import read_suite

    _refuse_useless(page, sign, check, allowed_signers)
    if results is not None:
        of_runs = {"measure": measure, "inventory": inventory, "wait": wait}
        refuse_given({**of_runs, "scheduler": jobs.name}, "nothing is run with --results")
    elif check is not None:
        raise UserError("a page is checked by logs", where="--check", hint="add --results DIR")
    refuse_given({"nodelist": jobs.options.get("nodelist")}, "the suite names the nodes")
    suite = read_suite(suite_file, pages.recorded(check)["suite"] if check else None)
    failures: list[str] = []
    if results is None:
        results = measure or _MEASURED
        where = Execution(inventories_of(suite, inventory, jobs), wait, print_note)
        failures = run_missing(suite, results, where, jobs)
    loaded = load(results, reading_logs)
    document = judge(suite, results, loaded)
    problems = [problem for each in loaded for problem in each.problems]
    if check is not None:
        differing, notes = pages.check(check, document, allowed_signers)
        if file := suite.suite.inventory:
            notes.append(f"nodes as the page has them, not {file}: {', '.join(suite.nodes)}")
        for note in notes:
            print_note(note)
        print("\n".join(differing) or f"{check}: as computed from the suite and the logs")
        exit_with(problems, differing)
        return
    written = pages.write(document, page, sign) if page is not None else None
    if as_json:
        print_json(document)
    else:
        print(pages.render(document, screen()), end="")
        if written:
            print(written)
    print_errors(failures)
    exit_with(problems, document["verdict"] != PASSED)


def _refuse_useless(
    page: Path | None, sign: Path | None, check: Path | None, allowed: Path | None
) -> None:
    """Raise UserError at an option that has no effect."""
    if page is None:
        refuse_given({"sign": sign}, "this option has an effect only with --page")
    if check is not None:
        refuse_given({"page": page}, "a page is either written or checked")
    else:
        refuse_given({"allowed_signers": allowed}, "this option has an effect only with --check")
