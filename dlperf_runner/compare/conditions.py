"""The conditions of a case, and how they differ from those of a publication.

A condition is a name and a value. None means unknown; an unknown value never equals another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from ..catalog.publication import ComparisonRule, RecordedConditions
from ..catalog.published_numbers import PublishedNumber
from ..catalog.types import listed
from ..catalog.workload import Model, Workload
from ..core.errors import UserError
from ..core.files import as_object, readable_json
from ..core.identity import CaseKey, data_kind, label, read_parameters, short_product
from ..core.units import per_second
from ..results.run_record import FoundRun

BARE = "none"  # a run without a container
ONLY_STATED = "stated"  # beside the conditions of a case: those that --condition alone states
Values = Mapping[str, object]

# In display order. The catalogue says which of them must be equal in a comparison.
FACTORS = (
    *("accelerator", "unit", "precision", "recipe"),
    *("batch_size_per_device", "global_batch_size", "sequence_length", "message_bytes"),
    *("data", "image_size", "classes", "memory_format", "input_pipeline", "noise"),
    *("xla", "compile", "recompute", "parallelism"),
    *("micro_batch_size", "accumulation_steps", "nvls", "steps", "estimator"),
    *("implementation", "framework_version", "container", "driver"),
    *("cuda", "cudnn", "nccl", "interconnect"),
)
# What the measurement of a bandwidth does not have.
OF_TRAINING = frozenset(
    {"batch_size_per_device", "global_batch_size", "data", "xla", "compile", "recipe", "steps"}
)
# Conditions that the user may state if the run records do not have them.
_OF_CASE = ("unit", "precision", "batch_size_per_device", "global_batch_size")
STATED = tuple(name for name in FACTORS if name not in _OF_CASE)
_LIBRARIES = ("cuda", "cudnn", "nccl")
_WHEELS = {"cuda": "nvidia-cuda-runtime", "cudnn": "nvidia-cudnn", "nccl": "nvidia-nccl"}
_SWITCHES = ("xla", "compile", "nvls")
# Parameters that are conditions of the same name.
_AS_NAMED = (
    *("image_size", "classes", "memory_format", "recompute", "sequence_length"),
    *("accumulation_steps", "micro_batch_size"),
)
_SELDOM_STATED = ("image_size", "classes", "memory_format", "global_batch_size")
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_PRODUCT = re.compile(r"(?P<family>[A-Z]{1,3}\d+[A-Za-z]?)(?P<rest>[^+]*)", re.ASCII)
_FORM = re.compile(r"SXM\d?|PCIe|NVL", re.IGNORECASE | re.ASCII)
_MEMORY = re.compile(r"(\d+) ?G[Bi]?", re.ASCII)
_XLA = ("--xla", "--use_xla")
_WITHOUT_XLA = frozenset({"mxnet", "oneflow", "paddle", "paddle3"})  # frameworks


@dataclass(frozen=True)
class Difference:
    """A condition in which two measurements differ, or that is unknown for one of them. With
    `is_partial`, the user's says less than the other: V100 may be V100-SXM2-16GB."""

    factor: str
    measured: str | None
    other: str | None
    is_partial: bool = False

    def __str__(self) -> str:
        return (
            f"{label(self.factor)} ({self.measured or 'unknown'}, {self.other or 'not published'})"
        )


# ---- conditions of the user's own runs


def read_conditions(
    runs: Iterable[FoundRun],
    models: Iterable[Model],
    rule: ComparisonRule,
    stated: Values | None = None,
) -> dict[CaseKey, dict[str, object]]:
    """The known conditions of the runs, by case: from their records, from the catalogue entry of
    their workload, and from `stated`. If the runs of a case differ, all values are named.
    ONLY_STATED names what is known from `stated` alone. Raises UserError if `stated` contradicts a
    known condition."""
    workloads = {model.workload.name: model.workload for model in models}
    by_case: dict[CaseKey, dict[str, list[object]]] = {}
    paths: dict[CaseKey, Path] = {}
    for run in runs:
        paths.setdefault(run.case, run.path)
        values = by_case.setdefault(run.case, {})
        conditions = conditions_of(run, readable_json(run.path.with_name("run.json")), rule)
        if run.workload in workloads:
            conditions["implementation"] = _implementation(workloads[run.workload], run.source)
        for name, value in conditions.items():
            if value is not None and value not in values.setdefault(name, []):
                values[name].append(value)
    return {
        key: _with_stated({n: _joined(v) for n, v in values.items()}, stated or {}, paths[key])
        for key, values in by_case.items()
    }


def _with_stated(conditions: dict[str, object], stated: Values, path: Path) -> dict[str, object]:
    """The known conditions, and the stated ones that are not known or not in such detail."""
    only_stated = []
    for name, value in stated.items():
        if name in conditions and not values_agree(name, conditions[name], value):
            raise UserError(
                "the stated condition contradicts the log or its record",
                where=f"--condition {name}",
                expected=f"{display_value(conditions[name])} ({path})",
                found=display_value(value),
            )
        if name not in conditions or _details(value) > _details(conditions[name]):
            conditions[name] = value
            only_stated.append(f"{label(name)} ({display_value(value)}, --condition)")
    return {**conditions, ONLY_STATED: ", ".join(only_stated) or None}


