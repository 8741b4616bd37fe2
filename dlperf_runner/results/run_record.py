"""Runs and their records: a run for `summarize`, and the run.json of a campaign."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..campaign.directory import is_name
from ..catalog.validity import ValidityRules
from ..catalog.workload import Model, Rule
from ..core.case import Topology
from ..core.errors import UserError
from ..core.files import as_object, read_json, stored
from ..core.identity import (
    CASE,
    GROUP,
    TOPOLOGY,
    CaseKey,
    parameters_text,
    read_parameters,
    short_product,
)
from ..core.printable import printable
from ..core.units import SAMPLES, Unit
from ..logs import formats
from ..measure.estimators import WHOLE_RUN
from ..measure.validity import OtherProcess
from ..schedulers.job import is_placeholder

NOT_RUN = "was not run"


@dataclass(frozen=True)
class FoundRun:
    """A run and the path of its log. `why_not` gives the reason if there is no log to read."""

    path: Path
    workload: str
    framework: str
    model: str
    precision: str
    batch_size_per_device: float | None
    topology: Topology
    repeat: int
    rule: Rule | None
    log_format: str
    expected_by: str
    unit: Unit = SAMPLES
    source: str | None = None
    parameters: str | None = None  # see identity.parameters_text
    directory: str | None = None
    framework_version: str | None = None
    accelerator: str | None = None
    nvlink_domains: int | None = None
    node_gpus: str | None = None
    driver: str | None = None
    stack: str | None = None
    container: str | None = None
    gpu_memory_mib: float | None = None  # peak of the device with the highest use
    why_not: str | None = None
    stated_by: tuple[tuple[str, str], ...] = ()  # which option or mapping states a setting
    # Settings that the user or the log's path states, each with its source.
    asserted: tuple[tuple[str, str], ...] = ()
    assumed: tuple[str, ...] = ()  # what the identification of the run rests on, as notes
    rank: str | None = None  # whose lines count, as stated
    first_step: int | None = None  # of the first line with a rate, as stated
    log_every: int | None = None  # steps between two of these lines, as stated
    stated_parameters: tuple[tuple[str, str], ...] = ()
    other_words: str = ""  # of the log's name, whose meaning is unknown
    copy_of: str | None = None  # the log that counts instead, and what both have in common
    # Input of the validity rules: the run's hosts, its devices by host, and the plan's NCCL
    # variables.
    hosts: tuple[str, ...] = ()
    devices: tuple[tuple[str, tuple[int, ...]], ...] = ()
    nccl: tuple[tuple[str, str], ...] = ()
    other_processes: tuple[OtherProcess, ...] = ()
    unsampled: tuple[tuple[str, float], ...] = ()  # until when hosts without full telemetry had it
    rules: ValidityRules | None = None
    on_gpu: bool = False  # according to the plan
    by_pmix: bool = False  # Slurm's PMIx started the processes of MPI, not mpirun
    started: float | None = None  # seconds since the epoch, as recorded
    files: frozenset[str] | None = None  # names of the files beside run.json that count; None: all

    def has(self, name: str) -> bool:
        """True if a file of the run counts. Names of compressed files are as before."""
        return self.files is None or not self.files.isdisjoint((name, name.removesuffix(".gz")))

    def but(self, **changes: Any) -> FoundRun:
        """The run with other values of some fields. There may be thousands of runs, and
        dataclasses.replace takes many times as long."""
        other = object.__new__(FoundRun)
        vars(other).update(vars(self), **changes)
        for name in _CACHED & vars(other).keys():
            del vars(other)[name]
        return other

    def source_of(self, setting: str) -> str:
        """Who states a setting: the plan, the file name, an option or a mapping."""
        return dict(self.stated_by).get(setting, self.expected_by)

    @property
    def total_steps(self) -> int | None:
        """The steps of the run; None if its only rate is that of all, so that runs of one epoch on
        more devices, which have fewer steps, have a speed-up."""
        return self.rule.total_steps if self.rule and self.rule.estimator != WHOLE_RUN else None

    @property
    def warmup_steps(self) -> int | None:
        return self.rule.warmup_steps if self.rule else None

    @cached_property
    def case(self) -> CaseKey:
        """The key of runs that are repeats of each other."""
        return tuple([printable(v) if isinstance(v, str) else v for v in _case_of(self)])

    @cached_property
    def settings(self) -> tuple[object, ...]:
        """The key of runs that are in one table."""
        settings: tuple[object, ...] = attrgetter(*GROUP)(self)
        return settings

    @property
    def global_batch_size(self) -> int | None:
        """The samples of a step of all devices; None if unknown."""
        if self.batch_size_per_device is None:
            return None
        samples = round(self.batch_size_per_device * self.topology.world_size)
        form = formats().get(self.log_format)
        if form is not None and form.batch_of_step:
            return samples
        number = read_parameters(self.parameters).get("accumulation_steps", "1")
        return samples * int(number) if number.isdecimal() else samples

    @property
    def setting(self) -> str:
        name = " ".join(filter(None, (self.directory, self.workload, self.source)))
        batch = self.batch_size_per_device
        return f"{name} {self.precision}" + ("" if batch is None else f" b{batch}")

    def __str__(self) -> str:
        return f"{self.setting} {self.topology}"


_CACHED = {name for name, value in vars(FoundRun).items() if isinstance(value, cached_property)}
_case_of: Callable[[FoundRun], tuple[object, ...]] = attrgetter(
    *(f"topology.{name}" if name in TOPOLOGY else name for name in CASE)
)


def planned_run(path: Path, models: Sequence[Model]) -> FoundRun:
    """The run that a run.json describes."""
    document = read_json(path)
    text = partial(_text, path, document)
    number = partial(_count_of, path, document)
    workload, model, log_name = text("workload"), text("model"), text("log_name")
    entries = [entry for entry in models if entry.workload.name == workload]
    entries = [entry for entry in entries if entry.name == model] or entries
    window = (number("total_steps"), number("warmup_steps", least=0))
    outcome = as_object(document.get("outcome"))
    if not is_name(log_name):
        raise _bad_key(path, document, "log_name", "the name of a file beside it")
    log = stored(path.with_name(log_name))
    domains = document.get("nvlink_domains")
    on_gpu = text("accelerator") != "cpu"
    return FoundRun(
        path=log,
        workload=workload,
        framework=text("framework"),
        model=model,
        precision=text("precision"),
        batch_size_per_device=number("batch_size_per_device"),
        topology=Topology(number("nodes"), number("gpus_per_node")),
        repeat=number("repeat"),
        rule=entries[0].rule_of(*window) if entries else None,
        log_format=text("log_format"),
        expected_by="the plan",
        unit=entries[0].workload.unit if entries else SAMPLES,
        source=text("source"),
        parameters=_parameters(path, document, entries),
        framework_version=version_of(outcome, text("framework")),
        accelerator=_products(outcome) if on_gpu else "cpu",
        nvlink_domains=len(domains) or None if isinstance(domains, list) else None,
        node_gpus=_joined(len(names) for names in _gpus(outcome)) if on_gpu else None,
        on_gpu=on_gpu,
        driver=_joined(node["driver"] for node in _facts(outcome) if node.get("driver")),
        stack=text("stack"),
        container=text("container"),
        gpu_memory_mib=_gpu_memory(outcome),
        why_not=_why_not(outcome),
        hosts=_hosts(document, outcome),
        devices=_devices(outcome),
        nccl=_nccl(document),
        other_processes=_other_processes(outcome),
        unsampled=_unsampled(outcome),
        by_pmix=outcome.get("mpi") == "pmix",
        started=_started(outcome),
    )


def _started(outcome: Mapping[str, Any]) -> float | None:
    try:
        moment = datetime.fromisoformat(outcome["started"])
    except (KeyError, TypeError, ValueError):
        return None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _why_not(outcome: Mapping[str, Any]) -> str | None:
    """The reason why a run has no log to count; None if the run is done."""
    status = outcome.get("status")
    if status == "done":
        return None
    if status == "failed":
        kind = f" ({outcome['category']})" if isinstance(outcome.get("category"), str) else ""
        advice = f". {outcome['advice']}" if isinstance(outcome.get("advice"), str) else ""
        return f"failed{kind}: {outcome.get('message') or 'no reason was recorded'}{advice}"
    if status == "running":
        return "did not finish: it is still running or was interrupted"
    return NOT_RUN


def version_of(outcome: Mapping[str, Any], framework: str) -> str | None:
    """The version of the framework's package, whose name may be mxnet-cu102, paddlepaddle or, for
    pytorch, torch. tensorflow2 and paddle3 are other releases of a package without the number."""
    names = as_object(outcome.get("versions"))
    begin = framework.removeprefix("py").rstrip(string.digits)
    fitting = sorted((n for n in names if n.startswith(begin) and names[n] is not None), key=len)
    return str(names[fitting[0]]) if fitting else None


def _parameters(path: Path, document: Mapping[str, Any], entries: Sequence[Model]) -> str | None:
    values = document.get("parameters")
    if not isinstance(values, dict):
        raise _bad_key(path, document, "parameters", "an object")
    if entries:
        values = entries[0].workload.measured_parameters(str(document["source"]), values)
    return parameters_text(values)


def _facts(outcome: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    hosts = as_object(outcome.get("hosts"))
    return [node for node in hosts.values() if isinstance(node, dict)]


def _gpus(outcome: Mapping[str, Any]) -> list[list[str]]:
    products = [node.get("gpus") for node in _facts(outcome)]
    return [list(map(str, names)) for names in products if names and isinstance(names, list)]


def _products(outcome: Mapping[str, Any]) -> str | None:
    products = [short_product(name) for names in _gpus(outcome) for name in names]
    silent = len(_facts(outcome)) > len(_gpus(outcome))
    return _joined([*products, *(["unknown"] if products and silent else [])])


def _joined(values: Iterable[object]) -> str | None:
    """The values, joined by + if the nodes differ; None if there are none."""
    return "+".join(sorted(set(map(str, values)))) or None


def _gpu_memory(outcome: Mapping[str, Any]) -> float | None:
    """The highest memory use of a device of the run, as sampled on its nodes."""
    peaks = [
        float(peak)
        for devices in as_object(outcome.get("gpu_memory_mib")).values()
        for peak in as_object(devices).values()
        if isinstance(peak, int | float) and not isinstance(peak, bool)
    ]
    return max(peaks, default=None)


def _hosts(document: Mapping[str, Any], outcome: Mapping[str, Any]) -> tuple[str, ...]:
    """The planned hosts; of a scheduler's job, those that it chose."""
    hosts = document.get("hosts")
    planned = tuple(map(str, hosts)) if isinstance(hosts, list) else ()
    chosen = tuple(as_object(outcome.get("hosts")))
    return chosen if chosen and any(map(is_placeholder, planned)) else planned


