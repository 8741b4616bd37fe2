"""Save the throughput of a campaign as a named baseline: one file, usable without the logs.

results/baselines/<name>.json   the cases, each with the throughput of every run
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, StrictFloat, StrictInt, StrictStr

from ..campaign.directory import RESULTS
from ..catalog.entry import validated
from ..catalog.reader import unit_of
from ..catalog.types import Count, CountOrNone, Entry
from ..core.errors import UserError
from ..core.files import read_json, write_json
from ..core.frame import SAMPLES_PER_SECOND, make_frame
from ..core.identity import columns_of
from ..core.units import per_second
from ..stats.groups import rates_by_case

if TYPE_CHECKING:
    import pandas as pd

BASELINES = RESULTS / "baselines"
VERSION = 3
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*", re.ASCII)
_TEXT = StrictStr | None


class BaselineCase(Entry):
    """A case and the throughput of its valid runs. What version 1 lacks is unknown. Versions
    1 and 2 have no unit: it is that of the catalogue."""

    framework: StrictStr
    framework_version: _TEXT
    workload: StrictStr
    model: StrictStr
    source: _TEXT
    parameters: _TEXT = None
    precision: StrictStr
    batch_size_per_device: Annotated[
        StrictInt | StrictFloat | None, Field(gt=0, allow_inf_nan=False)
    ]
    total_steps: Count | None = None
    warmup_steps: CountOrNone | None = None
    directory: _TEXT = None
    nodes: Count
    gpus_per_node: Count
    world_size: Count
    accelerator: _TEXT
    node_gpus: _TEXT = None
    driver: _TEXT
    stack: _TEXT
    container: _TEXT
    estimator: _TEXT
    unit: _TEXT = None
    stated: _TEXT = None
    samples_per_second: Annotated[
        tuple[Annotated[StrictFloat | StrictInt, Field(gt=0, allow_inf_nan=False)], ...],
        Field(min_length=1),
    ]


class Baseline(Entry):
    """The content of a baseline file. `logs` are paths by what only copies have in common; earlier
    versions did not record them."""

    version: Literal[1, 2, 3]
    name: StrictStr
    created: StrictStr
    campaign: StrictStr
    logs: dict[StrictStr, StrictStr] = Field(default_factory=dict)
    cases: Annotated[tuple[BaselineCase, ...], Field(min_length=1)]


def save_baseline(
    frame: pd.DataFrame,
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


def read_baseline(name: str, directory: Path = BASELINES) -> pd.DataFrame:
    """The throughput of a baseline as a long frame. Raises UserError: if the baseline does not
    exist, it lists the known ones; if the file is invalid, it names file and key."""
    baseline = _read(name, directory)
    cases = [case if baseline.version > 1 else _known_then(case) for case in baseline.cases]
    runs = [
        (case, repeat, value)
        for case in cases
        for repeat, value in enumerate(case.samples_per_second, start=1)
    ]
    return make_frame(
        [_columns_of(case, repeat) for case, repeat, _ in runs],
        (
            (number, SAMPLES_PER_SECOND, value, case.unit or _unit_then(case), case.estimator)
            for number, (case, _, value) in enumerate(runs)
        ),
    )


def logs_of_baseline(name: str, directory: Path = BASELINES) -> dict[str, str]:
    """The logs of a baseline, by what only copies have in common; none if it does not record them.
    Raises the same errors."""
    return _read(name, directory).logs


def _read(name: str, directory: Path) -> Baseline:
    path = baseline_path(name, directory)
    if not path.exists():
        known = ", ".join(sorted(found.stem for found in directory.glob("*.json")))
        raise UserError(
            f"the baseline {name} does not exist",
            where=str(path),
            expected=f"one of {known}" if known else None,
            hint=None if known else "`compare --save-baseline NAME CAMPAIGN` creates one",
        )
    document = read_json(path)
    if isinstance(version := document.get("version"), int) and version > VERSION:
        raise UserError(
            "a newer version of this program wrote this baseline",
            where=f"{path}: version",
            expected=f"at most {VERSION}",
            found=str(version),
            hint="`compare --save-baseline NAME CAMPAIGN --replace` recreates it",
        )
    return validated(document, Baseline, str(path), "invalid baseline")


def _known_then(case: BaselineCase) -> BaselineCase:
    """A case of version 1, whose accelerator is what the inventory called it."""
    accelerator = "cpu" if case.accelerator == "cpu" else None
    return case.model_copy(update={"accelerator": accelerator})


def _unit_then(case: BaselineCase) -> str:
    """The unit of a case of a version that did not record it."""
    return per_second(unit_of(case.workload))


def _columns_of(case: BaselineCase, repeat: int) -> dict[str, Any]:
    batch = case.batch_size_per_device
    return {
        **case.model_dump(exclude={SAMPLES_PER_SECOND, "unit", "estimator"}),
        "global_batch_size": batch and round(batch * case.world_size),
        "repeat": repeat,
        "valid": True,
    }
