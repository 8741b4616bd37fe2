"""The tables of cases: in the published reports' own layout and more, side by side, compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from typing import Any

from ..core.frame import (
    ALL_REDUCE_BUS,
    ENERGY,
    INPUT_SHARE,
    MODEL_TFLOPS,
    POWER,
    SAMPLES_PER_SECOND,
)
from ..core.identity import GROUP, label, parameters_text, topology_text, value_text
from ..core.lists import grouped
from ..stats.groups import (
    Case,
    Sweep,
    SweptTopology,
    by_group,
    setting,
    short_digest,
    sweeps,
    workload_title,
)
from ..stats.summary import StepParts, nccl_share, step_parts
from .charts import Chart, ChartPoint, Line
from .labels import Labels, each_condition, load_labels
from .numbers import (
    as_published,
    energy_unit,
    is_bandwidth,
    joules,
    per_device,
    rate_decimals,
    ratio,
    seconds,
    speedup,
    step_time,
    tflops,
)
from .tables import Cell, Column, Table, cell, composed, span, without_empty
from .terminal import PIPE, Screen, listed, titled

METHODS = ("rate", "interval", "speedup", "pooling", "validity", "published", "series")
_MEDIAN = "samples_per_second_median"
_PERCENT = "0.0%"


def group_title(case: Case, t: Labels) -> str:
    """The title of a table as `summarize` prints it, with the campaign where there are several."""
    size = None if is_bandwidth(case) else value_text(case["batch_size_per_device"])

    def named(key: str, name: str | None) -> str | None:
        return t(key, name=name) if name else None

    words = (
        *(workload_title(case), case["precision"], size and t("batch", batch=size)),
        *(case["parameters"], named("of_version", case["framework_version"])),
        # A stack is mostly named after its accelerator; say it once.
        *dict.fromkeys((case["accelerator"], case["stack"])),
        named("of_driver", case["driver"]),
        named("of_container", short_digest(case["container"] or "")),
        *(case["directory"], case.get("campaign")),
    )
    return t("comma").join(filter(None, words))


def cases(number: int, group: Sequence[Case], t: Labels) -> Table:
    """The cases of a table, the columns of the published reports first, under their names."""
    rows = [_cells(case, rate_form(group), ",", " – ") for case in group]
    if not any(case.get("samples_per_second_outliers") for case in group):
        rows = [{**row, "outliers": cell(None)} for row in rows]
    keep = _always(group, "speedup")
    columns, lines = composed(_columns(group, t), rows, _PAGE, keep)
    return Table(f"table-{number}", group_title(group[0], t), columns, lines, (_note(group, t),))


def summary_tables(cases: Sequence[dict[str, Any]]) -> Iterator[Table]:
    """The tables of a terminal and of summary.md, which are narrow."""
    for heading, group in by_group(cases).items():
        columns = _columns(group, load_labels())
        columns["interval"] = replace(columns["interval"], label="interval")
        columns["log_memory"] = replace(columns["log_memory"], label="memory (MiB)")
        rows = []
        for case in group:
            row = _cells(case, rate_form(group).replace(",", ""), "", "-")
            row["efficiency"] = cell(
                case["scaling_efficiency"], lambda ratio: f"{100 * ratio:.0f} %"
            )
            if case["step_time_estimator"] != "single_steps":  # a mean hides a single slow step
                row["p95"] = row["p99"] = cell(None)
            if case["gpu_memory_mib"] is not None:
                row["log_memory"] = cell(None)
            rows.append(row)
        yield Table("", heading, *composed(columns, rows, _SUMMARY, _always(group, *_SCALING)))


def render(cases: Sequence[dict[str, Any]], notes: Sequence[str], screen: Screen = PIPE) -> str:
    """Tables by workload, precision and batch size, then the notes."""
    lines: list[str] = []
    for made in summary_tables(cases):
        lines += titled(made.title, made.columns, made.rows, screen)
    lines = lines or ["No run could be counted.", ""]
    return "\n".join([*lines, *listed(notes, screen)]).rstrip("\n") + "\n"


def _always(group: Sequence[Case], *scaling: str) -> tuple[str, ...]:
    """The columns that a table has even if they are empty. A bandwidth does not scale."""
    return ("nodes", "devices", "rate", *(() if is_bandwidth(group[0]) else scaling))


_SCALING, _STEP = ("speedup", "efficiency"), ("median", "p95", "p99")
_PAGE = (
    *("nodes", "devices", "rate", "speedup", "domains", "per_device", "interval"),
    *("speedup_interval", "efficiency", "n", "cv", "outliers", "gpu_memory", *_STEP, "log_memory"),
    *("flops", "mfu", "energy", "power"),
)
_SUMMARY = (
    *("nodes", "devices", "domains", "rate", "per_device", "interval", "flops", "mfu"),
    *(*_SCALING, "n"),
    *("p95", "p99", "log_memory", "gpu_memory", "energy", "power"),
)


def _columns(group: Sequence[Case], t: Labels) -> dict[str, Column]:
    unit, sheet = group[0]["unit"], sheet_form(group)
    formula = next((text for case in group if (text := case.get("flops_formula"))), "")

    def below(label: str, form: str = "General", hint: str = "") -> Column:
        return Column(label, True, form, hint, stacks=True)

    return {
        "nodes": Column("node_num", True, "0"),
        "devices": below("gpu_num", "0"),
        "domains": below(t("nvlink_domains"), "0"),
        "rate": Column(unit, True, sheet),
        "speedup": Column("speedup", True, "0.00"),
        "per_device": below(f"{unit}/{t('device')}", sheet),
        "interval": below(t("interval_of_rate", unit=unit), hint=t("interval_hint")),
        "speedup_interval": below(t("interval_of_speedup"), hint=t("ratio_hint")),
        "efficiency": below(t("efficiency"), _PERCENT),
        "n": Column("n", True, "0", hint=t("n_hint")),
        "cv": below("CV", "0.00%", t("cv_hint")),
        "outliers": below(t("outliers"), "0", t("outliers_hint")),
        "gpu_memory": below(t("gpu_memory"), "#,##0", "GPU memory (MiB)"),
        **{name: below(t(f"step_{name}"), "0.000", t("step_hint")) for name in _STEP},
        "log_memory": below(t("log_memory"), "#,##0", t("log_memory_hint")),
        "flops": below(f"TFLOP/s/{t('device')}", "0.0", t("flops_hint")),
        "mfu": below(f"MFU ({formula.partition(' ')[0]})", _PERCENT, formula),
        "energy": below(energy_unit(group[0]), "0.000", t("energy_hint")),
        "power": below("W", "#,##0", t("power_hint")),
    }


def _cells(case: Case, form: str, comma: str, between: str) -> dict[str, Cell]:
    rate, whole = "samples_per_second", f"{comma}.0f"
    return {
        "nodes": cell(case["nodes"]),
        "devices": cell(case["world_size"]),
        "domains": cell(case["nvlink_domains"]),
        "rate": cell(case[_MEDIAN], form),
        "speedup": cell(case["speedup"], speedup),
        "per_device": cell(per_device(case), form),
        "interval": span(case.get(f"{rate}_ci_low"), case.get(f"{rate}_ci_high"), form, between),
        "speedup_interval": span(case.get("speedup_ci_low"), case.get("speedup_ci_high"), speedup),
        "efficiency": cell(case["scaling_efficiency"], ".1%"),
        "n": cell(case["repeats"]),
        "cv": cell(case.get(f"{rate}_cv"), ".2%"),
        "outliers": cell(case.get(f"{rate}_outliers")),
        "gpu_memory": cell(case["gpu_memory_mib"], whole),
        **{n: cell(step_time(case, n), seconds) for n in _STEP},
        "log_memory": cell(case.get("log_memory_mib"), whole),
        "flops": cell(case.get(MODEL_TFLOPS), tflops),
        "mfu": cell(case.get("mfu"), ".1%"),
        "energy": cell(case.get(f"{ENERGY}_j"), joules),
        "power": cell(case.get(f"{POWER}_w"), whole),
    }


def rate_form(group: Sequence[Case]) -> str:
    return f",.{_decimals(group)}f"


def sheet_form(group: Sequence[Case]) -> str:
    return "#,##0." + "0" * _decimals(group)


def _decimals(group: Sequence[Case]) -> int:
    medians = [case["samples_per_second_median"] for case in group]
    return rate_decimals(group[0]["workload"], medians)


def _note(group: Sequence[Case], t: Labels) -> str:
    """The base of the speed-ups, the coverage of the intervals, and the estimators."""
    parts = []
    bases = {case.get("base_case") for case in group if case["speedup"] is not None}
    for case in group:
        if (place := topology_text(case)) in bases:
            rate = f"{case['samples_per_second_median']:{rate_form(group)}}"
            parts.append(t("base", case=place, rate=rate, unit=case["unit"]))
    scales = not is_bandwidth(group[0])
    if scales and all(case["speedup"] is None for case in group):
        parts.append(t("no_base"))
    covers = {
        case["repeats"]: case["samples_per_second_ci_coverage"]
        for case in group
        if case.get("samples_per_second_ci_coverage") is not None
    }
    if covers:
        texts = (f"{100 * cover:.4g} % (n = {n})" for n, cover in sorted(covers.items()))
        parts.append(t("coverage", coverages=", ".join(texts)))
    if any(case["repeats"] < 2 for case in group):
        parts.append(t("single"))
    estimators = dict.fromkeys(str(case["estimator"]) for case in group if case["estimator"])
    if estimators:
        parts.append(t("estimators", names=", ".join(estimators)))
    return t("between_sentences").join(parts)


# ---- the answer


@dataclass(frozen=True)
class Answer:
    """Speed and scaling in a few words, and how sure they are."""

    head: str
    rest: str
    whole: str

    def __str__(self) -> str:
        return self.whole


def machine(case: Case, t: Labels) -> str:
    """The accelerator and the driver of a case, as far as its logs say."""
    driver = t("of_driver", name=case["driver"]) if case["driver"] else None
    return t("comma").join(filter(None, (case["accelerator"], driver)))


def answers(
    all_cases: Sequence[Case], verdicts: Sequence[Case], dates: Mapping[Any, str], t: Labels
) -> Iterator[Answer]:
    """One per framework and model: its fastest case on the most devices, and what was made of
    `verdicts`, which are rows of compare_published. `dates` are by the campaign of a case."""
    for (framework, model), group in grouped(all_cases, itemgetter("framework", "model")).items():
        best = max(group, key=lambda case: (case["world_size"], case["samples_per_second_median"]))
        head = t(
            "answer",
            framework=" ".join(filter(None, (framework, best["framework_version"]))),
            model=model,
            rate=f"{best['samples_per_second_median']:{rate_form([best])}}",
            unit=best["unit"],
            devices=t.place(best["nodes"], best["world_size"]),
        )
        if best["speedup"] is not None and best["world_size"] > 1:
            percent = f"{100 * best['scaling_efficiency']:.0f}\u00a0%"
            base = best.get("base_case") or "1n1g"
            times = speedup(best["speedup"])
            head += t("answer_speedup", speedup=times, base=base, efficiency=percent)
        judged = [row for row in verdicts if (row["framework"], row["model"]) == (framework, model)]
        facts = filter(None, (machine(best, t), dates.get(best["campaign"])))
        rest = t("separator").join((*facts, *_details(best, group, judged, t)))
        yield Answer(head, rest, t("sentences", first=head, second=rest))


def _details(
    best: Case, cases: Sequence[Case], verdicts: Sequence[Case], t: Labels
) -> Iterator[str]:
    campaigns = {case["campaign"] for case in cases}
    if len(campaigns) > 1:
        yield t("answer_campaign", name=best["campaign"], n=len(campaigns))
    scales = not is_bandwidth(best)
    if scales:
        batch = value_text(best["batch_size_per_device"])
        yield t("answer_setting", precision=best["precision"], batch=batch)
    low, high = best.get("samples_per_second_ci_low"), best.get("samples_per_second_ci_high")
    if low is not None and high is not None:
        form, cover = rate_form([best]), best.get("samples_per_second_ci_coverage")
        percent = f"{100 * (cover or 0):.4g}\u00a0%"
        yield t("answer_interval", low=f"{low:{form}}", high=f"{high:{form}}", coverage=percent)
    if scales and best["speedup"] is None:
        yield t("answer_no_speedup")
    yield t("answer_runs", n=best["repeats"], cases=len(cases))
    counts = Counter(str(row["verdict"]) for row in verdicts)
    if counts:
        texts = (f"{count} {verdict_text(verdict, t)}" for verdict, count in counts.items())
        yield t("answer_published", counts=t("comma").join(texts))
    stated = (each_condition(row["stated"] or "") for row in verdicts)
    names = dict.fromkeys(str(t.conditions(part)) for parts in stated for part in parts)
    if names:
        yield t("answer_stated", names=t("comma").join(names))


# ---- side by side


def line_names(groups: Sequence[Sequence[Case]]) -> list[str]:
    """A name for each group: its framework, and what else it differs in from the others."""
    columns = ("framework", "campaign", "workload", *GROUP[1:])
    keys = [{column: group[0].get(column) for column in columns} for group in groups]
    names = [[str(key["framework"])] for key in keys]
    for column in columns[1:]:
        told_apart = len(set(map(tuple, names))) == len(groups)
        if told_apart and column != "batch_size_per_device":
            continue  # a batch size is always said: speeds of different ones are no equals
        if len({key[column] for key in keys}) > 1:
            for words, key in zip(names, keys, strict=True):
                words.append(_worded(column, key[column]))
    return [" ".join(filter(None, words)) for words in names]


def _worded(column: str, value: object) -> str:
    if not value:
        return {"container": "bare"}.get(column, "")
    return f"b{value}" if column == "batch_size_per_device" else str(value)


def side_by_side(all_cases: Sequence[Case], t: Labels) -> Iterator[Table]:
    """Frameworks in columns, as the published summary has them: one table per model and
    precision that was measured of more than one."""
    together = grouped(all_cases, itemgetter("family", "precision", "unit"))
    number = 0
    for (family, precision, unit), alike_cases in together.items():
        groups = grouped(alike_cases, itemgetter("framework", "campaign", *GROUP))
        if len({key[0] for key in groups}) < 2:
            continue
        number += 1
        heading = t("beside", model=family, precision=precision, unit=unit)
        yield _side_by_side(number, heading, list(groups.values()), unit, t)


def _place(case: Case) -> tuple[int, int, int]:
    """The number of devices, nodes and NVLink domains of a case; 0 if the last is unknown."""
    return case["world_size"], case["nodes"], case["nvlink_domains"] or 0


def _side_by_side(
    number: int, heading: str, groups: Sequence[Sequence[Case]], unit: str, t: Labels
) -> Table:
    names = line_names(groups)
    columns = [Column("node_num", True, "0"), Column("gpu_num", True, "0")]
    columns.append(Column(t("nvlink_domains"), True, "0"))
    for name, group in zip(names, groups, strict=True):
        columns.append(Column(f"{name} {unit}", True, sheet_form(group)))
        columns.append(Column(f"{name} speedup", True, "0.00"))
    by_place = [{_place(case): case for case in group} for group in groups]
    rows = []
    for place in sorted({*chain.from_iterable(by_place)}):
        world_size, nodes, domains = place
        row = [cell(nodes), cell(world_size), cell(domains or None)]
        for group, cases in zip(groups, by_place, strict=True):
            case = cases.get(place, {})
            row.append(cell(case.get("samples_per_second_median"), rate_form(group), ""))
            row.append(cell(case.get("speedup"), speedup, ""))
        rows.append(tuple(row))
    shown, lines = without_empty(columns, rows, 2)
    return Table(f"beside-{number}", heading, shown, lines)


# ---- beside what was published


def verdict_text(verdict: str, t: Labels) -> str:
    return t.optional(f"verdict_{verdict.replace(' ', '_')}", verdict)


def limit_column(limit: float) -> Column:
    return Column(f"limit {limit:.1%}", stacks=True)


def judgement(verdict: str | None, t: Labels) -> Cell:
    """A verdict in its colour; a case that a limit does not judge has none."""
    verdict = verdict or "-"
    return Cell(verdict_text(verdict, t), verdict, mark=verdict)


# What stands below a table of `comparisons`, by its label: a column of compare_published.
_BELOW = {
    "stated": "stated",
    "factor_estimator": "estimator",
    "factors": "factors",
    "to_state": "to_state",
    "noted": "noted",
    "declared": "declared",
    "not_stated": "unknown",
    "publication": "published_title",
}
STATED = ("stated", "stated_a", "stated_b")


def alike(rows: Sequence[Case], column: str) -> Iterator[tuple[str, list[Case]]]:
    """Each text of a column once, with its rows. What was only stated is taken apart, and the
    conditions of the same rows stand together."""
    about: dict[str, list[int]] = {}
    for number, row in enumerate(rows):
        if text := row.get(column):
            for part in each_condition(text) if column in STATED else [text]:
                about.setdefault(part, []).append(number)
    for places, texts in grouped(about, lambda part: tuple(about[part])).items():
        yield ", ".join(texts), [rows[place] for place in places]


def comparisons(rows: Sequence[Case], t: Labels) -> Iterator[Table]:
    """The rows of compare_published, a table per group; its longest texts stand below it."""
    rows = [_translated(row, t) for row in rows]
    for number, group in enumerate(grouped(rows, itemgetter("campaign", *GROUP)).values(), start=1):
        keep = ("nodes", "devices", "mine")
        shown = (*keep, *_COMPARED)
        columns, lines = composed(_compared_columns(t), _compared(group, t), shown, keep)
        notes = []
        for label_name, column in _BELOW.items():
            for text, about in alike(group, column):
                which = f" ({', '.join(map(topology_text, about))})"
                notes.append(f"{t(label_name)}{which if len(about) < len(group) else ''}: {text}")
        title = group_title(group[0], t)
        yield Table(f"published-{number}", title, columns, lines, tuple(notes))


def compared_on_terminal(group: Sequence[Case], limit: float | None, *, every: bool) -> Table:
    """The same table in the narrow form; with `every`, each row names its publication."""
    t, columns = load_labels(), _compared_columns(load_labels())
    labels = {"mine": group[0]["unit"], "n_published": "n", "interval": "interval"}
    labels |= {"mine_interval": "interval"}
    columns |= {name: replace(columns[name], label=text) for name, text in labels.items()}
    shown = ["topology", *(["publication"] if every else []), "mine", *_COMPARED]
    if limit is not None:
        columns["limit"] = limit_column(limit)
        shown.append("limit")
    rows = _compared(group, t, comma="", between="-")
    return Table("", "", *composed(columns, rows, shown, shown))


def comparison(name: str, rows: Sequence[Case], heading: str, t: Labels) -> Table:
    """The rows whole: the factors that decide, others that differ, and what is not stated."""
    columns = _compared_columns(t)
    names = [n for n in columns if n not in ("topology", "publication")]
    lines = _compared([_translated(row, t) for row in rows], t)
    return Table(name, heading, *composed(columns, lines, names, names))


def _translated(row: Case, t: Labels) -> Case:
    """The row with its conditions in the language of the report, and its whole publication."""
    conditions = ("stated", "factors", "noted", "unknown")
    texts = {name: t.conditions(row.get(name)) for name in conditions}
    names = ("published_title", "published_date", "published_source")
    publication = ", ".join(str(row[name]) for name in names if row.get(name))
    return {**row, **texts, "published_title": publication or None}


_COMPARED = ("mine_interval", "n", "published", "n_published", "ratio", "interval", "verdict")


def _compared_columns(t: Labels) -> dict[str, Column]:
    rate, below = "#,##0.00", partial(Column, number=True, stacks=True)
    return {
        "case": Column(t("case")),
        "topology": Column("topology"),
        "publication": Column("publication", stacks=True, wraps=True),
        "nodes": Column("node_num", True, "0"),
        "devices": Column("gpu_num", True, "0"),
        "mine": Column(t("mine"), True, rate),
        "mine_interval": below(t("interval_of_measured"), hint=t("interval_hint")),
        "n": Column("n", True, "0", hint=t("n_hint")),
        "published": Column(t("published"), True, rate),
        "n_published": below(t("n_published"), format="0", hint=t("n_published_hint")),
        "ratio": Column(t("ratio"), True, "0.000"),
        "interval": below(t("interval_of_ratio"), hint=t("ratio_hint")),
        "verdict": Column(t("verdict"), wraps=True),
        **{f"below_{name}": Column(t(name)) for name in _BELOW},
    }


def _compared(
    group: Sequence[Case], t: Labels, comma: str = ",", between: str = " – "
) -> list[dict[str, Cell]]:
    """The cells of each row, its rates with the decimals of its workload."""
    forms = {
        name: f"{comma}.{rate_decimals(name, (row['mine'] for row in rows))}f"
        for name, rows in grouped(group, itemgetter("workload")).items()
    }
    return [
        {
            "case": cell(group_title(row, t)),
            "topology": cell(topology_text(row)),
            "publication": cell(row.get("publication") or None),
            "nodes": cell(row["nodes"]),
            "devices": cell(row["world_size"]),
            "mine": cell(row["mine"], form),
            "mine_interval": span(row.get("mine_low"), row.get("mine_high"), form, between),
            "n": cell(row["repeats"]),
            "published": cell(
                row["published"], lambda rate: as_published(rate).replace(",", comma)
            ),
            "n_published": cell(
                row.get("published_repeats"), ".0f", "-" if row["published"] is None else "?"
            ),
            "ratio": cell(row["ratio"], ratio),
            "interval": span(row.get("ratio_low"), row.get("ratio_high"), ratio, between),
            "verdict": judgement(row["verdict"], t),
            "limit": judgement(row.get("limit_verdict"), t),
            **{f"below_{name}": cell(row.get(column)) for name, column in _BELOW.items()},
        }
        for row in group
        for form in [forms[row["workload"]]]
    ]


def file_name(text: str) -> str:
    """The text as part of a file's name: what a log says cannot lead out of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).lstrip(".")[:80]


