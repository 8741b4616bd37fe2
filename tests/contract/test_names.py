"""Names in the Python package: one class name has one meaning."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dlperf_runner"
# Parts of a published model, which each program of it has for its own framework.
MODEL_PARTS = {"Bottleneck", "ResidualUnit"}


def test_two_classes_never_share_a_name() -> None:
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(PACKAGE)))
    twice = {name: places for name, places in found.items() if len(places) > 1}
    programs = {n for n, ps in twice.items() if all(p.startswith("workloads/") for p in ps)}
    assert programs <= MODEL_PARTS
    assert {name: twice[name] for name in twice.keys() - programs} == {}
