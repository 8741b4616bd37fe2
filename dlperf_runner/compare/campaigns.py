"""Compare two campaigns case by case: DataFrames in, rows out.

Cases match if their identity is equal (see core/identity.py). Their environment may differ; a
difference is named. Cases whose identity differs only in RELATED columns are not paired unless the
user allows it. They are told of each other. A gate needs the same RELATED columns and the same
accelerator. docs/comparing.md defines the verdicts and the limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from statistics import median
from typing import Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr

from ..campaign.directory import RESULTS
from ..catalog.entry import validated
from ..catalog.types import Entry
from ..core.errors import UserError, unknown_name
from ..core.files import read_json, write_json
from ..core.frame import SAMPLES_PER_SECOND, Frame, completed, make_frame
from ..core.identity import (
    CASE,
    ENVIRONMENT,
    IDENTITY,
    CaseKey,
    columns_of,
    label,
    read_parameters,
    topology_text,
    value_text,
)
from ..core.lists import grouped
from ..stats.between_campaigns import Spread
from ..stats.groups import CaseRates, rates_by_case
from ..stats.intervals import SampleComparison, compare_samples
from ..stats.ratios import RelativeDifference, relative_difference
from .spread import RecordedCase, spread_of, widened
from .verdicts import ONLY_A, ONLY_B, campaign_limit, case_verdict, to_decide, too_few

RELATED = ("source", "parameters", "total_steps", "warmup_steps", "directory", "nvlink_domains")
_SAME_IN_A_GATE = (*RELATED, "accelerator")

PartOfKey = Callable[[CaseKey], CaseKey]
_identity: PartOfKey = itemgetter(*map(CASE.index, IDENTITY))
_with_accelerator: PartOfKey = itemgetter(*map(CASE.index, (*IDENTITY, "accelerator")))
_unrelated: PartOfKey = itemgetter(*(CASE.index(name) for name in IDENTITY if name not in RELATED))

COLUMNS = (
    *(*IDENTITY, "unit", "distinction"),
    *("n_a", "n_b", "a", "b", "difference", "relative", "relative_low", "relative_high"),
    *("coverage", "at_worst", "log_ratio", "log_ratio_error", "log_ratio_freedom"),
    *("p_value", "test", "effect_size", "between_campaigns", "between_campaigns_of"),
    *(
        "verdict",
        "environment",
        "limit",
        "limit_verdict",
        "why",
        "apart",
        "unrecorded",
        "stated_a",
        "stated_b",
    ),
)


def compare_campaigns(
    a: Frame,
    b: Frame,
    limit: float | None = None,
    allowed: Collection[str] = (),
    spreads: Mapping[CaseKey, Spread] | None = None,
) -> list[dict[str, Any]]:
    """One row per case of either long frame, in the order of the frames, with the COLUMNS; what is
    missing is None.

    `a` and `b` are the medians of n_a and n_b valid runs. `difference` is how much b is above a
    (Hodges and Lehmann), `relative` the same as a fraction of a. Its interval holds together with
    those of all cases, on which the `verdict` rests; `coverage` is that of the interval alone,
    `at_worst` the lower bound of the case alone, and `p_value` is from its own `test`. effect_size
    is Cliff's delta. `environment` names the differences in environment, and in what is `allowed`
    to differ; `distinction` tells the case from others of the same identity; `unrecorded` names
    what neither side knows, `stated_a` and `stated_b` what no log of that side confirms; `apart`
    says what keeps a case from the nearest one of the other side. With a `limit` (0.03 for 3 %),
    see `campaign_limit`.

    `spreads` are the known spreads between campaigns. They widen the interval, and a difference
    that the wider interval does not show is not called one.

    Raises UserError if a pair has rates of two units, or if a limit is given and the sides differ
    in what a gate needs to be equal.
    """
    all_a, all_b = rates_by_case(a), rates_by_case(b)
    check_names(allowed, (*all_a, *all_b))
    paired = pairs(list(all_a), list(all_b), allowed)
    if limit is not None:
        refuse_unlike(paired, allowed)
    rows = []
    compared = []
    for pair, distinction in zip(paired, distinctions(paired), strict=True):
        rates = (all_a.get(pair.a or ()), all_b.get(pair.b or ()))
        row = {**_sides(pair, *rates), "distinction": distinction}
        rows.append(row)
        if pair.a is not None and pair.b is not None:
            values_a, values_b = all_a[pair.a].values, all_b[pair.b].values
            spread = spread_of(spreads or {}, pair.a, pair.b)
            compared.append((row, compare_samples(values_a, values_b), spread, values_a, values_b))
    cases = sum(not too_few(result) for _, result, *_ in compared) or 1
    for row, result, spread, values_a, values_b in compared:
        difference = widened(relative_difference(values_a, values_b, cases), spread, row, cases)
        row.update(_numbers(result, difference), verdict=case_verdict(result, difference, spread))
        if spread is not None:
            row.update(between_campaigns=spread.between, between_campaigns_of=spread.campaigns)
        if limit is not None:
            row["outlook"] = to_decide(values_a, values_b, limit, cases, spread)
    if limit is not None:
        for row in rows:
            verdict, why = campaign_limit(row, limit)
            row.update(limit=limit, limit_verdict=verdict, why=why)
    return completed(rows, COLUMNS)


def _sides(pair: Pair, a: CaseRates | None, b: CaseRates | None) -> dict[str, Any]:
    measured = {side: rates for side, rates in (("a", a), ("b", b)) if rates}
    row: dict[str, Any] = {name: pair.case[name] for name in IDENTITY}
    row["unit"] = _unit(pair, measured.values())
    for side, rates in measured.items():
        row |= {f"stated_{side}": rates.stated, side: median(rates.values)}
    row |= {"n_a": len(a.values) if a else 0, "n_b": len(b.values) if b else 0}
    if pair.a is None or pair.b is None:
        return {**row, "verdict": ONLY_A if pair.b is None else ONLY_B, "apart": pair.apart}
    row["environment"] = ", ".join(map(str, pair.differing)) or None
    row["unrecorded"] = ", ".join(map(label, unrecorded_conditions(pair))) or None
    return row


def _unit(pair: Pair, sides: Iterable[CaseRates]) -> str:
    """The unit of the rates of a pair. Raises UserError if its sides have different ones."""
    units = [side.unit for side in sides]
    if len(set(units)) > 1:
        raise UserError(
            "the two sides count different things, so their rates cannot be compared",
            where=f"{pair.case['workload']} {topology_text(pair.case)}",
            expected=f"{units[0]}, as on the first side",
            found=units[1],
            hint="read both with the same catalogue entry: dlperf --catalog DIR",
        )
    return units[0]


def without_effect(a: Frame, b: Frame, allowed: Collection[str]) -> list[str]:
    """The names of `allowed` in which no pair of cases of the two frames differs."""
    paired = pairs(list(rates_by_case(a)), list(rates_by_case(b)), allowed)
    differing = [item for pair in paired if pair.a and pair.b for item in pair.differing]
    names = {name for item in differing for name in (item.name, item.column)}
    return [name for name in dict.fromkeys(allowed) if name not in names]


def _numbers(result: SampleComparison, difference: RelativeDifference) -> dict[str, Any]:
    return {
        "difference": result.difference,
        "relative": difference.relative,
        "relative_low": difference.interval.low,
        "relative_high": difference.interval.high,
        "coverage": difference.interval.coverage,
        "at_worst": difference.at_worst,
        "log_ratio": difference.log_ratio.value,
        "log_ratio_error": difference.log_ratio.error,
        "log_ratio_freedom": difference.log_ratio.freedom,
        "p_value": result.p_value,
        "test": result.test,
        "effect_size": result.effect_size,
    }


# ---- pairs of cases


@dataclass(frozen=True)
class Differing:
    """A column or parameter that differs between two cases. `column` is the column that has it."""

    column: str
    name: str
    a: object
    b: object

    def __str__(self) -> str:
        return f"{label(self.name)} ({value_text(self.a)}, {value_text(self.b)})"


@dataclass(frozen=True)
class Pair:
    """A case of the first campaign, of the second, or of both. `differing` is what the two differ
    in; for a case without a partner, what it and the nearest case of the other side differ in."""

    a: CaseKey | None
    b: CaseKey | None
    differing: tuple[Differing, ...] = ()

    @property
    def key(self) -> CaseKey:
        """The case, that of the first campaign where both have it."""
        return self.a or self.b or ()

    @property
    def case(self) -> dict[str, Any]:
        """The columns of `key`."""
        return columns_of(self.key)

    @property
    def apart(self) -> str | None:
        """The reason why a case with a near case on the other side has no partner."""
        if not self.differing:
            return None
        texts = ", ".join(map(str, self.differing))
        if any(item.column in IDENTITY for item in self.differing):
            return f"the nearest case of the other side differs in {texts}"
        return f"several cases could be its partner; the nearest differs in {texts}"


def pairs(a: Sequence[CaseKey], b: Sequence[CaseKey], allowed: Collection[str] = ()) -> list[Pair]:
    """Each case with its partner, in the order of the two sides: the same case, else the only one
    left with the same identity and accelerator, else with the same identity, else with the same
    identity but for `allowed`, which are names of columns or of parameters."""
    partners: dict[CaseKey, CaseKey] = {}
    for key_of in (tuple, _with_accelerator, _identity, _but_for(allowed)):
        left = grouped([key for key in b if key not in partners.values()], key_of)
        for key, several in grouped([key for key in a if key not in partners], key_of).items():
            if len(several) == len(left.get(key, ())) == 1:
                partners[several[0]] = left[key][0]
    alone_a = [key for key in a if key not in partners]
    taken = set(partners.values())
    alone_b = [key for key in b if key not in taken]
    return [
        *(
            Pair(key, partners[key], differences(key, partners[key]))
            if key in partners
            else _alone(Pair(key, None), alone_b)
            for key in a
        ),
        *(_alone(Pair(None, key), alone_a) for key in alone_b),
    ]


def differences(a: CaseKey, b: CaseKey) -> tuple[Differing, ...]:
    """Fields in which two cases differ; parameters by their own names. An unknown value differs
    from every known one."""
    differing = []
    for column, x, y in zip(CASE, a, b, strict=True):
        if x == y:
            continue
        of_a, of_b = (read_parameters(v) if column == "parameters" else {} for v in (x, y))
        if not of_a and not of_b:  # no parameters, or one side unknown and the other without any
            differing.append(Differing(column, column, x, y))
        for name in sorted({*of_a, *of_b}):
            if of_a.get(name) != of_b.get(name):
                differing.append(Differing(column, name, of_a.get(name), of_b.get(name)))
    return tuple(differing)


def distinctions(paired: Sequence[Pair]) -> list[str | None]:
    """The text that tells each pair from others of the same identity in other environments; None if
    there are no others."""
    by_identity = grouped([pair.key for pair in paired], _identity)
    return [
        ", ".join(_distinguishing_conditions(pair, by_identity[_identity(pair.key)])) or None
        for pair in paired
    ]


def _distinguishing_conditions(pair: Pair, others: Sequence[CaseKey]) -> Iterator[str]:
    for name in ENVIRONMENT:
        if len({columns_of(other)[name] for other in others}) > 1:
            sides = (columns_of(key)[name] for key in (pair.a, pair.b) if key)
            yield f"{label(name)} {' and '.join(dict.fromkeys(map(value_text, sides)))}"


def refuse_unlike(compared: Sequence[Pair], allowed: Collection[str]) -> None:
    """Raise UserError if a gate would compare cases that are not alike, or would miss a case
    because it is another experiment now. `allowed` names what may differ."""
    unlike: dict[str, Differing] = {}
    for pair in compared:
        for item in pair.differing:
            names = {item.name, item.column}
            if item.column in _SAME_IN_A_GATE and not names & set(allowed):
                unlike.setdefault(item.name, item)
    if unlike:
        options = " ".join(f"--allow-different {name}" for name in unlike)
        raise UserError(
            "the two sides are not alike, so a difference in speed would have another cause",
            where="--fail-if-slower",
            expected=f"the same {' and '.join(map(label, unlike))}",
            found="; ".join(map(str, unlike.values())),
            hint=f"measure again under the same conditions, or compare all the same with {options}",
        )


def check_names(allowed: Collection[str], cases: Iterable[CaseKey]) -> None:
    """Raise UserError for a name that is neither a column which may be allowed nor a parameter."""
    conditions = dict.fromkeys((*_SAME_IN_A_GATE, *ENVIRONMENT))
    for key in cases:
        conditions |= dict.fromkeys(read_parameters(columns_of(key)["parameters"]))
    for name in allowed:
        if name not in conditions:
            raise unknown_name("condition", name, conditions, "--allow-different")


def unrecorded_conditions(pair: Pair) -> list[str]:
    """Conditions that neither side of a pair records, so that they cannot be compared."""
    if pair.a is None or pair.b is None:
        return []
    a, b = columns_of(pair.a), columns_of(pair.b)
    of_gpus = ("node_gpus", "driver") if a["accelerator"] == "cpu" else ()
    return [
        name
        for name in ("source", "parameters", *ENVIRONMENT)
        if name not in of_gpus and a[name] is None and b[name] is None
    ]


def _alone(pair: Pair, others: Sequence[CaseKey]) -> Pair:
    """The case with what keeps it from the nearest of the others, if it is the same but for
    RELATED columns."""
    near = [other for other in others if _unrelated(other) == _unrelated(pair.key)]
    if not near:
        return pair
    sides = [(pair.key, other) if pair.a else (other, pair.key) for other in near]
    return Pair(pair.a, pair.b, min((differences(*side) for side in sides), key=len))


def _but_for(allowed: Collection[str]) -> PartOfKey:
    def kept(key: CaseKey) -> CaseKey:
        case = columns_of(key)
        parameters = None
        if "parameters" not in allowed:
            values = read_parameters(case["parameters"])
            parameters = tuple(sorted((n, v) for n, v in values.items() if n not in allowed))
        names = [n for n in IDENTITY if n != "parameters" and n not in allowed]
        return (parameters, *(case[name] for name in names))

    return kept


BASELINES = RESULTS / "baselines"
VERSION = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)


class BaselineCase(RecordedCase):
    """A case and the throughput of its valid runs."""

    estimator: StrictStr | None
    unit: StrictStr
    stated: StrictStr | None
    samples_per_second: Annotated[
        tuple[Annotated[StrictFloat | StrictInt, Field(gt=0, allow_inf_nan=False)], ...],
        Field(min_length=1),
    ]


class Baseline(Entry):
    """The content of a baseline file. `logs` are paths by what only copies have in common."""

    version: Literal[3]
    name: StrictStr
    created: StrictStr
    campaign: StrictStr
    logs: dict[StrictStr, StrictStr]
    cases: Annotated[tuple[BaselineCase, ...], Field(min_length=1)]


def save_baseline(
    frame: Frame,
    name: str,
    campaign: str,
    logs: Mapping[str, str] | None = None,
    *,
    directory: Path = BASELINES,
    replace: bool = False,
) -> Path:
    """Save the throughput of the valid runs of a long frame; returns the file. An existing file is
    replaced only with `replace`."""
    path = baseline_path(name, directory)
    if path.exists() and not replace:
        raise UserError(
            f"the baseline {name} already exists",
            where=str(path),
            hint="choose another name, or add --replace",
        )
    cases = [
        {
            **columns_of(case),
            "estimator": rates.estimator,
            "unit": rates.unit,
            "stated": next(iter(rates.statements), None),
            SAMPLES_PER_SECOND: rates.values,
        }
        for case, rates in rates_by_case(frame).items()
    ]
    if not cases:
        raise UserError("the campaign has no valid run", where=campaign)
    document = {
        "version": VERSION,
        "name": name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "campaign": campaign,
        "logs": {**(logs or {})},
        "cases": cases,
    }
    inside = directory.parent if path.parent == directory else None
    return write_json(path, document, inside)


def baseline_path(name: str, directory: Path = BASELINES) -> Path:
    """The path of the baseline with that name. The name may also be the path of a `*.json` file."""
    if name.endswith(".json") and Path(name).is_file():
        return Path(name)
    if not _NAME.fullmatch(name):
        raise UserError(
            "invalid baseline name",
            where="--baseline or --save-baseline",
            expected="letters, digits, dots, hyphens and underscores, or a .json file",
            found=name,
        )
    return directory / f"{name}.json"


def read_baseline(name: str, directory: Path = BASELINES) -> Frame:
    """The throughput of a baseline as a long frame. Raises UserError: if the baseline does not
    exist, it lists the known ones; if the file is invalid, it names file and key."""
    baseline = _read(name, directory)
    runs: list[dict[str, Any]] = []
    metrics: list[tuple[Any, ...]] = []
    for case in baseline.cases:
        columns = case.model_dump(exclude={SAMPLES_PER_SECOND, "unit", "estimator"})
        batch = case.batch_size_per_device
        columns |= {"global_batch_size": batch and round(batch * case.world_size), "valid": True}
        for repeat, value in enumerate(case.samples_per_second, start=1):
            metrics.append((len(runs), SAMPLES_PER_SECOND, value, case.unit, case.estimator))
            runs.append({**columns, "repeat": repeat})
    return make_frame(runs, metrics)


def logs_of_baseline(name: str) -> dict[str, str]:
    """The logs of a baseline, by what only copies have in common. Raises the same errors."""
    return _read(name, BASELINES).logs


def _read(name: str, directory: Path) -> Baseline:
    path = baseline_path(name, directory)
    if not path.exists():
        names = ", ".join(sorted(file.stem for file in directory.glob("*.json")))
        raise UserError(
            f"the baseline {name} does not exist",
            where=str(path),
            expected=f"one of {names}" if names else None,
            hint=None if names else "`dlperf compare --save-baseline NAME CAMPAIGN` creates one",
        )
    document = read_json(path)
    if isinstance(version := document.get("version"), int) and version != VERSION:
        raise UserError(
            "another version of this program wrote this baseline",
            where=f"{path}: version",
            expected=f"version {VERSION}",
            found=str(version),
            hint="`dlperf compare --save-baseline NAME CAMPAIGN --replace` recreates it",
        )
    return validated(document, Baseline, str(path), "invalid baseline")
