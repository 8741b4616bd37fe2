"""The tables of cases: in the published reports' own layout and more, side by side, compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    setting,
    short_digest,
    sweeps,
    workload_title,
)
from ..stats.summary import StepParts, nccl_share, step_parts
from .charts import Chart, ChartPoint, Line
from .labels import Labels, each_condition
from .layout import MEMORY
from .numbers import as_published, joules, rate_decimals, ratio, seconds, speedup, tflops
from .tables import Cell, Column, Table, cell, span, without_empty
from .units import energy_unit, is_bandwidth, per_device, step_time

METHODS = ("rate", "interval", "speedup", "pooling", "validity", "published", "series")
_REPORTED = 4  # columns that the published reports have: node_num, gpu_num, samples/s, speedup
_OUTLIERS = 10  # their column
_PERCENT = "0.0%"


def group_title(case: Case, t: Labels) -> str:
    """What a table is about, as `summarize` says it, and the campaign where there are several."""
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
    form, unit = rate_form(group), group[0]["unit"]
    formula = next((text for case in group if (text := case.get("flops_formula"))), "")
    columns = [
        Column("node_num", True, "0"),
        Column("gpu_num", True, "0"),
        Column(unit, True, sheet_form(group)),
        Column("speedup", True, "0.00"),
        Column(f"{unit}/{t('device')}", True, sheet_form(group)),
        Column(t("interval_of_rate", unit=unit), True, hint=t("interval_hint")),
        Column(t("interval_of_speedup"), True, hint=t("ratio_hint")),
        Column(t("efficiency"), True, _PERCENT),
        Column("n", True, "0", hint=t("n_hint")),
        Column("CV", True, "0.00%", hint=t("cv_hint")),
        Column(t("outliers"), True, "0", hint=t("outliers_hint")),
        Column(t("gpu_memory"), True, "#,##0", hint=MEMORY),
        *(
            Column(t(f"step_{name}"), True, "0.000", hint=t("step_hint"))
            for name in ("median", "p95", "p99")
        ),
        Column(t("log_memory"), True, "#,##0", hint=t("log_memory_hint")),
        Column(f"TFLOP/s/{t('device')}", True, "0.0", hint=t("flops_hint")),
        Column(f"MFU ({formula.partition(' ')[0]})", True, _PERCENT, hint=formula),
        Column(energy_unit(group[0]), True, "0.000", hint=t("energy_hint")),
        Column("W", True, "#,##0", hint=t("power_hint")),
    ]
    rows = [_row(case, form) for case in group]
    if not any(case.get("samples_per_second_outliers") for case in group):
        rows = [(*row[:_OUTLIERS], cell(None), *row[_OUTLIERS + 1 :]) for row in rows]
    # A bandwidth has no speed-up.
    keep = _REPORTED - is_bandwidth(group[0])
    shown, lines = without_empty(columns, rows, keep)
    title = group_title(group[0], t)
    return Table(f"table-{number}", title, shown, lines, (_note(group, t),))


def rate_form(group: Sequence[Case]) -> str:
    return f",.{_decimals(group)}f"


def sheet_form(group: Sequence[Case]) -> str:
    return "#,##0." + "0" * _decimals(group)


def _decimals(group: Sequence[Case]) -> int:
    medians = [case["samples_per_second_median"] for case in group]
    return rate_decimals(group[0]["workload"], medians)


def _row(case: Case, form: str) -> tuple[Cell, ...]:
    rate = "samples_per_second"
    return (
        cell(case["nodes"]),
        cell(case["world_size"]),
        cell(case[f"{rate}_median"], form),
        cell(case["speedup"], speedup),
        cell(per_device(case), form),
        span(case.get(f"{rate}_ci_low"), case.get(f"{rate}_ci_high"), form),
        span(case.get("speedup_ci_low"), case.get("speedup_ci_high"), speedup),
        cell(case["scaling_efficiency"], ".1%"),
        cell(case["repeats"]),
        cell(case.get(f"{rate}_cv"), ".2%"),
        cell(case.get(f"{rate}_outliers")),
        cell(case["gpu_memory_mib"], ",.0f"),
        *(cell(step_time(case, name), seconds) for name in ("median", "p95", "p99")),
        cell(case.get("log_memory_mib"), ",.0f"),
        cell(case.get(MODEL_TFLOPS), tflops),
        cell(case.get("mfu"), ".1%"),
        cell(case.get(f"{ENERGY}_j"), joules),
        cell(case.get(f"{POWER}_w"), ",.0f"),
    )


def _note(group: Sequence[Case], t: Labels) -> str:
    """What base the speed-ups have, and how much the intervals cover."""
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
    """How fast it is and how it scales, in a few words, and how sure that is."""

    head: str
    rest: str
    whole: str

    def __str__(self) -> str:
        return self.whole


def machine(case: Case, t: Labels) -> str:
    """What a case ran on, as far as it is known."""
    driver = t("of_driver", name=case["driver"]) if case["driver"] else None
    return t("comma").join(filter(None, (case["accelerator"], driver)))


def answers(
    all_cases: Sequence[Case], verdicts: Sequence[Case], dates: Mapping[Any, str], t: Labels
) -> Iterator[Answer]:
    """One per framework and model: its fastest case on the most devices, and what was made of
    `verdicts`, which are rows of compare_published. `dates` are by the campaign of a case."""
    for (framework, model), own in grouped(all_cases, itemgetter("framework", "model")).items():
        best = max(own, key=lambda case: (case["world_size"], case["samples_per_second_median"]))
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
        found = [row for row in verdicts if (row["framework"], row["model"]) == (framework, model)]
        known = filter(None, (machine(best, t), dates.get(best["campaign"])))
        rest = t("separator").join((*known, *_details(best, own, found, t)))
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
    for (family, precision, unit), own in together.items():
        groups = grouped(own, itemgetter("framework", "campaign", *GROUP))
        if len({key[0] for key in groups}) < 2:
            continue
        number += 1
        heading = t("beside", model=family, precision=precision, unit=unit)
        yield _beside(number, heading, list(groups.values()), unit)


def _beside(number: int, heading: str, groups: Sequence[Sequence[Case]], unit: str) -> Table:
    names = line_names(groups)
    columns = [Column("node_num", True, "0"), Column("gpu_num", True, "0")]
    for name, group in zip(names, groups, strict=True):
        columns.append(Column(f"{name} {unit}", True, sheet_form(group)))
        columns.append(Column(f"{name} speedup", True, "0.00"))
    topologies = sorted({(case["world_size"], case["nodes"]) for group in groups for case in group})
    by_place = [{(case["world_size"], case["nodes"]): case for case in group} for group in groups]
    rows = []
    for world_size, nodes in topologies:
        row = [cell(nodes), cell(world_size)]
        for group, own in zip(groups, by_place, strict=True):
            case = own.get((world_size, nodes), {})
            row.append(cell(case.get("samples_per_second_median"), rate_form(group), ""))
            row.append(cell(case.get("speedup"), speedup, ""))
        rows.append(tuple(row))
    shown, lines = without_empty(columns, rows, 2)
    return Table(f"beside-{number}", heading, shown, lines)


# ---- beside what was published


def verdict_text(verdict: str, t: Labels) -> str:
    return t.optional(f"verdict_{verdict.replace(' ', '_')}", verdict)


def comparisons(rows: Sequence[Case], whole: Table, t: Labels) -> Iterator[Table]:
    """What compare_published found, a table per group; its longest texts stand below it. `whole`
    is the comparison of all rows."""
    group_of = itemgetter("campaign", *GROUP)
    groups = grouped(range(len(rows)), lambda place: group_of(rows[place]))
    kept = [n for n in range(1, len(whole.columns)) if n not in _BELOW]
    for number, places in enumerate(groups.values(), start=1):
        own, cells = [rows[place] for place in places], [whole.rows[place] for place in places]
        lines = [tuple(row[n] for n in kept) for row in cells]
        columns, shown = without_empty([whole.columns[n] for n in kept], lines, 3)
        notes = tuple(
            f"{whole.columns[n].label}{text}" for n in _BELOW for text in _said_below(cells, own, n)
        )
        yield Table(f"published-{number}", group_title(own[0], t), columns, shown, notes)


# Columns of a comparison: what was only stated, the estimator, conditions, the publication.
_BELOW = range(9, 17)
_ONLY_STATED = 9


def _said_below(
    lines: Sequence[tuple[Cell, ...]], rows: Sequence[Case], place: int
) -> Iterator[str]:
    """Each text of a column once, with the cases that it is about where it is not about all."""
    about: dict[str, list[str]] = {}
    for cells, row in zip(lines, rows, strict=True):
        if cells[place].value is not None:
            text = cells[place].text
            for part in each_condition(text) if place == _ONLY_STATED else [text]:
                about.setdefault(part, []).append(topology_text(row))
    for cases, texts in grouped(about, lambda part: tuple(about[part])).items():
        text = ", ".join(texts) if place == _ONLY_STATED else "; ".join(texts)
        which = "" if len(cases) == len(rows) else f" ({', '.join(cases)})"
        yield f"{which}: {text}"


def comparison(name: str, rows: Sequence[Case], heading: str, t: Labels) -> Table:
    """The rows whole: the factors that decide, others that differ, and what is not stated."""
    columns = (
        Column(t("case")),
        Column("node_num", True, "0"),
        Column("gpu_num", True, "0"),
        Column(t("mine"), True, "#,##0.00"),
        Column("n", True, "0", hint=t("n_hint")),
        Column(t("published"), True, "#,##0.00"),
        Column(t("ratio"), True, "0.000"),
        Column(t("interval_of_ratio"), True, hint=t("ratio_hint")),
        Column(t("verdict")),
        Column(t("stated")),
        Column(t("factor_estimator")),
        Column(t("factors")),
        Column(t("to_state")),
        Column(t("noted")),
        Column(t("declared")),
        Column(t("not_stated")),
        Column(t("publication")),
    )
    return Table(name, heading, columns, tuple(_compared(row, t) for row in rows))


def _compared(row: Case, t: Labels) -> tuple[Cell, ...]:
    verdict = str(row["verdict"])
    names = ("published_title", "published_date", "published_source")
    publication = ", ".join(str(row[name]) for name in names if row.get(name))
    return (
        cell(group_title(row, t)),
        cell(row["nodes"]),
        cell(row["world_size"]),
        cell(row["mine"], f",.{rate_decimals(row['workload'], [row['mine']])}f"),
        cell(row["repeats"]),
        cell(row["published"], as_published),
        cell(row["ratio"], ratio),
        span(row.get("ratio_low"), row.get("ratio_high"), ratio),
        Cell(verdict_text(verdict, t), verdict, mark=verdict),
        cell(t.conditions(row["stated"])),
        cell(row["estimator"]),
        cell(t.conditions(row.get("factors"))),
        cell(row.get("to_state")),
        cell(t.conditions(row.get("noted"))),
        cell(row.get("declared")),
        cell(t.conditions(row.get("unknown"))),
        cell(publication or None),
    )


def file_name(text: str) -> str:
    """The text as part of a file's name: what a log says cannot lead out of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).lstrip(".")[:80]


