"""Prometheus: its text format for node_exporter, and OpenMetrics with the time of each campaign.

The labels of a case do not name its campaign, so that a case is one series over all campaigns. Only
cases that would lose their values to each other get a label with the name of their campaign.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from ..core.extras import require
from ..core.identity import CASE
from ..core.lists import grouped
from .record import ExportedCampaign

_PREFIX = "dlperf_"


class _Sample(NamedTuple):
    """A value of a series at a time, in seconds."""

    name: str
    unit: str
    text: str
    labels: tuple[tuple[str, str], ...]
    time: float
    value: float


def textfile(campaigns: Sequence[ExportedCampaign]) -> bytes:
    """For the textfile collector of node_exporter: the newest value of each series. That collector
    refuses times."""
    require("prometheus", "prometheus_client")
    from prometheus_client import exposition

    newest = {(s.name, s.labels): s for s in sorted(_samples(campaigns), key=lambda s: s.time)}
    return _rendered(exposition, newest.values(), is_timed=False)


def openmetrics(campaigns: Sequence[ExportedCampaign]) -> bytes:
    """Every campaign at its time: `promtool tsdb create-blocks-from openmetrics` takes it."""
    require("prometheus", "prometheus_client")
    from prometheus_client.openmetrics import exposition

    return _rendered(exposition, _samples(campaigns), is_timed=True)


def _mixed_up(campaigns: Sequence[ExportedCampaign]) -> set[tuple[int, int]]:
    """The cases, each by the numbers of its campaign and itself, that have the labels of a case
    from another place, or of another campaign of the same time."""
    alike = grouped(
        [(n, m) for n, campaign in enumerate(campaigns) for m in range(len(campaign.cases))],
        lambda at: frozenset(campaigns[at[0]].cases[at[1]].labels.items()),
    )
    mixed_up: set[tuple[int, int]] = set()
    for cases in alike.values():
        if len({campaigns[n].place for n, _ in cases}) > 1:
            mixed_up.update(cases)
        for same_time in grouped(cases, lambda at: campaigns[at[0]].created).values():
            mixed_up.update(same_time if len(same_time) > 1 else ())
    return mixed_up


def _samples(campaigns: Sequence[ExportedCampaign]) -> Iterator[_Sample]:
    mixed_up = _mixed_up(campaigns)
    for n, campaign in enumerate(campaigns):
        time, campaign_label = campaign.created.timestamp(), (("campaign", campaign.name),)
        yield _Sample(
            "campaign_created_timestamp_seconds",
            "seconds",
            "When the campaign was made.",
            (*campaign_label, ("tags", ",".join(campaign.tags))),
            time,
            time,
        )
        for state, runs in campaign.states.items():
            labels = (*campaign_label, ("state", state))
            yield _Sample("campaign_runs", "", "Runs by state.", labels, time, runs)
        for m, case in enumerate(campaign.cases):
            # Every sample of a metric has the same labels.
            identity = tuple((name, case.labels.get(name, "")) for name in CASE)
            if mixed_up:
                identity += (("campaign", campaign.name if (n, m) in mixed_up else ""),)
            for name, number in case.numbers.items():
                yield _Sample(name, number.unit, number.text, identity, time, number.value)


def _rendered(exposition: Any, samples: Iterable[_Sample], *, is_timed: bool) -> bytes:
    from prometheus_client.metrics_core import GaugeMetricFamily

    families: dict[str, GaugeMetricFamily] = {}
    for sample in sorted(samples):
        name = _PREFIX + sample.name
        family = families.setdefault(name, GaugeMetricFamily(name, sample.text, unit=sample.unit))
        time = sample.time if is_timed else None
        family.add_sample(name, dict(sample.labels), sample.value, time)
    # All that the library asks of a registry.
    text: bytes = exposition.generate_latest(SimpleNamespace(collect=families.values))
    return text


TEXTS = {"prometheus": textfile, "openmetrics": openmetrics}