SettingRow = tuple[str | None, ...]


def sweep_tables(cases: Sequence[Case], t: Labels) -> Iterator[Table]:
    """One table per sweep of the cases, with the best setting of each topology below it."""
    for number, sweep in enumerate(sweeps(cases), start=1):
        rows = dict.fromkeys(_setting_row(c, sweep) for place in sweep.places for c in place.cases)
        columns = [Column(label(axis)) for axis in sweep.axes]
        for place in sweep.places:
            name = f"{topology_text(place.best)} {place.best['unit']}"
            columns.append(Column(name, True, sheet_form(place.cases)))
        lines = tuple(
            (*map(cell, row), *(_swept_rate(row, place, sweep) for place in sweep.places))
            for row in rows
        )
        notes = tuple(_best_setting(place, sweep, t) for place in sweep.places)
        first, common = sweep.places[0].best, parameters_text(sweep.common)
        varied = {axis: None for axis in sweep.axes if axis in first}
        title = group_title({**first, "parameters": common, **varied}, t)
        yield Table(f"sweep-{number}", title, tuple(columns), lines, notes)


def _setting_row(case: Case, sweep: Sweep) -> SettingRow:
    return tuple(setting(case, axis) for axis in sweep.axes)


def _swept_rate(row: SettingRow, place: SweptTopology, sweep: Sweep) -> Cell:
    case = next((case for case in place.cases if _setting_row(case, sweep) == row), None)
    return cell(None if case is None else case[_MEDIAN], rate_form(place.cases))


