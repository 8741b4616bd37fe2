"""The suites by area: every heavy test is in one, and the gate runs those of what was changed."""

import ast
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from captured import captured

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / ".ci/suites.py"
SUITES = tomllib.loads((ROOT / ".ci/suites.toml").read_text())["suites"]
MARKERS = {name: name.replace("-", "_") for name in SUITES}


def apart_from_make() -> dict[str, str]:
    """The environment without what a `make` that runs these tests tells its children."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}


def marks_in(node: ast.AST) -> set[str]:
    """The names of pytest's marks that the code applies."""
    attributes = (part for part in ast.walk(node) if isinstance(part, ast.Attribute))
    return {part.attr for part in attributes if ast.unparse(part.value) == "pytest.mark"}


def test_every_heavy_test_has_one_area() -> None:
    areas, heavy = set(MARKERS.values()), 0
    for path in (ROOT / "tests").rglob("test_*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        of_file = {
            name
            for part in body
            if isinstance(part, ast.Assign) and ast.unparse(part.targets[0]) == "pytestmark"
            for name in marks_in(part)
        }
        for test in body:
            if isinstance(test, ast.FunctionDef) and test.name.startswith("test_"):
                names = of_file.union(*map(marks_in, test.decorator_list))
                heavy += "heavy" in names
                assert len(names & areas) == ("heavy" in names), f"{path.name}: {test.name}"
    assert heavy > len(areas)


@pytest.mark.parametrize("name", SUITES)
def test_a_suite_runs_if_its_own_tests_change(name: str) -> None:
    marked = re.compile(rf"\bmark\.{MARKERS[name]}\b")
    files = [str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py")
             if marked.search(path.read_text())]  # fmt: skip
    patterns = SUITES[name]["paths"]
    assert files
    assert [f for f in files if not any(fnmatch.fnmatchcase(f, each) for each in patterns)] == []


@pytest.mark.parametrize("name", SUITES)
def test_suite_is_a_marker_a_make_target_and_at_most_an_hour(name: str) -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    (meaning,) = [m for m in options["markers"] if m.startswith(f"{MARKERS[name]}: ")]
    assert f"(make test-{name})" in meaning
    done = captured("make", "--dry-run", f"test-{name}", cwd=ROOT, env=apart_from_make())
    assert done.stdout.rstrip().endswith(f" -m {MARKERS[name]}"), done.stdout + done.stderr
    assert 0 < SUITES[name]["minutes"] <= 60


def test_make_has_no_other_suite() -> None:
    (listed,) = re.findall(r"^SUITES := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert sorted(listed.split()) == sorted(f"test-{name}" for name in SUITES)


def test_every_pattern_matches_a_file() -> None:
    files = [str(path.relative_to(ROOT)) for path in ROOT.glob("[!.]*/**/*")]
    files += [path.name for path in ROOT.iterdir()]
    patterns = [pattern for suite in SUITES.values() for pattern in suite["paths"]]
    assert [pattern for pattern in patterns if not fnmatch.filter(files, pattern)] == []


# ---- what the gate runs, in a small repository with a Makefile of its own

DATA = """
[test]
minutes = {expected}
[suites.first]
minutes = 10
paths = ["roles/first/*", "shared.yml"]
[suites.second]
minutes = 20
paths = ["roles/second/*", "shared.yml"]
"""
MAKEFILE = """\
test test-first test-second: test-system .venv/.dev
	@echo 1 passed by $@; {command}
test-system .venv/.dev:
	@test -e made || {{ touch made; sleep {setup}; }}
"""
DAY = 24 * 3600
NEW = 1_700_000_000


def git(*arguments: str, cwd: Path, when: int = NEW) -> None:
    dates = {f"GIT_{who}_DATE": f"{when} +0000" for who in ("AUTHOR", "COMMITTER")}
    who = ["-c", "user.name=Somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=cwd, env={**os.environ, **dates}, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose first commit is a day old."""
    root = tmp_path / "repository"
    (root / ".ci").mkdir(parents=True)
    shutil.copy(SCRIPT, root / ".ci")
    (root / "Makefile").write_text(MAKEFILE.format(command="true", setup=0))
    (root / ".ci/suites.toml").write_text(DATA.format(expected=1))
    git("init", "--quiet", cwd=root)
    commit(root, when=NEW - DAY)
    return root


def commit(root: Path, *names: str, when: int = NEW) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"of {when}\n")
    git("add", ".", cwd=root)
    git("commit", "--quiet", "--message", "A commit", cwd=root, when=when)


def gate(root: Path, status: int = 0, since: str = "", **variables: str) -> list[str]:
    """Run the suites; the lines that were printed."""
    done = subprocess.run(
        [sys.executable, "-S", ".ci/suites.py"],
        cwd=root,
        env=apart_from_make() | {"SUITES_SINCE": since} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout
    return done.stdout.splitlines()


def ran(lines: list[str]) -> list[str]:
    return [line.removeprefix("1 passed by ") for line in lines if line.startswith("1 passed")]


def test_only_suites_of_changed_files_run(repository: Path) -> None:
    """Those of the commits of the last twelve hours, and of what is not committed yet."""
    commit(repository, "roles/first/a", "roles/second/old", when=NEW - 13 * 3600)
    commit(repository, "roles/second/b", when=NEW - 11 * 3600)
    commit(repository, "README.md")
    lines = gate(repository)
    assert ran(lines) == ["test", "test-second"]
    assert lines[-3] == "Suites by area:"
    assert "make test-first: not needed, no file of it changed since commit" in lines[-2]
    assert lines[-1] == "  make test-second: ok after 0 min"
    git("mv", "roles/first/a", "elsewhere", cwd=repository)  # a renamed file is changed
    assert ran(gate(repository)) == ["test", "test-first", "test-second"]


@pytest.mark.parametrize("failing", ["setup", "make test", "make test-first"])
def test_the_first_failure_ends_the_run(repository: Path, failing: str) -> None:
    commit(repository, "shared.yml")
    setup = "none" if failing == "setup" else 0
    command = f"test $@ != {failing.removeprefix('make ')}"
    (repository / "Makefile").write_text(MAKEFILE.format(command=command, setup=setup))
    lines = gate(repository, status=1)
    expected = {"setup": [], "make test": ["test"], "make test-first": ["test", "test-first"]}
    assert ran(lines) == expected[failing]
    name = "the setup" if failing == "setup" else failing
    assert lines[-1] == f"  make test-second: NOT REACHED, {name} failed"


def test_the_environment_cannot_make_a_failure_pass(repository: Path) -> None:
    commit(repository, "README.md")
    options = {"MAKEFLAGS": "i", "GNUMAKEFLAGS": "-i", "PYTEST_ADDOPTS": "--collect-only"}
    command = 'echo "$$PYTEST_ADDOPTS"; false'
    (repository / "Makefile").write_text(MAKEFILE.format(command=command, setup=0))
    lines = gate(repository, status=1, **options)
    assert "--collect-only" not in lines
    assert "  make test-second: not needed, no file of it changed since commit" in lines[-1]