def _devices(outcome: Mapping[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple(
        (str(host), tuple(int(name) for name in devices if str(name).isdecimal()))
        for host, devices in as_object(outcome.get("gpu_memory_mib")).items()
        if isinstance(devices, dict)
    )


def _other_processes(outcome: Mapping[str, Any]) -> tuple[OtherProcess, ...]:
    """The processes that the supervisors saw; malformed entries are skipped."""
    recorded = outcome.get("beside")
    rows = [row for row in recorded if isinstance(row, dict)] if isinstance(recorded, list) else []
    return tuple(
        OtherProcess(str(row["host"]), row["uid"], str(row["command"]), float(row["cores"]))
        for row in rows
        if {"host", "command"} <= set(row)
        and isinstance(row.get("uid"), int)
        and isinstance(row.get("cores"), int | float)
    )


def _unsampled(outcome: Mapping[str, Any]) -> tuple[tuple[str, float], ...]:
    """The hosts whose telemetry ended before the run, and after how many seconds."""
    pairs = as_object(outcome.get("unsampled_from_s")).items()
    return tuple((str(host), float(s)) for host, s in pairs if isinstance(s, int | float))


def _nccl(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    commands = document.get("commands")
    first = as_object(commands[0] if isinstance(commands, list) and commands else None)
    variables = as_object(first.get("env"))
    return tuple((k, str(v)) for k, v in variables.items() if k.startswith("NCCL_"))


def _text(path: Path, document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise _bad_key(path, document, key, "a string")
    return value


def _count_of(path: Path, document: Mapping[str, Any], key: str, least: int = 1) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**53:
        raise _bad_key(path, document, key, f"an integer of at least {least}")
    return value


def _bad_key(path: Path, document: Mapping[str, Any], key: str, expected: str) -> UserError:
    value = json.dumps(document[key])[:80] if key in document else "none"
    problem = f"the run record has an invalid {key}"
    return UserError(problem, where=str(path), expected=expected, found=value)
