"""The packages of `dlperf_runner` stand in layers: each imports only those above it in this list.

The list is the way of the data. A package that is not named here, a circle, or an import of a
later layer fails.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "dlperf_runner"
LAYERS = (
    "core",
    "logs",
    "launchers",
    "schedulers",
    "catalog",
    "plan",
    "provision",
    "campaign",
    "measure",
    "results",
    "stats",
    "compare",
    "history",
    "report",
    "control",
    "options",
    "live",
    "commands",
    "mlperf",
    "bandwidth",
    "doctor",
    "export",
    "bundle",
    "accept",
    "ab",
    "bisect",
    "explain",
)
# Programs that run on nodes; they know nothing of the package around them.
APART = ("workloads",)
# The package's own files: its version, and the way in.
FILES = ("__init__.py", "__main__.py")


def modules() -> list[Path]:
    return [path for layer in LAYERS for path in sorted((PACKAGE / layer).rglob("*.py"))]


@cache
def imported(path: Path) -> list[tuple[int, str]]:
    """Line and dotted name, below dlperf_runner, of all that a module imports, lazily or not."""
    return list(_imported(path))


def _imported(path: Path) -> Iterator[tuple[int, str]]:
    inside = ["dlperf_runner", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            if name.startswith("dlperf_runner."):
                yield node.lineno, name.removeprefix("dlperf_runner.")


def test_every_file_is_in_a_layer() -> None:
    entries = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert entries == {*LAYERS, *APART}
    assert {path.name for path in PACKAGE.glob("*.py")} == set(FILES)


def test_a_module_imports_only_what_stands_above_it() -> None:
    paths = modules()
    assert len(paths) > 200
    assert [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in paths
        for line, name in imported(path)
        if name.split(".")[0] in LAYERS[LAYERS.index(path.relative_to(PACKAGE).parts[0]) + 1 :]
    ] == []


@pytest.mark.parametrize("layer", ["measure", "stats"])
def test_what_computes_has_no_disk_and_no_clock(layer: str) -> None:
    outside = {"csv", "datetime", "io", "mmap", "os", "pathlib", "shutil", "subprocess", "time"}
    for path in (PACKAGE / layer).glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        names = {
            alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        }
        names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not names & outside, path.name
        assert "open" not in {node.id for node in nodes if isinstance(node, ast.Name)}, path.name


def test_no_circle_within_a_layer() -> None:
    files = {".".join(p.relative_to(PACKAGE).with_suffix("").parts): p for p in modules()}
    names = {name.removesuffix(".__init__"): path for name, path in files.items()}
    arrows: dict[str, set[str]] = {}
    for name, path in names.items():
        targets = (target for _, target in imported(path))
        found = {t if t in names else t.rpartition(".")[0] for t in targets}
        # A package's own face may be imported by what it gathers, and gathers by name.
        arrows[name] = {t for t in found if t in names and t != name and not name.startswith(t)}
    while free := {name for name, targets in arrows.items() if not targets & arrows.keys()}:
        for name in free:
            del arrows[name]
    assert not arrows, f"a circle among {sorted(arrows)}"


def test_the_architecture_lists_the_layers_and_files_that_exist() -> None:
    page = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \| .* \| (.*) \|$", page, re.MULTILINE)
    assert tuple(layer for layer, _ in rows) == LAYERS
    files = [
        PACKAGE / layer / name for layer, names in rows for name in re.findall(r"`(.*?)`", names)
    ]
    assert [path for path in files if not path.is_file()] == []
