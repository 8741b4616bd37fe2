"""Group cases into tables, and title each table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

# Cases that agree in these columns are in one table, as in the published reports.
GROUP = (
    "workload",
    "model",
    "source",
    "precision",
    "batch_size_per_device",
    "framework_version",
    "accelerator",
    "driver",
    "stack",
    "container",
)
_DIGEST = re.compile(r"(sha256:[0-9a-f]{12})[0-9a-f]+")


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dictionaries; missing values are None."""
    import pandas as pd

    return [
        {str(key): None if pd.isna(value) else value for key, value in row.items()}
        for row in table.to_dict(orient="records")
    ]


def title(key: dict[str, Any]) -> str:
    """The title of a table: `mxnet-resnet50v1b builtin, fp32, batch size 128 per device, cpu`."""
    name = " ".join(filter(None, (key["workload"], key["source"])))
    if key["model"] not in name:
        name += f" ({key['model']})"
    parts = [name, key["precision"], f"batch size {key['batch_size_per_device']} per device"]
    if key["framework_version"]:
        parts.append(f"version {key['framework_version']}")
    # A stack often has the name of its accelerator; show it once.
    parts += dict.fromkeys(filter(None, (key["accelerator"], key["stack"])))
    if key["driver"]:
        parts.append(f"driver {key['driver']}")
    if key["container"]:
        parts.append("in " + _DIGEST.sub(r"\1", key["container"]))
    return ", ".join(parts)