def _best_setting(place: SweptTopology, sweep: Sweep, t: Labels) -> str:
    rate = f"{place.best[_MEDIAN]:{rate_form(place.cases)}}"
    unit = place.best["unit"]
    place_name, best = topology_text(place.best), _setting_words(place.best, sweep)
    text = t("sweep_best", topology=place_name, setting=best, rate=rate, unit=unit)
    if not place.undecided:
        return text
    others = "; ".join(_setting_words(case, sweep) for case in place.undecided)
    return t("between_sentences").join((text, t("sweep_undecided", settings=others)))


def _setting_words(case: Case, sweep: Sweep) -> str:
    return ", ".join(
        f"{label(axis)} {value or '-'}"
        for axis, value in zip(sweep.axes, _setting_row(case, sweep), strict=True)
    )


_PARTS = ("computation", "waiting", "communication")


def has_parts(group: Sequence[Case]) -> bool:
    """True if the logs of a case on several devices say where the time goes."""
    return any(case["world_size"] > 1 and step_parts(case) for case in group)


def _is_explained(group: Sequence[Case]) -> bool:
    columns = ("nccl_network", ALL_REDUCE_BUS, INPUT_SHARE)
    on_several = [case for case in group if case["world_size"] > 1]
    is_recorded = any(nccl_share(case) or any(map(case.get, columns)) for case in on_several)
    return has_parts(group) or is_recorded


