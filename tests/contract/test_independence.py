"""Tests stand alone: none imports another, and none needs what lies beside the repository."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
FILES = sorted(path for path in TESTS.rglob("*.py") if path != Path(__file__))


def imports(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, at its top or within a function."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_test_is_imported() -> None:
    tests = {path.stem for path in FILES if path.stem.startswith("test_")}
    found = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in FILES
        for name in imports(path)
        if tests & set(name.split("."))
    ]
    assert found == []


def test_helpers_are_found_in_one_folder_only() -> None:
    options = tomllib.loads((TESTS.parent / "pyproject.toml").read_text())["tool"]["pytest"]
    paths = options["ini_options"]["pythonpath"]
    assert [path for path in paths if path.startswith("tests")] == ["tests/support"]


def test_nothing_beside_the_repository_is_read() -> None:
    pattern = re.compile(r"""/ ["']shared["']|\.\./shared""")
    assert [path for path in FILES if pattern.search(path.read_text())] == []
