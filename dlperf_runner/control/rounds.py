"""Runs a campaign in rounds.

If a run lost a node, another round retries it, or a revision of the plan removes the runs on that
node. With `until_ci`, a case whose interval is too wide gets another run in each round, in a new
revision of the plan. The rounds end when no case needs a run, or when a run is not done.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign import lock
from ..campaign.directory import (
    UNREACHABLE,
    add_revision,
    kept_by,
    missing_runs,
    read_plan,
    read_record,
    record_rest,
    remaining_plan,
)
from ..campaign.manifest import seal
from ..core.errors import UserError, unknown_name
from ..core.frame import SAMPLES_PER_SECOND, records
from ..core.identity import CaseKey, case_key, parameters_text
from ..core.lists import counted
from ..core.node import Node
from ..plan.choice import (
    MOST_ADAPTIVE_REPEATS,
    fraction,
    option_name,
    parse_wait,
    recorded_choice,
    with_tuples,
)
from ..plan.make import make_plan, ordered
from ..stats.sequential import relative_half_width, wanted_repeats

if TYPE_CHECKING:
    import pandas as pd

    from ..catalog.reader import Catalog
    from ..catalog.workload import Workload
    from ..core.case import Run
    from ..plan.choice import Choice


# The columns of the frame that identify a case of a plan; each run of the plan has them, too.
PLANNED = (
    *("workload", "model", "source", "precision", "batch_size_per_device"),
    *("nodes", "gpus_per_node"),
)


RETRY, SHRINK, STOP = POLICIES = ("retry", "shrink", "stop")
RETRIES = 2
RETRY_AFTER_S = 30.0  # a node that was restarted needs some time


@dataclass(frozen=True)
class Policy:
    """The rules for ending a campaign before its plan, and for the loss of a node."""

    stop_after: str = ""
    on_node_loss: str = RETRY

    def __post_init__(self) -> None:
        parse_wait(self.stop_after, "--stop-after")
        if self.on_node_loss not in POLICIES:
            raise unknown_name("policy", self.on_node_loss, POLICIES, "--on-node-loss")

    def stop_at(self) -> float | None:
        """The time of the monotonic clock at which a campaign that begins now stops, if it does."""
        limit = parse_wait(self.stop_after, "--stop-after")
        return time.monotonic() + limit if limit else None


AS_PLANNED = Policy()


@dataclass(frozen=True)
class Execution:
    """The settings of all campaigns that one command starts: the inventories (paths, or lists of
    hosts such as `node1,`), how long to wait for their nodes, and who gets lines about it."""

    inventories: Sequence[str]
    wait: str
    say: Callable[[str], None]


def execute_campaign(
    directory: Path, place: Execution, policy: Policy = AS_PLANNED, *, show_text: bool = False
) -> list[str]:
    """`run_rounds` with bench.yml, as the only controller of the campaign. `show_text`: print
    Ansible's text, too."""
    from ..campaign.execute import execute

    absolute = [name if "," in name else str(Path(name).resolve()) for name in place.inventories]
    stop_at = policy.stop_at()
    stops = policy.on_node_loss == STOP
    with lock.held(directory):
        record_rest(directory)
        if (log := directory / "ansible.log").is_file():
            seal(directory, log.name, [log])
        return run_rounds(
            directory,
            lambda: execute(
                *(directory, absolute, place.wait, stop_at),
                stop_on_node_loss=stops,
                show_text=show_text,
            ),
            place.say,
            policy,
            stop_at,
        )