def _measured_bandwidth(groups: Sequence[Sequence[Case]]) -> dict[str, float]:
    """The highest bus bandwidth of nccl-allreduce in the campaign, by topology."""
    highest: dict[str, float] = {}
    for case in (case for group in groups for case in group):
        rate = case[f"{SAMPLES_PER_SECOND}_median"]
        if is_bandwidth(case) and "all-reduce" in case["model"] and rate:
            topology = topology_text(case)
            highest[topology] = max(rate, highest.get(topology, 0.0))
    return highest


def time_tables(groups: Sequence[Sequence[Case]], t: Labels) -> Iterator[Table]:
    """A table per group whose logs say something of it."""
    bandwidth = _measured_bandwidth(groups)
    for number, group in enumerate(filter(_is_explained, groups), start=1):
        timed = [(case, step_parts(case)) for case in group]
        columns = (
            *(Column(label, True, "0") for label in ("node_num", "gpu_num")),
            *(Column(t(f"part_{name}"), True, "0.000") for name in ("step", *_PARTS)),
            Column(t("part_share"), True, "0.0%", hint=t("part_share_hint")),
            Column(t("part_slowest"), True, "0"),
            *(
                Column(t(f"part_{name}"), True, form, hint=t(f"part_{name}_hint"))
                for name, form in (("nccl", "0.0%"), ("input", "0.0%"), ("all_reduce", "0.00"))
            ),
            *(Column(t("part_of_measured"), True, "0.0%"), Column(t("part_network"))),
        )
        cells = [_time_row(*each, bandwidth) for each in timed]
        columns_with, rows = without_empty(columns, cells, 2)
        notes = tuple(
            _paragraph(case, parts, bandwidth, t) for case, parts in timed if case["nodes"] > 1
        )
        title = group_title(group[0], t)
        yield Table(f"time-{number}", title, columns_with, rows, tuple(filter(None, notes)))


