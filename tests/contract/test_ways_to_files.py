"""The only ways to files are the safe reader and writer of core/files.py."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dlperf_runner"
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
OWN_DIRECTORY = "makes a directory of its own with a random name"
OF_DOWNLOADS = "moves and removes its downloads in the mirror folder that the user named"
ON_NODES = "runs on nodes and cannot import the package; links are refused by O_EXCL or O_NOFOLLOW"
EXCEPTIONS = {
    "report/result_files.py": ({"to_csv"}, "makes a text, which another module writes"),
    "core/files.py": (WAYS, "is the reader and writer"),
    "core/paths.py": (WAYS, "unpacks this package itself into the user's data directory"),
    "plan/sources.py": ({"open"}, "opens a git repository, and a tar in memory"),
    "control/scheduled.py": (
        {"open", "extractall", "rename", "rmtree"},
        "unpacks a tar of this package into a new directory, which replaces the former one",
    ),
    "commands/env.py": (
        {"unlink", "rename", "symlink_to", "rmtree"},
        "makes an environment in a new directory, which replaces the former one",
    ),
    "commands/provision.py": ({"TemporaryDirectory"}, OWN_DIRECTORY),
    "doctor/slurm.py": ({"mkdtemp", "rmtree"}, OWN_DIRECTORY),
    "doctor/command.py": ({"TemporaryDirectory"}, OWN_DIRECTORY),
    "campaign/execute.py": (
        {"TemporaryDirectory", "open", "rmtree"},
        OWN_DIRECTORY + ", removes those of its user that are left, and opens /dev/null",
    ),
    "results/archives.py": (
        {"TemporaryDirectory", "open"},
        OWN_DIRECTORY + ", and opens members of archives that core/files.py opened",
    ),
    "bundle/archives.py": ({"TemporaryDirectory", "chmod"}, OWN_DIRECTORY),
    "bundle/wheels.py": ({"TemporaryDirectory"}, OWN_DIRECTORY),
    "bundle/apt.py": (
        {"unlink", "TemporaryDirectory"},
        OF_DOWNLOADS + ", and " + OWN_DIRECTORY + " for what apt leaves behind",
    ),
    "bundle/vendors.py": ({"unlink"}, OF_DOWNLOADS),
    "bundle/mirror.py": ({"unlink"}, OF_DOWNLOADS),
    "schedulers/on_nodes/job_run.py": ({"open", "read_text", "replace"}, ON_NODES),
    "schedulers/on_nodes/node_facts.py": ({"open", "read_text", "replace"}, ON_NODES),
    "doctor/on_nodes/prolog.py": ({"read_text"}, ON_NODES),
}


def ways_in(code: str) -> Iterator[tuple[int, str]]:
    """Line and name of each call that can open, make, change or remove a file."""
    for node in ast.walk(ast.parse(code)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name):
            if function.id in WAYS - SAFE:
                yield node.lineno, function.id
        elif isinstance(function, ast.Attribute):
            # `replace` of a text has two arguments, that of a dataclass has keywords.
            of_path = function.attr == "replace" and len(node.args) == 1 and not node.keywords
            of_module = function.attr == "copy" and ast.unparse(function.value) == "shutil"
            if function.attr in WAYS or of_path or of_module:
                yield node.lineno, function.attr


def all_ways() -> dict[str, list[tuple[int, str]]]:
    return {
        path.relative_to(PACKAGE).as_posix(): list(ways_in(path.read_text(encoding="utf-8")))
        for path in PACKAGE.rglob("*.py")
        if "workloads" not in path.parts
    }


def test_files_are_read_and_written_in_one_place() -> None:
    others = [
        f"{name}:{line}: {way}"
        for name, ways in all_ways().items()
        for line, way in ways
        if way not in EXCEPTIONS.get(name, ((), ""))[0]
    ]
    assert others == [], "use dlperf_runner/core/files.py"


def test_every_exception_is_needed() -> None:
    ways = all_ways()
    whole = [name for name, (allowed, _) in EXCEPTIONS.items() if allowed is WAYS]
    assert whole == ["core/files.py", "core/paths.py"]
    unused = {
        name: rest
        for name, (allowed, _) in EXCEPTIONS.items()
        if allowed is not WAYS and (rest := set(allowed) - {way for _, way in ways[name]})
    }
    assert unused == {}


def test_ways_are_seen() -> None:
    code = "open(p); p.open(); io.FileIO(p); os.open(p, 0); gzip.open(p); p.replace(q); p.touch()"
    code += "; shutil.copy(p, q); tempfile.mkdtemp(); p.read_text(); tarfile.open(p)"
    assert len(list(ways_in(code))) == code.count(";") + 1
    code = "text.replace('a', 'b'); replace(run, x=1); read_text(p); remove(p)"
    assert list(ways_in(code)) == []