def run_rounds(
    directory: Path,
    execute: Callable[[], list[str]],
    say: Callable[[str], None],
    policy: Policy = AS_PLANNED,
    stop_at: float | None = None,
) -> list[str]:
    """Execute the remaining runs of a campaign, and those of each revision that this adds. Returns
    the errors outside the runs. `say` gets a line about each revision, each retry and each case
    that stays too wide."""
    problems: list[str] = []
    retries = 0
    remained = len(remaining_plan(directory)["runs"])
    while True:
        errors: list[str] = []
        if remaining_plan(directory)["runs"]:
            try:
                errors = execute()
            except UserError as error:
                if not retries:
                    raise
                errors = [str(error)]  # the node is still lost
        problems += errors
        if stop_at is not None and time.monotonic() >= stop_at:
            return problems
        if left := remaining_plan(directory)["runs"]:
            lost = lost_nodes(directory, left, errors)
            # A long campaign may lose nodes often, as long as runs are done in between.
            retries = retries if len(left) == remained else 0
            remained = len(left)
            if lost and policy.on_node_loss == RETRY and retries < RETRIES:
                retries += 1
                say(
                    f"{', '.join(lost)} lost: retry {retries} of {RETRIES} in {RETRY_AFTER_S:.0f} s"
                )
                time.sleep(RETRY_AFTER_S)
                continue
            if lost and policy.on_node_loss == SHRINK:
                say(_shrink(directory, left, lost))
                continue
            return problems
        plan = read_plan(directory)
        choice = recorded_choice(plan["choice"])
        if choice.until_ci is None or missing_runs(directory):
            return problems
        values = values_by_case(directory, plan)
        wanted = dict(_wanted(plan, values, choice))
        if not wanted:
            for line in _too_wide(values, choice):
                say(line)
            return problems
        say(_add_revision(directory, plan, wanted, values))


def lost_nodes(
    directory: Path, runs: Sequence[Mapping[str, Any]], problems: Sequence[str]
) -> list[str]:
    """The nodes of these runs that the last attempt could not reach; or its jobs that lost one."""
    lost = {line.partition(UNREACHABLE)[0] for line in problems if UNREACHABLE in line}
    for run in runs:
        lost |= set(read_record(directory, run)["outcome"].get("lost") or ())
    planned = [host for run in runs for host in run["hosts"]]
    if any(host.startswith("@") for host in planned):  # a scheduler chooses the nodes
        return sorted(lost)
    return [host for host in dict.fromkeys(planned) if host in lost]


def _shrink(directory: Path, runs: Sequence[Mapping[str, Any]], lost: Sequence[str]) -> str:
    removed = [run for run in runs if not set(lost).isdisjoint(run["hosts"])]
    reasons = {run["case"]: {"lost_nodes": list(lost)} for run in removed}
    path = add_revision(directory, [], reasons, removed=[run["id"] for run in removed])
    return f"{path.name}: {counted(len(removed), 'run')} removed, because {', '.join(lost)} is lost"


def values_by_case(directory: Path, plan: Mapping[str, Any]) -> dict[str, list[float]]:
    """The throughput of the valid runs of each case of the plan."""
    from ..results.load import load_results

    results = load_results(directory)
    workloads = {model.workload.name: model.workload for model in results.models}
    return case_samples(results.frame, plan, workloads)


def case_samples(
    frame: pd.DataFrame, plan: Mapping[str, Any], workloads: Mapping[str, Workload]
) -> dict[str, list[float]]:
    """The same, from the long frame. If a case has runs in several environments, which are never
    pooled, its values are those in the environment of its last run."""
    valid = frame[frame["valid"] & (frame["metric"] == SAMPLES_PER_SECOND)]
    samples: dict[CaseKey, list[float]] = {}
    newest: dict[tuple[object, ...], tuple[int, CaseKey]] = {}
    for row in records(valid):
        key, planned = case_key(row), _planned(row, row["parameters"])
        samples.setdefault(key, []).append(row["value"])
        newest[planned] = max(
            newest.get(planned, (0, key)), (row["repeat"], key), key=itemgetter(0)
        )
    cases = {run["case"]: _planned(run, _measured(run, workloads)) for run in plan["runs"]}
    return {case: samples[newest[key][1]] if key in newest else [] for case, key in cases.items()}


def _planned(row: Mapping[Any, Any], parameters: str) -> tuple[object, ...]:
    """The key that a row of the frame shares with a run of the plan."""
    return *(row[name] for name in PLANNED), parameters


def _measured(run: Mapping[str, Any], workloads: Mapping[str, Workload]) -> str:
    workload = workloads[run["workload"]]
    return parameters_text(workload.measured_parameters(run["source"], run["parameters"]))


def _wanted(
    plan: Mapping[str, Any], values: Mapping[str, Sequence[float]], choice: Choice
) -> Iterator[tuple[str, int]]:
    half_width = _half_width(choice)
    most = max(choice.max_repeats or MOST_ADAPTIVE_REPEATS, choice.repeats or 0)
    for case, sample in values.items():
        repeats = max(run["repeat"] for run in plan["runs"] if run["case"] == case)
        number = wanted_repeats(sample, repeats, half_width, most)
        if number is not None:
            yield case, number


