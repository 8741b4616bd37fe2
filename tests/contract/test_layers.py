"""The source, as it is parsed: packages in layers, names that say what they name, and one way to
files.

The list of layers is the way of the data: each package of `dlperf_runner` imports only those above
it. A package that is not named here, a circle, or an import of a later layer fails.
"""

import ast
import graphlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "dlperf_runner"
LAYERS = (
    *("core", "logs", "launchers", "schedulers", "catalog", "plan", "provision", "campaign"),
    *("measure", "results", "stats", "compare", "history", "report", "control", "options"),
    *("live", "commands", "mlperf", "bandwidth", "doctor", "export", "bundle", "accept"),
)
# Programs that run on nodes; they know nothing of the package around them.
APART = ("workloads",)
# The package's own files: its version, and the way in.
FILES = ("__init__.py", "__main__.py")
SOURCES = ("dlperf_runner", "library", "module_utils", "playbooks", "roles", "benchmarks", "tools")


@cache
def sources() -> dict[str, ast.Module]:
    """The trees of all source files, by their path."""
    paths = sorted(path for folder in SOURCES for path in (ROOT / folder).rglob("*.py"))
    return {str(p.relative_to(ROOT)): ast.parse(p.read_text(encoding="utf-8")) for p in paths}


def package() -> dict[str, ast.Module]:
    """The trees of the package's modules, by their path in it, without programs of nodes."""
    head = "dlperf_runner/"
    trees = {p.removeprefix(head): t for p, t in sources().items() if p.startswith(head)}
    return {path: tree for path, tree in trees.items() if not path.startswith(APART)}


