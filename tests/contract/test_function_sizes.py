"""No new function is too long to be read in one go."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("dlperf_runner", "library", "module_utils", "playbooks", "roles", "benchmarks")
LONGEST = 60
# Functions from before the rule. One that got shorter leaves the list.
LONG: dict[str, set[str]] = {}


def _long_functions() -> dict[str, set[str]]:
    functions: dict[str, set[str]] = {}
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            if "workloads" in path.parts:
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if (node.end_lineno or 0) - node.lineno >= LONGEST:
                    functions.setdefault(str(path.relative_to(ROOT)), set()).add(node.name)
    return functions


def test_no_function_is_too_long() -> None:
    known = {
        path: names
        for path, names in _long_functions().items()
        if not any(path.endswith(end) and names <= LONG[end] for end in LONG)
    }
    assert known == {}


def test_the_list_of_long_functions_is_current() -> None:
    functions = _long_functions()
    for end, names in LONG.items():
        assert any(path.endswith(end) and names <= functions[path] for path in functions), end