_MEDIAN = "samples_per_second_median"
SettingRow = tuple[str | None, ...]


def sweep_tables(cases: Sequence[Case], t: Labels) -> Iterator[Table]:
    """One table per sweep of the cases, with the best setting of each topology below it."""
    for number, sweep in enumerate(sweeps(cases), start=1):
        rows = dict.fromkeys(_setting_row(c, sweep) for place in sweep.places for c in place.cases)
        columns = [Column(label(axis)) for axis in sweep.axes]
        columns += [
            Column(
                f"{topology_text(place.best)} {place.best['unit']}",
                True,
                sheet_form(place.cases),
            )
            for place in sweep.places
        ]
        lines = tuple(
            (*map(cell, row), *(_swept_rate(row, place, sweep) for place in sweep.places))
            for row in rows
        )
        notes = tuple(_best_setting(place, sweep, t) for place in sweep.places)
        yield Table(f"sweep-{number}", _sweep_title(sweep, t), tuple(columns), lines, notes)


def _sweep_title(sweep: Sweep, t: Labels) -> str:
    common = {"parameters": parameters_text(sweep.common)}
    varied = {axis: None for axis in sweep.axes if axis in sweep.places[0].best}
    return group_title({**sweep.places[0].best, **common, **varied}, t)


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
    """Whether the logs of a case on several devices say where the time goes."""
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
            Column("node_num", True, "0"),
            Column("gpu_num", True, "0"),
            *(Column(t(f"part_{name}"), True, "0.000") for name in ("step", *_PARTS)),
            Column(t("part_share"), True, "0.0%", hint=t("part_share_hint")),
            Column(t("part_slowest"), True, "0"),
            Column(t("part_nccl"), True, "0.0%", hint=t("part_nccl_hint")),
            Column(t("part_input"), True, "0.0%", hint=t("part_input_hint")),
            Column(t("part_all_reduce"), True, "0.00", hint=t("part_all_reduce_hint")),
            Column(t("part_of_measured"), True, "0.0%"),
            Column(t("part_network")),
        )
        cells = [_time_row(*each, bandwidth) for each in timed]
        columns_with, rows = without_empty(columns, cells, 2)
        notes = tuple(
            _paragraph(case, parts, bandwidth, t) for case, parts in timed if case["nodes"] > 1
        )
        title = group_title(group[0], t)
        yield Table(f"time-{number}", title, columns_with, rows, tuple(filter(None, notes)))


def _share(case: Case, bandwidth: Mapping[str, float]) -> float | None:
    """What the all-reduce of the gradients reached of the campaign's nccl-allreduce."""
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
    """What is known of a case on several nodes, and which part was not measured; empty if nothing
    is known."""
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
    sentences += [t(label, topology=topology) for label, known in missing.items() if known is None]
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