def imported(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of all that a source file imports, lazily or not."""
    inside = Path(path).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)


@cache
def arrows() -> dict[str, list[tuple[int, str]]]:
    """Of each module in a layer, line and name of what it imports of the package."""
    head = "dlperf_runner."
    return {
        path: [
            (line, name.removeprefix(head))
            for line, name in imported(f"dlperf_runner/{path}", tree)
            if name.startswith(head)
        ]
        for path, tree in package().items()
        if path not in FILES
    }


def test_every_file_is_in_a_layer() -> None:
    entries = {p.name for p in PACKAGE.iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert entries == {*LAYERS, *APART}
    assert {path.name for path in PACKAGE.glob("*.py")} == set(FILES)


def test_a_module_imports_only_what_stands_above_it() -> None:
    assert len(arrows()) > 200
    assert [
        f"{path}:{line}: {name}"
        for path, targets in arrows().items()
        for line, name in targets
        if name.split(".")[0] in LAYERS[LAYERS.index(path.split("/")[0]) + 1 :]
    ] == []


@pytest.mark.parametrize("layer", ["measure", "stats"])
def test_what_computes_has_no_disk_and_no_clock(layer: str) -> None:
    outside = {"csv", "datetime", "io", "mmap", "os", "pathlib", "shutil", "subprocess", "time"}
    for path, tree in package().items():
        if path.startswith(f"{layer}/"):
            assert not {name.split(".")[0] for _, name in imported(path, tree)} & outside, path
            nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
            assert "open" not in {node.id for node in nodes}, path


def test_no_circle_within_a_layer() -> None:
    names = {p.removesuffix(".py").removesuffix("/__init__").replace("/", "."): p for p in arrows()}
    graph = {}
    for name, path in names.items():
        targets = {t if t in names else t.rpartition(".")[0] for _, t in arrows()[path]}
        # A package's own face may be imported by what it gathers, and gathers by name.
        graph[name] = {t for t in targets if t in names and t != name and not name.startswith(t)}
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_architecture_lists_the_layers_and_files_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)/` \| .* \| (.*) \|$", page, re.MULTILINE)
    assert tuple(layer for layer, _ in rows) == LAYERS
    files = [
        PACKAGE / layer / name for layer, names in rows for name in re.findall(r"`(.*?)`", names)
    ]
    assert [path for path in files if not path.is_file()] == []


def test_the_package_imports_no_ansible_and_what_runs_on_nodes_nothing_of_the_package() -> None:
    tops = {
        path: {name.split(".")[0] for _, name in imported(path, tree)}
        for path, tree in sources().items()
    }
    on_nodes = [path for path in tops if path.startswith(("library/", "module_utils/"))]
    assert on_nodes
    assert [path for path in on_nodes if "dlperf_runner" in tops[path]] == []
    others = [path for path in tops if path.startswith("dlperf_runner/")]
    assert [path for path in others if "ansible" in tops[path]] == []
    runner = [path for path in others if "ansible_runner" in tops[path]]
    assert runner == ["dlperf_runner/campaign/execute.py"]


# ---- names: one class name has one meaning, and no function is too long to be read in one go

LONGEST = 60
# Parts of a published model, which each program of it has for its own framework.
MODEL_PARTS = {"Residual", "ResidualUnit"}
WORDS = {"found", "told", "said", "own", "mine", "there", "of", "known", "beside"}
QUESTIONS = ("What ", "Whether ", "How ", "Why ", "Where ")


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


def test_docstrings_begin_with_a_noun_or_a_verb_and_no_function_is_too_long() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    places = [
        (f"{path}:{getattr(node, 'lineno', 1)}", node)
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, *functions))
    ]
    assert [p for p, node in places if (ast.get_docstring(node) or "").startswith(QUESTIONS)] == []
    assert [
        place
        for place, node in places
        if isinstance(node, functions) and (node.end_lineno or 0) - node.lineno >= LONGEST
    ] == []


# ---- the only ways to files are the safe reader and writer of core/files.py

WAYS = {
    *("open", "fdopen", "FileIO", "read_text", "read_bytes", "write_text", "write_bytes", "touch"),
    *("unlink", "remove", "rename", "renames", "symlink", "symlink_to", "link", "hardlink_to"),
    *("copy2", "copyfile", "copytree", "copymode", "copystat", "move", "rmtree", "chmod", "chown"),
    *("mkstemp", "mkdtemp", "NamedTemporaryFile", "TemporaryFile", "TemporaryDirectory", "mkfifo"),
    *("extract", "extractall", "unpack_archive", "make_archive", "truncate", "urlretrieve"),
    *("to_csv", "to_excel", "to_parquet", "read_csv", "savefig", "loadtxt", "savetxt"),
}
# Functions of core/files.py, and methods of other things that have such a name.
SAFE = {"read_text", "read_bytes", "remove"}
# The reader and writer itself, and what unpacks this package into the user's data directory.
UNBOUND = ("core/files.py", "core/paths.py")
EXCEPTIONS = {
    # These open /dev/null in place of a standard stream that is closed, or that is full.
    "__main__.py": {"open"},
    "commands/__init__.py": {"open"},
    "report/result_files.py": {"to_csv"},  # makes a text, which another module writes
    "plan/sources.py": {"open"},  # opens a git repository, and a tar in memory
    # Unpacks a tar of this package into a new directory, which replaces the former one.
    "control/scheduled.py": {"open", "extractall", "rename", "rmtree"},
    # Makes an environment in a new directory, which replaces the former one.
    "commands/env.py": {"unlink", "rename", "symlink_to", "rmtree"},
    # These make a directory of their own with a random name. Also: execute removes those of its
    # user that are left, and opens /dev/null; archives opens members that core/files.py opened.
    "commands/provision.py": {"TemporaryDirectory"},
    "doctor/slurm.py": {"mkdtemp", "rmtree"},
    "doctor/command.py": {"TemporaryDirectory"},
    "campaign/execute.py": {"TemporaryDirectory", "open", "rmtree"},
    "results/archives.py": {"TemporaryDirectory", "open"},
    "bundle/archives.py": {"TemporaryDirectory", "chmod"},
    "bundle/wheels.py": {"TemporaryDirectory"},
    # These move and remove their downloads in the mirror folder that the user named.
    "bundle/apt.py": {"unlink", "TemporaryDirectory"},
    "bundle/vendors.py": {"unlink"},
    "bundle/mirror.py": {"unlink"},
    # These run on nodes and cannot import the package; O_EXCL or O_NOFOLLOW refuses links.
    "schedulers/on_nodes/job_run.py": {"open", "read_text", "replace"},
    "schedulers/on_nodes/node_facts.py": {"open", "read_text", "replace"},
    "doctor/on_nodes/prolog.py": {"read_text"},
}


def ways_in(tree: ast.AST) -> Iterator[str]:
    """The name of each call that can open, make, change or remove a file."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in WAYS - SAFE:
                yield name
            case ast.Call(func=ast.Attribute(attr=name) as function):
                # `replace` of a text has two arguments, that of a dataclass has keywords.
                of_path = name == "replace" and len(node.args) == 1 and not node.keywords
                of_module = name == "copy" and ast.unparse(function.value) == "shutil"
                if name in WAYS or of_path or of_module:
                    yield name


def test_files_are_read_and_written_in_one_place() -> None:
    ways = {path: set(ways_in(tree)) for path, tree in package().items() if path not in UNBOUND}
    others = {path: names for path, names in ways.items() if names}
    assert others == EXCEPTIONS, "use dlperf_runner/core/files.py"


def test_ways_are_seen() -> None:
    code = "open(p); p.open(); io.FileIO(p); os.open(p, 0); gzip.open(p); p.replace(q); p.touch()"
    code += "; shutil.copy(p, q); tempfile.mkdtemp(); p.read_text(); tarfile.open(p)"
    assert len(list(ways_in(ast.parse(code)))) == code.count(";") + 1
    code = "text.replace('a', 'b'); replace(run, x=1); read_text(p); remove(p)"
    assert list(ways_in(ast.parse(code))) == []


def test_no_group_of_an_expression_is_possessive() -> None:
    """Debian 12's Python 3.11.2 matches them wrongly (python/cpython#106052, mended in 3.11.5), but
    atomic groups rightly: (?>(?:ab)?) in place of (?:ab)?+."""
    possessive = re.compile(r"\)(?:[?*+]|\{[\d,]+\})\+")
    files = [f"dlperf_runner/{path}" for path in package()]
    files += [str(p.relative_to(ROOT)) for p in ROOT.glob("tests/support/*.py")]
    texts = {path: ROOT.joinpath(path).read_text(encoding="utf-8") for path in files}
    assert len(texts) > 200
    assert [path for path, text in texts.items() if possessive.search(text)] == []
