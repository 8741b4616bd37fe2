"""The package away from the clone: built, installed into a new environment, and used there."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from captured import captured
from make_logs import published, published_tree

ROOT = Path(__file__).parents[2]
REPORT = "mxnet-resnet50v1b.md"
PYTHONS = ["python3", *(f"python3.{minor}" for minor in (12, 13, 14))]
UV = Path(sys.executable).with_name("uv")
TOO_OLD = "python3.10"


def run(
    argv: Sequence[object], cwd: Path, status: int = 0, environment: Mapping[str, str] | None = None
) -> str:
    """Run a command in an environment that knows nothing of the clone; what it printed."""
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ANSIBLE", "DLPERF"))
    }
    done = subprocess.run(
        [str(part) for part in argv],
        cwd=cwd,
        env={**clean, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == status, done.stdout
    return done.stdout


def interpreter(name: str) -> str:
    """The path of an interpreter that really starts; the test is skipped where there is none."""
    path = shutil.which(name)
    started = path and captured(path, "-c", "import sys, ensurepip; print(sys.executable)")
    if not started or started.returncode != 0:
        pytest.skip(f"there is no {name} here")
    return started.stdout.strip()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel, built from the sdist, as `pip install` of a published one does."""
    out = tmp_path_factory.mktemp("dist")
    run([UV, "build", "--quiet", "--out-dir", out, ROOT], ROOT)
    assert len(list(out.glob("dlperf_runner-*"))) == 2
    return out


def installed(built: Path, where: Path, extra: str = "") -> Path:
    """The folder of programs of a new environment with the wheel. uv is much faster than pip."""
    (wheel,) = built.glob("*.whl")
    run([UV, "venv", "--quiet", "--python", sys.executable, where], where.parent)
    install = [UV, "pip", "install", "--quiet", "--python", where / "bin/python"]
    run([*install, f"dlperf_runner{extra} @ {wheel.as_uri()}"], where.parent)
    # As pip does with all packages, which takes longer than to import what is used.
    (package,) = where.glob("lib/python*/site-packages/dlperf_runner")
    run([where / "bin/python", "-m", "compileall", "-q", package], where.parent)
    return where / "bin"


def use(programs: Path, away: Path) -> None:
    """What somebody does who has logs and no cluster."""
    published_tree(away / "logs", REPORT)
    assert "dlperf_runner" in run([programs / "dlperf", "--version"], away)
    # Of fp16 the report has no single runs.
    rows = [r for r in published("published") if (r["source"], r["precision"]) == (REPORT, "fp32")]
    table = run([programs / "python", "-m", "dlperf_runner", "summarize", "logs"], away)
    assert rows
    speeds = [f"{float(row['samples_per_second']):.2f}" for row in rows]
    assert [speed for speed in speeds if f" {speed} " not in table] == []
    commands = "list", "compare logs", "report logs --output-dir report"
    code = (
        "from dlperf_runner.commands import app\n"
        f"print([app(words.split(), standalone_mode=False) for words in {commands}])"
    )
    printed = run([programs / "python", "-c", code], away)
    assert "mxnet-resnet50v1b" in printed and printed.endswith("[None, None, None]\n")
    assert (away / "report/report.html").stat().st_size > 10_000


