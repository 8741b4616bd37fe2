"""DCGM's diagnostics: what dcgmi prints in the layouts of its versions 3 and 4, and what the doctor
says of it."""

import json
import os
from pathlib import Path
from typing import Any

import command_line
import pytest
from executed_modules import inventory
from standins import call, program

from dlperf_runner.doctor.command import examine
from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.nodes import dcgm_findings


def error(text: str, severity: int) -> dict[str, Any]:
    return {"warning": text, "error_id": 44, "error_category": 7, "error_severity": severity}


def gpus_of(results: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Results as DCGM 4 prints them: HelperJsonAddResult in dcgmi/Diag.cpp."""
    passed = {"status": "Pass"}
    return [
        {"entity_group": "GPU", "entity_group_id": 1, "entity_id": n, **results.get(n, passed)}
        for n in range(2)
    ]


def category(name: str, test: str, results: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"category": name, "tests": [{"name": test, "results": results, **more}]}


def version_4(memory: dict[int, dict[str, Any]], software: dict[str, Any]) -> dict[str, Any]:
    worst = next(iter(memory.values()), {"status": "Pass"})
    entities = [{"entity_id": n, "serial_num": f"16502{n}", "device_id": "2330"} for n in (0, 1)]
    return {
        "DCGM Diagnostic": {
            "test_categories": [
                category("Deployment", "software", gpus_of({}), test_summary=software),
                category("Hardware", "memory", gpus_of(memory), test_summary=worst),
            ]
        },
        "entity_groups": [{"entities": entities, "entity_group": "GPU", "entity_group_id": 1}],
        "metadata": {"version": "4.2.3", "Driver Version Detected": "580.105.08"},
    }


def version_3(memory: list[dict[str, Any]]) -> dict[str, Any]:
    denied = {"gpu_ids": "0,1", "status": "PASS"}
    return {
        "DCGM GPU Diagnostic": {
            "test_categories": [
                category("Deployment", "Denylist", [denied]),
                category("Hardware", "GPU Memory", memory),
            ],
            "version": "3.3.1",
        }
    }


def findings(tmp_path: Path, printed: str, status: int = 0, level: int = 2) -> list[Finding]:
    """The doctor's findings of a dcgmi that prints this if it is asked for the level as JSON."""
    script = f'[ "$*" = "diag -r {level} -j" ] || exit 2\ncat {tmp_path}/output\nexit {status}'
    (tmp_path / "output").write_text(printed)
    folder = program(tmp_path / "bin", "dcgmi", script)
    facts = call("dcgm_info", tmp_path, [folder, Path("/bin")], level=level)
    return list(dcgm_findings("node7", facts))


def test_all_tests_pass(tmp_path: Path) -> None:
    (found,) = findings(tmp_path, json.dumps(version_4({}, {"status": "Pass"})))
    assert (found.node, found.check, found.status) == ("node7", "dcgm level 2", "ok")
    assert found.found == "2 of 2 tests passed, DCGM 4.2.3"


@pytest.mark.parametrize(
    ("severity", "advice"),
    [
        (1, "keep watching"),
        (2, "take the node out of use"),
        (4, "nvidia-bug-report.sh"),
        (5, "change the node's settings"),
        (6, "reset the GPU"),
        (3, "test this GPU again"),
    ],
)
def test_a_failed_test_is_named_with_node_gpu_and_advice(
    tmp_path: Path, severity: int, advice: str
) -> None:
    text = "GPU 1: température trop élevée, and row remappings are pending"
    result = {"status": "Fail", "warnings": [error(text, severity)]}
    printed = json.dumps(version_4({1: result}, {"status": "Pass"}), indent=3)
    (found,) = findings(tmp_path, printed, status=205)
    assert (found.node, found.check, found.status) == ("node7", "dcgm memory", "failed")
    assert found.found == f"GPU 1: {text}"
    assert advice in found.hint


def test_an_error_of_no_device_and_a_skipped_test(tmp_path: Path) -> None:
    software = {"status": "Fail", "warnings": [error("The fabric manager is not running", 5)]}
    skipped = {"status": "Skip", "warnings": [error("ECC is off, so this test was skipped", 5)]}
    printed = json.dumps(version_4({0: skipped}, software))
    first, second = findings(tmp_path, printed, status=226)
    assert (first.check, first.status) == ("dcgm software", "failed")
    assert first.found == "The fabric manager is not running"
    assert (second.check, second.status) == ("dcgm memory", "warning")
    assert second.found == "GPU 0: ECC is off, so this test was skipped"


def test_layout_of_version_3(tmp_path: Path) -> None:
    """Here, numbers are texts, and something stands before the document."""
    memory = [
        {"gpu_id": "0", "status": "Fail", "warnings": [error("Failed to allocate memory", 3)]},
        {"gpu_ids": "1", "status": "PASS", "info": ["Allocated 97.2%"]},
    ]
    (found,) = findings(tmp_path, f"Successfully ran.\n{json.dumps(version_3(memory))}\n", 226)
    assert (found.check, found.found) == ("dcgm GPU Memory", "GPU 0: Failed to allocate memory")
    memory[0] = {"gpu_id": "0", "status": "WARN", "warnings": "Clocks are being throttled"}
    (tmp_path / "two").mkdir()
    first, second = findings(tmp_path / "two", json.dumps(version_3(memory)))
    assert (first.status, first.found) == ("warning", "GPU 0: Clocks are being throttled")
    assert (second.status, second.found) == ("ok", "1 of 2 tests passed, DCGM 3.3.1")


@pytest.mark.parametrize(
    ("printed", "status", "expected", "hint"),
    [
        (
            '{"DCGM Diagnostic": {"runtime_error": "Error: a GPU is in use", "version": "4.2.3"}}',
            *(226, "Error: a GPU is in use", "nothing else uses the GPUs"),
        ),
        ("Error: unable to establish a connection\n", 255, "unable to establish", "dcgmi diag -r"),
        ("", 226, "nothing", "dcgmi diag -r 2"),
        (json.dumps(version_4({}, {"status": "Pass"})), 226, "226: a test failed", "messages"),
    ],
)
def test_no_results_are_no_pass(
    tmp_path: Path, printed: str, status: int, expected: str, hint: str
) -> None:
    (found,) = findings(tmp_path, printed, status)
    assert (found.check, found.status) == ("dcgm level 2", "failed")
    assert expected in found.found
    assert hint in found.hint


def test_a_dcgmi_that_hangs_or_is_missing(tmp_path: Path) -> None:
    facts = call("dcgm_info", tmp_path, [Path("/nowhere")], level=1)
    (found,) = dcgm_findings("node7", facts)
    assert (found.status, found.found) == ("failed", "dcgmi is not installed")
    assert "datacenter-gpu-manager" in found.hint
    folder = program(tmp_path / "bin", "dcgmi", "exec sleep 600")
    facts = call("dcgm_info", tmp_path, [folder, Path("/bin")], level=3, timeout=1)
    (found,) = dcgm_findings("node7", facts)
    assert (found.status, found.found) == ("failed", "dcgmi diag did not finish within 1 s")


def test_doctor_runs_it_on_nodes_with_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By preflight.yml, with this machine as a node of the stack, to which the limit leads."""
    result = {"status": "Fail", "warnings": [error("Row remappings are pending", 6)]}
    (tmp_path / "output").write_text(json.dumps(version_4({1: result}, {"status": "Pass"})))
    folder = program(tmp_path / "bin", "dcgmi", f"cat {tmp_path}/output\nexit 226")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    given = {"dlperf_stack": "h100-cuda12.9", "dlperf_accelerator": "NVIDIA H100 80GB HBM3"}
    hosts = inventory(tmp_path, "node6", "node7", dlperf_devices_per_node=8, **given)
    findings = examine([str(hosts)], "node7", dcgm=2)
    assert "node7" in {f.node for f in findings} <= {"", "node7"}
    found = {f.check: f for f in findings}
    assert (found["dcgm memory"].node, found["dcgm memory"].status) == ("node7", "failed")
    assert found["dcgm memory"].found == "GPU 1: Row remappings are pending"
    assert not [check for check in found if check.startswith("dcgm level")]


def test_command_refuses_what_cannot_be_tested(tmp_path: Path) -> None:
    given = {"dlperf_stack": "cpu", "dlperf_accelerator": "cpu", "dlperf_devices_per_node": 1}
    hosts = inventory(tmp_path, "node1", **given)
    for options, expected in (
        (["--dcgm", "1"], "no node has GPUs"),
        (["--dcgm", "4"], "'--dcgm'"),
        (["--dcgm", "1", "--facts", "x.json"], "cannot be combined with --facts"),
        (["--bandwidth", "--facts", "x.json"], "cannot be combined with --facts"),
    ):
        said = command_line.call("doctor", "-i", hosts, *options, status=2).both
        assert expected in " ".join(said.split())
