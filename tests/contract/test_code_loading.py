"""The package loads no code by its path, and changes nowhere where Python looks for code."""

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dlperf_runner"


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
