"""Logs measured by the published rules."""

from __future__ import annotations

from functools import partial

from make_logs import RULES

from dlperf_runner import logs
from dlperf_runner.core.case import Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.units import SAMPLES, TOKENS, Unit
from dlperf_runner.measure.estimators import Expected, Measured, Rule
from dlperf_runner.measure.numbering import LogLines
from dlperf_runner.measure.run import measure

RESNET = RULES["mxnet-resnet50v1b.md"]
ARCFACE = RULES["mxnet-insightface-arcface.md"]
PLSC = RULES["paddle-plsc-arcface.md"]


def changed(rule: Rule, **values: object) -> Rule:
    """The rule with other values."""
    return Rule.model_validate({**rule.model_dump(), **values})


def run(
    form: str,
    lines: list[str] | str | bytes,
    rule: Rule,
    topology: str = "1n1g",
    precision: str = "fp32",
    batch: int = 128,
    length: int | None = None,
    unit: Unit | None = None,
) -> Measured:
    text = "\n".join(lines) + "\n" if isinstance(lines, list) else lines
    data = text.encode() if isinstance(text, str) else text
    topology_ = Topology.parse(topology)
    unit = unit or (TOKENS if length else SAMPLES)
    expected = Expected(lambda _: "the plan", topology_, precision, batch, unit, length)
    entry = logs.formats()[form]
    line_of = partial(logs.line_of, entry, [data])
    try:
        return measure(
            entry, logs.parse(entry, [data]), rule, expected, LogLines(line_of, "train.log")
        )[0]
    except logs.LineError as error:
        raise UserError(
            error.problem,
            where=f"train.log:{error.line}",
            expected=error.expected,
            found=error.found,
            hint=error.hint,
        ) from None


def values(measured: Measured) -> dict[str, float]:
    return {f"{m.metric} {m.estimator}": m.value for m in measured.measurements}


def dll(first: int, every: int, final: str | None) -> list[str]:
    stamp = "Tue Jun 14 15:40:21 2022[1,0]<stdout>:DLL 2022-06-14 15:40:21.026182 -"
    lines = [f"{stamp} (0, {step}) total_ips : 33000.0" for step in range(first, 500, every)]
    return lines + ([f"{stamp} () train_throughput : {final}"] if final else [])
