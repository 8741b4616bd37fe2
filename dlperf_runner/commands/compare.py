"""The command `compare`: compares a campaign with published results or with another campaign."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..core.errors import UserError
from ..core.files import write_result
from ..options import (
    ABOUT_LOGS,
    UNSAID,
    AboutLogs,
    exit_with,
    print_json,
    print_note,
    screen,
    states,
)
from ..plan.choice import fraction

if TYPE_CHECKING:
    from ..results.load import Results

ORDER = 160


_FILTERS = ("model", "framework", "precision")
HELP = f"""
{UNSAID} | --model NAME: The model; with --published: show only this.
{UNSAID} | --framework NAME: The framework; with --published: show only this.
{UNSAID} | --precision NAME: The precision; with --published: show only this.
directories [DIR] [DIR]: One campaign, to compare with published results; or two, the older one
  first.
--baseline NAME: Use this saved baseline instead of the first DIR.
--save-baseline NAME: Save the speeds in DIR as this baseline.
--replace: Replace an existing baseline with this name.
--published: Show publications with different results side by side.
everything --all: Show all publications of a case, not only the closest.
--assume-published: Assume that conditions not recorded in the logs are as published.
--fail-if-slower PERCENT: Exit with status 1 if a case is slower by more than this, or is undecided.
--allow-different NAME: Compare cases although they differ in this, such as accelerator, data or
  image_size; parameters means all of them. May be repeated.