def _share(case: Case, bandwidth: Mapping[str, float]) -> float | None:
    """The share of the campaign's nccl-allreduce that the all-reduce of the gradients reached."""
    reached, measured = case.get(ALL_REDUCE_BUS), bandwidth.get(topology_text(case))
    return reached / measured if reached and measured else None


def _time_row(
    case: Case, parts: StepParts | None, bandwidth: Mapping[str, float]
) -> tuple[Cell, ...]:
    times: tuple[Cell, ...] = (cell(None),) * (len(_PARTS) + 3)
    if parts is not None:
        times = (
            *(cell(getattr(parts, name), seconds) for name in ("step", *_PARTS)),
            cell(parts.communication / parts.step, ".1%"),
            cell(parts.slowest_rank),
        )
    return (
        *(cell(case["nodes"]), cell(case["world_size"]), *times),
        cell(nccl_share(case), ".1%"),
        cell(case.get(INPUT_SHARE), ".1%"),
        cell(case.get(ALL_REDUCE_BUS), ".2f"),
        cell(_share(case, bandwidth), ".1%"),
        cell(case.get("nccl_network")),
    )


def _paragraph(
    case: Case, parts: StepParts | None, bandwidth: Mapping[str, float], t: Labels
) -> str:
    """The measured parts of a case on several nodes, and which were not measured."""
    topology, sentences = topology_text(case), []
    if parts is not None:
        shares = {name: f"{getattr(parts, name) / parts.step:.1%}" for name in _PARTS}
        sentences.append(t("time_of_step", topology=topology, step=seconds(parts.step), **shares))
    if parts is not None and parts.slowest_rank is not None and parts.has_straggler:
        node = parts.slowest_rank // case["gpus_per_node"] + 1
        sentences.append(t("time_straggler", rank=parts.slowest_rank, node=node))
    if (share := nccl_share(case)) is not None:
        sentences.append(t("time_nccl", topology=topology, share=f"{share:.1%}"))
    if reduced := case.get(ALL_REDUCE_BUS):
        what = case.get("all_reduce_of") or ""
        sentences.append(t("time_all_reduce", topology=topology, rate=f"{reduced:.2f}", what=what))
    if share := _share(case, bandwidth):
        sentences.append(t("time_of_measured", share=f"{share:.1%}"))
    if network := case.get("nccl_network"):
        sentences.append(t("time_network", topology=topology, network=network))
    waited = case.get(INPUT_SHARE)
    if not sentences and waited is None:
        return ""
    if waited is not None:
        sentences.append(t("time_input", topology=topology, share=f"{waited:.1%}"))
    missing = {"time_no_parts": parts, "time_no_input": waited}
    sentences += [t(label, topology=topology) for label, value in missing.items() if value is None]
    return t("between_sentences").join(sentences)


def time_chart(title: str, group: Sequence[Case], t: Labels) -> Chart | None:
    """The parts of a step over the number of devices, one above the other."""
    if not has_parts(group):
        return None
    ordered = sorted(group, key=lambda case: (case["world_size"], case["nodes"]))
    timed = [(case["world_size"], parts) for case in ordered if (parts := step_parts(case))]
    lines = []
    for look, last in enumerate(_PARTS, start=1):
        points = tuple(
            ChartPoint(devices, total, hint=f"{seconds(total)} s")
            for devices, parts in timed
            for total in [sum(getattr(parts, name) for name in _PARTS[:look])]
        )
        lines.append(Line(t(f"line_{last}"), points, look - 1))
    return Chart(
        t("time_heading"),
        title,
        t("devices"),
        t("part_step"),
        tuple(lines),
        scale="log x",
        x_ticks=tuple(float(devices) for devices, _ in timed),
    )