@pytest.fixture(scope="module")
def bare(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the package alone."""
    return installed(built, tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def analysis(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with all that analysis needs, and no Ansible."""
    return installed(built, tmp_path_factory.mktemp("analysis") / "venv", "[report]")


def test_the_package_alone_is_small_and_reads_the_sample(bare: Path, tmp_path: Path) -> None:
    size = sum(path.lstat().st_size for path in bare.parent.rglob("*"))
    assert size < 250_000_000
    made = run([bare / "dlperf", "demo-logs"], tmp_path)
    assert "dlperf summarize demo-logs\n  dlperf report demo-logs\n" in made
    assert " 9579.74 " in run([bare / "dlperf", "summarize", "demo-logs"], tmp_path)
    assert "choose another: dlperf demo-logs DIR" in run(
        [bare / "dlperf", "demo-logs"], tmp_path, 2
    )
    for command in ("report", "compare"):
        refused = run([bare / "dlperf", command, "demo-logs"], tmp_path, 2)
        assert "pip install '.[report]'" in refused
        assert "Traceback" not in refused


def test_logs_become_a_table_and_a_report_without_ansible(analysis: Path, tmp_path: Path) -> None:
    use(analysis, tmp_path)
    freeze = run([UV, "pip", "freeze", "--python", analysis / "python"], tmp_path)
    assert "pandas" in freeze
    assert "ansible" not in freeze


def test_what_drives_machines_asks_for_the_extra(analysis: Path, tmp_path: Path) -> None:
    commands = ("plan", "run", "doctor", "provision", "decommission", "lab")
    code = (
        "from dlperf_runner.commands import app; from typer.testing import CliRunner\n"
        f"for name in {commands}: done = CliRunner().invoke(app, [name]);"
        " print('====', done.exit_code, done.output)"
    )
    environment = {"DLPERF_HOME": str(tmp_path / "home")}
    printed = run([analysis / "python", "-c", code], tmp_path, 0, environment).split("==== ")[1:]
    assert len(printed) == len(commands)
    for out in printed:
        assert out.startswith("2 ")
        assert "pip install '.[cluster]'" in out


def test_a_shell_completes_names(analysis: Path, tmp_path: Path) -> None:
    words = {"COMP_WORDS": "dlperf plan --model arc", "COMP_CWORD": "3"}
    environment = {"_DLPERF_COMPLETE": "complete_bash", **words}
    assert "arcface" in run([analysis / "dlperf"], tmp_path, 0, environment)


@pytest.fixture(scope="module")
def cluster(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with Ansible, whose files are compiled, as pip does."""
    return installed(built, tmp_path_factory.mktemp("cluster") / "venv", "[cluster]")


def unpacked(home: Path) -> list[Path]:
    """The versions in a folder of unpacked packages."""
    return sorted(path for path in home.iterdir() if path.name not in (".cache", ".lab"))


@pytest.mark.heavy
@pytest.mark.versions
def test_a_cluster_is_driven_without_a_clone(cluster: Path, tmp_path: Path) -> None:
    environment = {"DLPERF_HOME": str(tmp_path / "home")}
    away = tmp_path / "away"
    away.mkdir()
    run([cluster / "dlperf", "init", "--from", "v100"], away, 0, environment)
    plan = [cluster / "dlperf", "plan", "-i", "inventory", "--model", "resnet50v1b"]
    assert "mpirun" in run([*plan, "--nodes", "4"], away, 0, environment)
    for command in ("lab", "provision", "decommission"):
        argv = [cluster / "dlperf", command, "-i", "inventory", "--syntax-check"]
        assert "playbook: " in run(argv, away, 0, environment)
    (place,) = unpacked(tmp_path / "home")
    assert (place / "roles/lab").is_dir()
    # Nothing is unpacked a second time, and nothing is written beside the user's own files.
    before = {path: path.lstat() for path in place.rglob("*")}
    run([*plan, "--nodes", "4"], away, 0, environment)
    assert unpacked(tmp_path / "home") == [place]
    assert {path: path.lstat().st_ino for path in place.rglob("*")} == {
        path: status.st_ino for path, status in before.items()
    }
    assert {path.name for path in away.iterdir()} == {"inventory"}


@pytest.mark.heavy
@pytest.mark.versions
def test_the_default_inventory_is_read(cluster: Path, tmp_path: Path) -> None:
    """An installer compiles inventory/lab/hosts.py, and Ansible reads all files of a folder."""
    compiled = next(cluster.parent.glob("lib/python*/site-packages/dlperf_runner/project"))
    assert list(compiled.glob("inventory/lab/__pycache__/*"))
    environment = {"DLPERF_HOME": str(tmp_path / "home")}
    assert "mpirun" in run([cluster / "dlperf", "plan"], tmp_path, 0, environment)
    (place,) = unpacked(tmp_path / "home")
    assert not list(place.glob("inventory/**/__pycache__"))


@pytest.mark.heavy
@pytest.mark.versions
def test_only_what_starts_a_playbook_unpacks_it(cluster: Path, tmp_path: Path) -> None:
    environment = {"DLPERF_HOME": str(tmp_path / "home")}
    published_tree(tmp_path / "logs", REPORT)
    for arguments in (
        ["list"],
        ["init", "nodes"],
        ["summarize", "logs"],
        ["report", "logs", "--output-dir", "report"],
        ["bundle", "--stack", "cpu", "--list"],
        ["plan", "--help"],
    ):
        run([cluster / "dlperf", *arguments], tmp_path, 0, environment)
    run([cluster / "dlperf", "source", "--workload", "mxnet-resnet50v1b"], tmp_path, 0, environment)
    assert [path.name for path in (tmp_path / "home").iterdir()] == [".cache"]


@pytest.mark.heavy
@pytest.mark.versions
def test_installations_of_one_user_keep_apart(built: Path, cluster: Path, tmp_path: Path) -> None:
    """All start at once, as first commands; then another installation is used."""
    environment = {**os.environ, "DLPERF_HOME": str(tmp_path / "home")}
    environment.pop("ANSIBLE_CONFIG", None)
    argv = [cluster / "dlperf", "plan", "--json"]
    started = [
        subprocess.Popen(
            argv, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        for _ in range(4)
    ]
    printed = [(process.communicate(timeout=900)[0], process.returncode) for process in started]
    assert {status for _, status in printed} == {0}, printed
    (place,) = unpacked(tmp_path / "home")
    before = {path: path.lstat().st_ino for path in place.rglob("*")}
    other = installed(built, tmp_path / "other", "[cluster]")
    home = {"DLPERF_HOME": str(tmp_path / "home")}
    run([other / "dlperf", "plan"], tmp_path, 0, home)
    assert len(unpacked(tmp_path / "home")) == 2
    # A playbook may still run from the first one.
    assert {path: path.lstat().st_ino for path in place.rglob("*")} == before


@pytest.mark.heavy
@pytest.mark.versions
@pytest.mark.parametrize("name", PYTHONS)
def test_pip_installs_it(built: Path, tmp_path: Path, name: str) -> None:
    (wheel,) = built.glob("*.whl")
    run([interpreter(name), "-m", "venv", tmp_path / "venv"], tmp_path)
    programs = tmp_path / "venv/bin"
    pip = [programs / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    run([*pip, f"{wheel}[report]"], tmp_path)
    use(programs, tmp_path)


def test_setup_installs_the_clone_without_a_build_and_without_network(tmp_path: Path) -> None:
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], tmp_path)
    python, dlperf = tmp_path / "venv/bin/python", tmp_path / "venv/bin/dlperf"
    run([python, ROOT / ".ci/install-clone"], tmp_path)
    where = run([python, "-c", "import dlperf_runner; print(dlperf_runner.__file__)"], tmp_path)
    assert Path(where.strip()) == ROOT / "dlperf_runner/__init__.py"
    # The environment lacks what `make setup` installs after it.
    assert "make setup" in run([dlperf, "--version"], tmp_path, 2)
    # As multiprocessing imports it in the processes that draw the charts of a report.
    code = f"import runpy; runpy.run_path('{dlperf}', run_name='__mp_main__')"
    assert run([python, "-c", code], tmp_path) == ""
    made = run(["make", "--dry-run", "--always-make", "setup"], ROOT)
    assert f"{ROOT}/.venv/bin/python .ci/install-clone" in made


@pytest.mark.heavy
@pytest.mark.versions
def test_an_older_python_is_told_what_is_needed(built: Path, tmp_path: Path) -> None:
    python = interpreter(TOO_OLD)
    (wheel,) = built.glob("*.whl")
    run([python, "-m", "venv", tmp_path / "venv"], tmp_path)
    argv = [tmp_path / "venv/bin/python", "-m", "pip", "install", "--no-deps", wheel]
    assert ">=3.11" in run(argv, tmp_path, 1)
    assert "needs Python 3.11" in run([python, "-m", "dlperf_runner"], ROOT, 1)


@pytest.mark.heavy
@pytest.mark.versions
def test_the_systems_own_python_reads_all_examples() -> None:
    """Another point release of the same Python differs: `re` of Debian 12's 3.11.2 does."""
    python = Path("/usr/bin/python3")
    version = "import platform; print(*platform.python_version_tuple()[:2])"
    same = python.exists() and captured(python, "-c", version).stdout
    if same != captured(sys.executable, "-c", version).stdout:
        pytest.skip("the system has no Python that takes this environment's packages")
    tests = "tests/unit/test_log_formats.py::test_an_example_is_recognised_and_read"
    packages = {"PYTHONPATH": sysconfig.get_path("purelib")}
    argv = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    assert " passed" in run(argv, ROOT, environment=packages)