--allow-undecided: Do not exit with status 1 for undecided cases. Too few runs still do.
--junit FILE: Also write JUnit XML.
"""


@states
def command(
    about: AboutLogs,
    context: typer.Context,
    directories: list[Path] | None = None,
    baseline: str = "",
    save_baseline: str = "",
    replace: bool = False,
    published: bool = False,
    everything: bool = False,
    condition: list[str] | None = None,
    assume_published: bool = False,
    fail_if_slower: str = "",
    allow_different: list[str] | None = None,
    allow_undecided: bool = False,
    junit: Path | None = None,
    as_json: bool = False,
) -> None:
    """Compare a campaign with published results, or with another campaign.

    Example: dlperf compare examples/logs --condition accelerator=V100-SXM2-16GB"""
    given = directories or []
    mode = _mode(given, baseline, save_baseline, published)
    _check_options(mode, context)
    limit = fraction(fail_if_slower, "--fail-if-slower") if fail_if_slower else None
    if published:
        _publications({name: about.texts[name] for name in _FILTERS}, everything, as_json)
        return
    loaded = list(_loaded(given or [Path("results/latest")], about))
    problems = [problem for results in loaded for problem in results.problems]
    for results in loaded:
        if results.is_incomplete:
            print_note(
                f"{results.directory}: a run failed, is missing or is invalid, and is not compared;"
                " `dlperf summarize` names it"
            )
    if save_baseline:
        exit_with(problems)
        _save(loaded[0], save_baseline, replace=replace)
        return
    if len(loaded) == 2 or baseline:
        cases, rendered, suite = _two_campaigns(loaded, baseline, limit, allow_different or [])
    else:
        from ..results.statement import with_conditions

        stated = with_conditions(condition or [], about.statements(), loaded[0].directory)
        ways = (everything, assume_published)
        cases, rendered, suite = _with_published(loaded[0], stated, limit, ways)
    status = _finish(cases, rendered, suite, limit, allow_undecided, junit, as_json)
    exit_with(problems, status)


def _save(results: Results, name: str, *, replace: bool) -> None:
    from ..campaign.directory import name_of
    from ..compare.campaigns import save_baseline

    campaign = name_of(results.directory)
    print(save_baseline(results.frame, name, campaign, results.logs, replace=replace))


def _mode(given: Sequence[Path], baseline: str, save: str, published: bool) -> str:
    """The kind of comparison: a key of _OPTIONS."""
    wanted = 0 if published else 1 if baseline or save else 2
    if (
        len(given) > wanted
        or (baseline and not given)
        or (baseline and save)
        or (published and (baseline or save))
    ):
        names = {0: "no directory", 1: "one directory, the campaign", 2: "one or two directories"}
        raise UserError(
            "these arguments cannot be combined",
            where="compare",
            expected=names[wanted],
            found=" ".join(map(str, given)) or "none",
            hint="use only one of --published, --baseline and --save-baseline",
        )
    if published:
        return "--published"
    if save:
        return "--save-baseline"
    return "two campaigns" if baseline or len(given) == 2 else "one campaign"


# The options that each kind of comparison supports. Others are errors, never silently ignored.
_GATE = ("--fail-if-slower", "--allow-undecided", "--junit")
_LOGS = (*ABOUT_LOGS, "--mapping")
_OPTIONS = {
    "--published": ("--model", "--framework", "--precision", "--all", "--json"),
    "--save-baseline": ("--replace", *_LOGS),
    "two campaigns": (*_GATE, "--allow-different", *_LOGS, "--json"),
    "one campaign": (*_GATE, *_LOGS, "--all", "--condition", "--assume-published", "--json"),
}


def _check_options(mode: str, context: typer.Context) -> None:
    """Raise UserError at an option without effect; those that choose the kind are never one."""
    always = ("--baseline", "--save-baseline", "--published")
    for each in context.command.params:
        name = each.opts[0]
        is_given = each.param_type_name == "option" and context.params[str(each.name)]
        if is_given and name not in (*_OPTIONS[mode], *always):
            fitting = [place for place, names in _OPTIONS.items() if name in names]
            raise UserError(
                f"this option has no effect with {mode}",
                where=name,
                expected=f"this option only with {' or '.join(fitting)}",
            )


def _loaded(directories: Sequence[Path], about: AboutLogs) -> Iterator[Results]:
    from ..options import reading_logs
    from ..results.discovery import of_each
    from ..results.load import catalogued, load_results

    models = catalogued(directories)
    for directory, statements in of_each(directories, about.statements()):
        yield load_results(directory, models, statements=statements, progress=reading_logs)


def _publications(wanted: Mapping[str, Any], everything: bool, as_json: bool) -> None:
    from ..catalog.published_numbers import as_record
    from ..compare.published import side_by_side
    from ..report.compare_text import render_publications

    groups = side_by_side(**wanted, every=everything)
    if not as_json:
        print(render_publications(groups, screen()), end="")
        return
    names = ("framework", "model", "precision", "topology", "spread", "factors")
    document = [
        {name: getattr(group, name) for name in names}
        | {"numbers": [as_record(number) for number in group.numbers]}
        for group in groups
    ]
    print_json({"publications": document})


def _with_published(
    results: Results, texts: Sequence[str], limit: float | None, ways: tuple[bool, bool]
) -> tuple[list[dict[str, Any]], str, str]:
    from ..catalog.published_numbers import load_rule
    from ..compare.conditions import parse_stated, read_conditions
    from ..compare.published import compare_published
    from ..report.compare_text import render_published

    rule = load_rule()
    conditions = read_conditions(results.counted, results.models, rule, parse_stated(texts))
    every, assume = ways
    cases = compare_published(
        results.frame, conditions, rule=rule, every=every, assume=assume, limit=limit
    )
    rendered = render_published(cases, rule.tolerance, screen(), limit, every=every)
    return cases, rendered, f"{results.directory} and published results"


def _two_campaigns(
    loaded: Sequence[Results], baseline: str, limit: float | None, allowed: Sequence[str]
) -> tuple[list[dict[str, Any]], str, str]:
    from ..compare.campaigns import compare_campaigns, without_effect
    from ..compare.spread import read_spreads, refuse_copies
    from ..report.compare_text import render_campaigns
    from ..results.repeats import about_other_starts

    if baseline:
        from ..compare.campaigns import logs_of_baseline, read_baseline

        first, name = read_baseline(baseline), f"baseline {baseline}"
        logs = logs_of_baseline(baseline)
    else:
        first, name, logs = loaded[0].frame, str(loaded[0].directory), loaded[0].logs
    second = loaded[-1]
    names = (name, str(second.directory))
    cases = compare_campaigns(first, second.frame, limit, allowed, read_spreads())
    refuse_copies(zip(names, (logs, second.logs), strict=True))
    for note in [] if baseline else about_other_starts(loaded[0].counted, second.counted):
        print_note(note)
    for condition in without_effect(first, second.frame, allowed):
        print_note(f"--allow-different {condition}: has no effect, because no pair differs in it")
    return cases, render_campaigns(cases, names, limit, screen()), " and ".join(names)


def _finish(
    cases: list[dict[str, Any]],
    rendered: str,
    suite: str,
    limit: float | None,
    allow_undecided: bool,
    junit: Path | None,
    as_json: bool,
) -> int:
    """Print or write the comparison. Returns the exit status."""
    from ..compare.verdicts import ALONE, FAILED, TOO_FEW, UNDECIDED, together
    from ..report.compare_text import junit as junit_text

    status = 0
    if all(case["verdict"] in ALONE for case in cases):
        status = 1
        print_note("no case was compared")
    elif limit is not None:
        # A check without a result, because of too few runs or of no case at all, has not passed.
        bad = {FAILED, TOO_FEW, *(() if allow_undecided else (UNDECIDED,))}
        verdicts = {case["limit_verdict"] for case in cases}
        status = int(not any(verdicts) or not bad.isdisjoint(verdicts))
    if junit is not None:
        write_result(junit, junit_text(suite, cases, allow_undecided))
    if as_json:
        pooled = together(cases) if cases and "log_ratio" in cases[0] else None
        document = {"compared": suite, "limit": limit, "status": status, "cases": cases}
        print_json({**document, "together": pooled and asdict(pooled)})
    else:
        print(rendered, end="")
    return status
