"""Names in the Python package: one class name has one meaning, and a name says what it names. No
function is too long to be read in one go."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("dlperf_runner", "library", "module_utils", "playbooks", "roles", "benchmarks", "tools")
LONGEST = 60
# Parts of a published model, which each program of it has for its own framework.
MODEL_PARTS = {"Bottleneck", "ResidualUnit"}
WORDS = {"found", "told", "said", "own", "mine", "there", "of", "known", "beside"}
QUESTIONS = ("What ", "Whether ", "How ", "Why ", "Where ")


@cache
def sources() -> dict[str, ast.Module]:
    """The trees of all source files, by their path."""
    paths = sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return {str(p.relative_to(ROOT)): ast.parse(p.read_text(encoding="utf-8")) for p in paths}


def test_two_classes_never_share_a_name() -> None:
    places_by_name = defaultdict(list)
    for path, tree in sources().items():
        for node in ast.walk(tree) if path.startswith("dlperf_runner/") else ():
            if isinstance(node, ast.ClassDef):
                places_by_name[node.name].append(path.removeprefix("dlperf_runner/"))
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


def test_a_name_says_what_its_thing_is() -> None:
    # Errors and the doctor's Finding have `expected` and `found`, as their messages do.
    pairs = ("core/errors.py", "logs/records.py", "doctor/")
    assert [
        f"{path}:{line}: {name}"
        for path, tree in sources().items()
        for line, name in made_names(tree)
        if name.strip("_") in WORDS
        and not (name == "found" and path.split("/", 1)[1].startswith(pairs))
    ] == []


def test_a_docstring_begins_with_a_noun_or_a_verb() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    assert [
        f"{path}:{getattr(node, 'lineno', 1)}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, documented) and (ast.get_docstring(node) or "").startswith(QUESTIONS)
    ] == []


def test_no_function_is_too_long() -> None:
    assert [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST
    ] == []