def _details(value: object) -> int:
    return sum(part is not None for part in _product(str(value)) or ())


def conditions_of(run: FoundRun, record: Values, rule: ComparisonRule) -> dict[str, object]:
    """The conditions of a run from its record, and from the catalogue for its workload's source."""
    sources = cast(Mapping[str, RecordedConditions], rule.workloads.get(run.workload, {}))
    catalogued = sources.get(run.source or "logs", RecordedConditions())
    # Of a run outside a campaign, these are what its log states.
    measured = read_parameters(run.parameters)
    parameters = {**measured, **as_object(record.get("parameters"))}
    xla = catalogued.xla if "xla" not in parameters else parameters["xla"] == "true"
    if xla is None and (commands := record.get("commands")):
        lists = [as_object(c).get("argv") for c in commands] if isinstance(commands, list) else []
        words = [word for argv in lists if isinstance(argv, list) for word in argv]
        xla = any(option in words for option in _XLA)
    if xla is None and run.framework in _WITHOUT_XLA:
        xla = False
    return {
        "accelerator": run.accelerator,
        "data": data_kind(parameters.get("data")),
        **{name: parameters.get(name) for name in _AS_NAMED},
        "message_bytes": _message(parameters),
        "input_pipeline": parameters.get("input_pipeline", catalogued.input_pipeline),
        "noise": measured.get("noise", catalogued.noise),
        "xla": xla,
        "compile": _TRUTH.get(parameters.get("compile", ""), catalogued.compile),
        "recipe": parameters.get("recipe", catalogued.recipe),
        "parallelism": _parallelism(parameters),
        "steps": _steps(run.rule.total_steps, run.rule.warmup_steps) if run.rule else None,
        "framework_version": run.framework_version,
        "container": BARE if run.container == "" else run.container,
        "driver": run.driver,
        **_wheels(as_object(as_object(record.get("outcome")).get("versions"))),
    }


def _message(parameters: Mapping[str, str]) -> str | None:
    """The largest message, with the options of nccl-tests that change its rate: with them it is
    another experiment than a published one, which has none."""
    names = ("message_bytes", "aggregated_iterations", "blocking", "cuda_graphs")
    size, *options = (parameters.get(name) for name in names)
    used = [f"{name}={text}" for name, text in zip(names[1:], options, strict=True) if text]
    return " ".join([str(size or "unknown"), *used]) if size or used else None


def _wheels(versions: Mapping[str, object]) -> dict[str, object]:
    """The versions of the libraries that a framework brings as wheels, such as nvidia-nccl-cu13;
    none of a library with several, of which the framework loads one."""
    packages = {
        name: [p for p in versions if re.fullmatch(rf"{wheel}(-cu\d+)?", p)]
        for name, wheel in _WHEELS.items()
    }
    return {name: versions[each[0]] for name, each in packages.items() if len(each) == 1}


def _parallelism(parameters: Mapping[str, str]) -> str | None:
    """The way in which the devices share the work; of ArcFace, the classes' centres."""
    rate = parameters.get("sample_rate")
    if rate is None:
        return parameters.get("parallel")
    return "model" if rate == "1.0" else f"partial FC, sample ratio {rate}"


def parse_stated(texts: Sequence[str]) -> dict[str, object]:
    """Parse conditions that the user states: `accelerator=V100-SXM2-16GB`, `xla=true`."""
    stated: dict[str, object] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        name = name.lower().replace(" ", "_")  # as tables write it, such as image size
        if not equals or not value or name not in STATED:
            raise UserError(
                "invalid condition",
                where="--condition",
                expected=f"NAME=VALUE, where NAME is one of {listed(STATED)}",
                found=text,
            )
        if name in _SWITCHES and value.lower() not in _TRUTH:
            raise UserError(
                f"invalid value for {label(name)}",
                where=f"--condition {name}",
                expected="true or false",
                found=value,
            )
        parsed = _TRUTH[value.lower()] if name in _SWITCHES else value
        if stated.setdefault(name, parsed) != parsed:
            raise UserError(
                "the condition is stated twice",
                where=f"--condition {name}",
                expected=display_value(stated[name]),
                found=display_value(parsed),
            )
    return stated


def _implementation(workload: Workload, source: str | None) -> str | None:
    """The program. For the upstream source, its repository and commit, as publications name it."""
    if source == "upstream" and (upstream := workload.sources.upstream) is not None:
        return f"{upstream.repository} {upstream.commit[:8]}"
    return source


def _joined(values: list[object]) -> object:
    return values[0] if len(values) == 1 else "+".join(sorted(map(str, values)))