def _add_revision(
    directory: Path,
    plan: Mapping[str, Any],
    wanted: Mapping[str, int],
    values: Mapping[str, Sequence[float]],
) -> str:
    from ..catalog.reader import load_catalog

    catalog = load_catalog(kept=kept_by([directory]))
    runs = more_runs(plan, wanted, catalog, str(directory / "plan.json"))
    reasons = {}
    for case, repeats in wanted.items():
        width = relative_half_width(values[case])
        reasons[case] = {
            "valid_runs": len(values[case]),
            "relative_half_width": None if math.isnan(width) else width,
            "wanted_repeats": repeats,
        }
    path = add_revision(directory, runs, reasons)
    return f"{path.name}: {counted(len(runs), 'more run')} of {counted(len(wanted), 'case')}"


def _too_wide(values: Mapping[str, Sequence[float]], choice: Choice) -> Iterator[str]:
    asked = _half_width(choice)
    for case, sample in values.items():
        width = relative_half_width(sample)
        if not width <= asked:
            reached = "no interval" if math.isnan(width) else f"±{width:.2%}"
            yield (
                f"{case}: {reached} after {len(sample)} valid runs, wider than"
                f" {option_name('until_ci')} {choice.until_ci}"
            )


def _half_width(choice: Choice) -> float:
    return fraction(choice.until_ci or "", option_name("until_ci"))


# What ends a run that fails. A run that is done was measured in the same way with any of them.
_LIMITS = ("timeout_s", "hung_after_s", "hung_after_lines", "first_step_s")


def more_runs(
    plan: Mapping[str, Any], wanted: Mapping[str, int], catalog: Catalog, where: str
) -> list[dict[str, Any]]:
    """The runs that the plan (a document, with the runs of its revisions) lacks for cases to have
    as many repeats as wanted, in its order. `where` names it in errors."""
    choice = recorded_choice(plan["choice"])
    nodes = [Node(**with_tuples(node)) for node in plan["inventory"]]
    most = max(wanted.values())
    runs = make_plan(replace(choice, repeats=most), catalog, nodes)
    recorded = {run["id"]: run for run in plan["runs"]}
    new = []
    for run in runs:
        if run.case not in wanted or run.repeat > wanted[run.case]:
            continue
        if run.id not in recorded:
            new.append(run)
            continue
        _refuse_other(recorded[run.id], run, where)
    seed = None if choice.seed is None else choice.seed + len(recorded)
    return [asdict(run) for run in ordered(new, choice.order, seed)]


def grow(directory: Path, repeats: int, why: str) -> None:
    """Plan as many repeats of each case of a campaign, in a revision, if it has fewer. Raises
    UserError if the catalogue has changed since."""
    from ..catalog.reader import load_catalog

    catalog = load_catalog(kept=kept_by([directory]))
    plan = read_plan(directory)
    wanted = {run["case"]: repeats for run in plan["runs"]}
    runs = more_runs(plan, wanted, catalog, str(directory / "plan.json"))
    if runs:
        reason = {"wanted_repeats": repeats, "why": why}
        add_revision(directory, runs, {case: reason for case in wanted})  # noqa: C420


def refuse_others(directory: Path, runs: Sequence[Run]) -> None:
    """Raise UserError unless an existing campaign has these runs."""
    plan = read_plan(directory)["runs"]
    recorded = {run["id"]: run for run in plan}
    for run in runs:
        _refuse_other(recorded.get(run.id, plan[0]), run, str(directory / "plan.json"))


def _refuse_other(recorded: Mapping[str, Any], run: Run, where: str) -> None:
    # As JSON has it: with lists in place of tuples.
    for name, value in json.loads(json.dumps(asdict(run))).items():
        if name not in _LIMITS and recorded.get(name) != value:
            raise UserError(
                "the choice, the catalogue or this program has changed since the campaign was"
                " planned, so more runs would be of another kind",
                where=where,
                expected=f"{name} {recorded.get(name)!r} of {recorded['id']}",
                found=repr(value),
                hint="start a new campaign",
            )
