"""No function is too long to be read in one go."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("dlperf_runner", "library", "module_utils", "playbooks", "roles", "benchmarks")
LONGEST = 60


def test_no_function_is_too_long() -> None:
    long = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST
    ]
    assert long == []