def _steps(total: int, warmup: int) -> str:
    return f"{warmup} warm-up of {total}"


# ---- conditions of a publication, and the comparison


def published_conditions(number: PublishedNumber) -> dict[str, object]:
    """The conditions of a published number, with the same names."""
    conditions = number.conditions.model_dump()
    steps = None
    if number.conditions.total_steps and number.conditions.warmup_steps is not None:
        steps = _steps(number.conditions.total_steps, number.conditions.warmup_steps)
    xla = number.conditions.xla
    of_number = {
        "xla": False if xla is None and number.framework in _WITHOUT_XLA else xla,
        "unit": per_second(number.unit),
        "precision": number.precision,
        "batch_size_per_device": number.batch_size_per_device,
        "steps": steps,
    }
    return {name: of_number[name] if name in of_number else conditions[name] for name in FACTORS}


def differences(
    measured: Values, other: Values, *, nodes: int = 1, between: bool = False
) -> list[Difference]:
    """Every factor in which the two differ, or that is known for only one of them, in the order of
    FACTORS. With `between`, for two publications, a factor must be known for both."""
    differing = []
    for name in FACTORS:
        a, b = measured.get(name), other.get(name)
        # A single node has no interconnect, and a CPU has no driver.
        if name == "interconnect" and nodes == 1:
            continue
        if name in ("driver", *_LIBRARIES) and measured.get("accelerator") == "cpu":
            continue
        # Synthetic data need no input pipeline. A run without a container does not differ from a
        # publication that names no container.
        if name == "input_pipeline" and "synthetic" in (measured.get("data"), other.get("data")):
            continue
        if name == "container" and a == BARE and b is None:
            continue
        # Few state these; the global batch size is stated where that per device is not.
        if name in _SELDOM_STATED and b is None:
            continue
        if name == "batch_size_per_device" and other.get("global_batch_size") is not None:
            continue
        if a is None and b is None:
            continue
        is_partial = name == "accelerator" and not between and _says_less(a, b)
        if a is not None and b is not None and values_agree(name, a, b) and not is_partial:
            continue
        if between and (a is None or b is None):
            continue
        differing.append(Difference(name, display_value(a), display_value(b), is_partial))
    return differing


def _says_less(value: object, other: object) -> bool:
    """True if an accelerator is named by its family only, and another of that family by more."""
    first, second = _product(str(value)), _product(str(other))
    if first is None or second is None or first[0] != second[0]:
        return False
    return not any(first[1:]) and any(second[1:])


def values_agree(factor: str, a: object, b: object) -> bool:
    """True if two values of a factor agree as far as both are stated: V100-16GB equals
    V100-SXM2-16GB, CUDA 10.2 equals 10.2.89, and NCHW nchw. More measured steps than published
    count as equal, fewer do not."""
    if str(a).lower() == str(b).lower():
        return True
    if factor == "accelerator":
        return same_product(str(a), str(b))
    if factor in (*_LIBRARIES, "framework_version", "driver"):
        first, second = _release(str(a)), _release(str(b))
        shortest = min(len(first), len(second)) if factor in _LIBRARIES else None
        return bool(first) and first[:shortest] == second[:shortest]
    return factor == "steps" and _measured(str(a)) >= _measured(str(b)) > 0


def _release(version: str) -> list[str]:
    """The release part of a version: 1.8.5 for 1.8.5.post107, 1.15.4 for 1.15.4+nv."""
    match = re.match(r"\d+(\.\d+)*", version, re.ASCII)
    return match[0].split(".") if match else []


def _measured(steps: str) -> int:
    numbers = re.fullmatch(r"(\d+) warm-up of (\d+)", steps, re.ASCII)
    return int(numbers[2]) - int(numbers[1]) if numbers else 0


def same_product(a: str, b: str) -> bool:
    """True if two accelerator names can mean the same product. V100-16GB has no form factor, so it
    matches both V100-SXM2-16GB and V100-PCIE-16GB."""
    first, second = _product(a), _product(b)
    if first is None or second is None or first[0] != second[0]:
        return False
    return all(map(_same_part, first, second))


def _same_part(x: str | None, y: str | None) -> bool:
    """True if two parts of names agree. SXM is any of SXM2 to SXM5; None is unknown."""
    return x is None or y is None or x == y or ("SXM" in (x, y) and x[:3] == y[:3])


def family(name: object) -> str | None:
    """The family of an accelerator: H100 for NVIDIA H100 80GB HBM3; None if it is unknown."""
    product = _product(str(name))
    return product[0] if product else None


def _product(name: str) -> tuple[str | None, ...] | None:
    """Family, form factor and memory of an accelerator; None if the name has another structure."""
    match = _PRODUCT.fullmatch(short_product(name))
    if match is None:
        return None
    form, memory = _FORM.search(match["rest"]), _MEMORY.search(match["rest"])
    return match["family"], form[0].upper() if form else None, memory[1] if memory else None


def display_value(value: object) -> str | None:
    if value is None:
        return None
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
