"""Programs whose logs can be read, whatever they train: a workload for each log format, of the
models that no workload of the catalogue has."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from ..logs import Format
from .workload import Model, Rule, Workload

# Steps are those of the log; the share of the warm-up is that of most workloads of the catalogue.
_RULE = Rule(total_steps=100, warmup_steps=20, estimator="mean_of_rates")


def workload_name(form: Format) -> str:
    """The name of the workload of a program: that of its log format."""
    return form.name.replace("_", "-")


def program_model(
    form: Format, model: str, framework: str | None, workloads: Mapping[str, Workload]
) -> Model:
    """A model that no workload of the catalogue has, with the rates that the format prints. What
    the format does not say is as in the first of the workloads with this format."""
    same = next((w for w in workloads.values() if w.log_format == form.name), None)
    by_format = next(iter(form.frameworks), same.framework if same else "unknown")
    unit = form.unit or (same.unit if same else "samples")
    workload = _program(form, framework or by_format, model, unit)
    return workload.models[0]


def _rule(form: Format) -> dict[str, object]:
    rule = {**_RULE.model_dump(), "rates_are_per": form.rates_are_per}
    rule["warmup_steps"], rule["total_steps"] = form.warmup
    if form.rates_are_per == "step":  # each is of as many steps, so their durations have a mean
        rule["estimator"] = "harmonic_mean_of_rates"
    if form.whole_run:
        rule |= {"total_steps": 1, "warmup_steps": 0, "estimator": "whole_run"}
    return rule | {"warmup_steps": 0} if form.silent_warmup else rule


@functools.lru_cache(maxsize=256)  # the logs of a tree are of few models
def _program(form: Format, framework: str, model: str, unit: str) -> Workload:
    return Workload.model_validate(
        {
            "name": workload_name(form),
            "title": form.name,
            "framework": framework,
            "model": model,
            "short_name": model,
            "log_format": form.name,
            "unit": unit,
            "rule": _rule(form),
        }
    )
