"""The parts of `bundle` stand in layers: each imports only itself and those before it in LAYERS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dlperf_runner"
# The last is bundle itself, which puts the parts together.
LAYERS = ("folder", "debian", "python", "vendor", "")
_IMPORT = re.compile(r"^\s*from (\.+)(\w*)\S* import (.*)", re.MULTILINE)


def layer(path: Path) -> str:
    parent = path.parent.name
    return "" if parent == "bundle" else parent


@pytest.mark.parametrize(
    "path", sorted((PACKAGE / "bundle").rglob("*.py")), ids=lambda path: path.stem
)
def test_no_arrow_points_back(path: Path) -> None:
    own = layer(path)
    depth = 1 if own else 0
    for dots, module, names in _IMPORT.findall(path.read_text(encoding="utf-8")):
        if len(dots) - 1 == depth:
            others = [module] if module else [name.strip() for name in names.split(",")]
            for other in others:
                reached = other if other in LAYERS else ""
                assert LAYERS.index(reached) <= LAYERS.index(own), f"{dots}{module} {names}"


def test_nothing_loads_code_by_its_path() -> None:
    """Roles' tables are read as data."""
    for path in PACKAGE.rglob("*.py"):
        assert "spec_from_file_location" not in path.read_text(encoding="utf-8"), path


def test_nothing_changes_where_python_looks_for_code() -> None:
    """Programs that run alone on a node or in the lab may: what they import lies beside them."""
    root = PACKAGE.parent
    folders = (PACKAGE, *(root / name for name in ("playbooks", "roles", "library")))
    found = {
        str(path.relative_to(root))
        for folder in folders
        for path in folder.rglob("*.py")
        if "sys.path" in path.read_text(encoding="utf-8")
    }
    assert found == {
        "dlperf_runner/doctor/on_nodes/prolog.py",
        "dlperf_runner/workloads/plsc_train.py",
        "playbooks/filter_plugins/dlperf.py",  # the package lies beside the playbooks
        "roles/benchmark_source/files/versions.py",  # it only reads it
        "roles/lab/files/lab_control.py",
        "roles/lab/files/lab_holder.py",
        "roles/lab/files/lab_rootfs.py",
    }
