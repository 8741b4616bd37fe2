"""Names in the Python package: one class name has one meaning, and a name says what it names. No
function is too long to be read in one go."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlperf_runner"
SOURCES = ("dlperf_runner", "library", "module_utils", "playbooks", "roles", "benchmarks")
LONGEST = 60
# Parts of a published model, which each program of it has for its own framework.
MODEL_PARTS = {"Bottleneck", "ResidualUnit"}
WORDS = {"found", "told", "said", "own", "mine", "there", "of", "known", "beside"}
# The packages without them, and whose docstrings begin with a noun or a verb.
NAMED = (
    *("core", "schedulers", "plan", "provision", "campaign", "measure", "results", "stats"),
    *("compare", "control", "report", "commands", "export", "options"),
    *("accept", "ab", "bisect", "explain", "live", "bandwidth", "doctor", "logs"),
)
QUESTIONS = ("What", "Whether", "How", "Why", "Where")


def test_two_classes_never_share_a_name() -> None:
    places_by_name = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places_by_name[node.name].append(str(path.relative_to(PACKAGE)))
    twice = {name: places for name, places in places_by_name.items() if len(places) > 1}
    programs = {n for n, ps in twice.items() if all(p.startswith("workloads/") for p in ps)}
    assert programs <= MODEL_PARTS
    assert {name: twice[name] for name in twice.keys() - programs} == {}


def made_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of all that a module names: variables, parameters, attributes, functions."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield node.lineno, name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield node.lineno, name


@pytest.mark.parametrize("package", NAMED)
def test_a_name_says_what_its_thing_is(package: str) -> None:
    vague = [
        f"{path.relative_to(PACKAGE)}:{line}: {name}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for line, name in made_names(ast.parse(path.read_text(encoding="utf-8")))
        if name.strip("_") in WORDS
    ]
    # UserError, LineError and the doctor's Finding have `expected` and `found`, as their messages
    # do.
    pairs = ("core/errors.py", "logs/records.py", "doctor/")
    assert [
        name for name in vague if not (name.startswith(pairs) and name.endswith(": found"))
    ] == []


@pytest.mark.parametrize("package", NAMED)
def test_a_docstring_begins_with_a_noun_or_a_verb(package: str) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    for path in sorted((PACKAGE / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, documented) and (text := ast.get_docstring(node)):
                where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"
                assert text.split()[0] not in QUESTIONS, where


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
