"""docs/adding-a-workload.md, done: its files beside a copy of the project, planned, trained for
real, and summarised."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from captured import captured
from pages_done import copy_with, dlperf, page_files
from plan_examples import cpu_node

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "adding-a-workload.md").read_text(encoding="utf-8")
ENTRY = "dlperf_runner/catalog/workloads/numpy-perceptron.yml"
SCRIPT = "dlperf_runner/workloads/numpy_perceptron.py"
FILES = page_files(PAGE)
NODES = cpu_node("numpy")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the page's files, of which none is missed."""
    assert PAGE.count("\n```") == 2 * len(FILES) == 8
    root = tmp_path_factory.mktemp("project")
    copy_with(FILES, root)
    (root / "hosts.json").write_text(json.dumps(NODES))
    return root


def test_it_is_listed(project: Path) -> None:
    matrices = dlperf(project, "list", "matrices")
    assert "  numpy-perceptron published: 3 cases, 9 runs\n" in matrices
    assert "  numpy-perceptron smoke: 2 cases, 2 runs\n" in matrices
    assert "requirements/numpy-cpu.txt" in dlperf(project, "list", "frameworks")


def trained(argv: list[str], **options: Any) -> str:
    """The output of the script, run by this Python in place of the nodes'."""
    done = captured(sys.executable, *argv, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_campaign_of_its_smoke_matrix(project: Path, tmp_path: Path) -> None:
    campaign, node = tmp_path / "campaign", tmp_path / "node"
    options = ("--model", "perceptron", "-i", "hosts.json", "--campaign", str(campaign))
    plan = json.loads(dlperf(project, "plan", *options, "--json"))
    cases = [f"numpy-perceptron-builtin_fp32_b16_{topology}" for topology in ("1n1g", "1n2g")]
    assert [run["id"] for run in plan["runs"]] == [f"{case}/r1" for case in cases]
    source = json.loads(dlperf(project, "source", "--workload", "numpy-perceptron", "--json"))
    node.mkdir()
    subprocess.run(["tar", "-xf", source["path"], "-C", node], check=True)
    (script,) = node.rglob("numpy_perceptron.py")
    for run in plan["runs"]:
        (command,) = run["commands"]
        assert command["argv"][0] == "/opt/dlperf/envs/numpy/bin/python"
        env = {"PATH": os.environ["PATH"], **command["env"]}
        place = campaign / "runs" / run["id"]
        log = trained(command["argv"][1:], cwd=script.parent, env=env)
        (place / run["log_name"]).write_text(log)
        # As the role records a run that went well.
        record = json.loads((place / "run.json").read_text())
        record["outcome"] |= {"status": "done", "exit_status": 0, "versions": {"numpy": "2.0.2"}}
        (place / "run.json").write_text(json.dumps(record))
    text = dlperf(project, "summarize", str(campaign))
    title = "numpy-perceptron builtin, fp32, batch size 16 per device, classes=10 lr=0.1"
    assert text.startswith(title)
    lines = [re.split(r" *\| *", line) for line in text.splitlines() if line.startswith("|   ")]
    assert [(cells[2], cells[6]) for cells in lines] == [("1", "1"), ("2", "1")]
    assert lines[0][4] == "1.00"
    result = json.loads((campaign / "bz16_result.json").read_text())
    assert list(result["mlp"]) == ["1n1g", "1n2g"]
    assert (campaign / "measurements.csv").read_text().count(",loss_last,") == 2


def test_logs_by_hand_as_the_page_says(project: Path, tmp_path: Path) -> None:
    assert "1n${devices}g/mlp_b256_fp32_1.log" in PAGE
    one, two = (tmp_path / f"1n{devices}g/mlp_b256_fp32_1.log" for devices in (1, 2))
    for devices, path in enumerate((one, two), start=1):
        path.parent.mkdir()
        path.write_text(trained([str(project / SCRIPT), "--devices", str(devices)]))
    text = dlperf(project, "summarize", str(tmp_path))
    assert "numpy-perceptron, fp32, batch size 256 per device" in text
    assert len(re.findall(r"^\| +1 \|", text, re.MULTILINE)) == 2
    one.rename(two)
    with pytest.raises(AssertionError, match="the world size contradicts the file name"):
        dlperf(project, "summarize", str(tmp_path))


def test_workload_with_a_format_that_nobody_reads(project: Path, tmp_path: Path) -> None:
    entry = project / ENTRY
    entry.write_text(FILES[ENTRY].replace("log_format: perceptron", "log_format: percepton"))
    try:
        with pytest.raises(AssertionError, match=r"unknown log format 'percepton'.*\n.*perceptron"):
            dlperf(project, "list")
    finally:
        entry.write_text(FILES[ENTRY])
