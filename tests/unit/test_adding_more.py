"""docs/adding-more.md, done: its launcher, stack and exporter in a copy of the package."""

import json
import re
from pathlib import Path

import pytest
from pages_done import copy_with, dlperf, page_files
from plan_examples import cpu_node

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-more.md").read_text(encoding="utf-8")
FILES = page_files(PAGE)
OPTIONS = ("--json", "--workload", "mine", "--matrix", "published", "-i")
TRAINING = """\
for step in range(1, 21):
    print(f"it {step} | {100 + step % 3}.0 img/s")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the page's files."""
    root = tmp_path_factory.mktemp("project")
    copy_with(FILES, root)
    (root / "train.py").write_text(TRAINING)
    words = "--name mine --framework nccl --launcher pinned --unit samples --rates-are-per world"
    words += " --topologies 1n1g --total-steps 20 --warmup-steps 5 --file train.py"
    command = "{python} train.py {total_steps} {batch_size_per_device}"
    regex = r"it (?P<step>\d+) \| (?P<rate>\S+) img/s"
    told = ("init-workload", *words.split(), "--command", command, "--regex", regex)
    dlperf(root, "--catalog", "own", *told)
    return root


def test_a_workload_is_planned_with_the_launcher(project: Path) -> None:
    (project / "hosts.json").write_text(json.dumps(cpu_node("nccl")))
    plan = json.loads(dlperf(project, "--catalog", "own", "plan", *OPTIONS, "hosts.json"))
    (command,) = plan["runs"][0]["commands"]
    assert command["argv"][:4] == ["taskset", "-c", "0", "/opt/dlperf/envs/nccl/bin/python"]


def test_the_stack_is_listed_and_a_framework_can_have_an_environment_on_it(project: Path) -> None:
    framework = project / "dlperf_runner/catalog/frameworks/nccl.yml"
    text = framework.read_text()
    entry = "environments:\n  cpu-trixie: {python: '>=3.13', requirements: requirements/nccl.txt, "
    framework.write_text(text.replace("environments:\n", entry + "distribution: mpi4py}\n"))
    try:
        assert "cpu-trixie" in dlperf(project, "list", "stacks")
        inventory = cpu_node("nccl")
        inventory["nodes"]["hosts"]["node1"]["dlperf_stack"] = "cpu-trixie"
        (project / "trixie.json").write_text(json.dumps(inventory))
        plan = json.loads(dlperf(project, "--catalog", "own", "plan", *OPTIONS, "trixie.json"))
        assert {run["stack"] for run in plan["runs"]} == {"cpu-trixie"}
    finally:
        framework.write_text(text)


def test_the_exporter_prints_every_case(project: Path) -> None:
    printed = dlperf(project, "export", "statsd", str(ROOT / "examples/logs")).splitlines()
    assert len(printed) == 6
    assert all(re.fullmatch(r"dlperf\.\w+:\d+\.\d\d\|g", line) for line in printed)
    assert any(line.endswith(":9579.74|g") for line in printed)
