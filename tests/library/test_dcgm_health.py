"""The health that DCGM reports, as the program that samples a node asks for it. The answers have
the form of dcgmi's source: NVIDIA/DCGM 72fa3fe, dcgmi/Health.cpp, Group.cpp and DcgmiOutput.h."""

import json
from pathlib import Path
from typing import Any

import pytest
from node_samplers import Sampler, told
from standins import needed, program

DCGMI = """\
cd {folder}; echo "$*" >> asked
case "$*" in
"group --list --json") cat groups ;;
"group --create dlperf --default")
  echo 'Successfully created group "dlperf" with a group ID of 2' ;;
"health --group 2 --set a") echo 'Health monitor systems set successfully.' ;;
"health --group 2 --check --json") cat health ;;
"group --delete 2") echo 'Successfully removed group 2' ;;
*) echo 'Error: Unable to set health watches. Return: The Group is not found'; exit 255 ;;
esac
"""
SET = ["group --list --json", "health --group 2 --set a", "health --group 2 --check --json"]


def groups(*names: str) -> dict[str, Any]:
    found = {
        str(number): {
            "children": {
                "Entities": {"value": "GPU 0, GPU 1"},
                "Group ID": {"value": str(number)},
                "Group Name": {"value": name},
            }
        }
        for number, name in enumerate(names)
    }
    header = ["GROUPS", f"{len(names)} groups found."]
    return {"body": {"Groups": {"children": found}}, "header": header}


def health(overall: str, **systems: dict[str, Any]) -> dict[str, Any]:
    """The report on GPU 1."""
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    if systems:
        errors = {f"{name} system": told for name, told in systems.items()}
        one = {"children": {"Errors": {"children": errors}}, "value": overall}
        body["GPU"] = {"children": {"1": one}}
    return {"body": body, "header": ["Health Monitor Report"]}


FAILING = health(
    "Failure",
    Memory={
        "overflow": ["Detected 2 volatile double-bit ECC error(s) in GPU 1."],
        "value": "Failure",
    },
    PCIe={
        "overflow": ["Detected more than 8 PCIe replays per minute for GPU 1", ": 13"],
        "value": "Warning",
    },
)
STYLED = {"indent": 3, "separators": (",", " : ")}  # as Json::Value::toStyledString


def dcgmi(folder: Path, *names: str) -> Path:
    program(folder, "dcgmi", DCGMI.format(folder=folder))
    (folder / "groups").write_text(json.dumps(groups("DCGM_ALL_SUPPORTED_GPUS", *names), **STYLED))
    (folder / "health").write_text(json.dumps(health("Healthy"), **STYLED))
    return folder


@pytest.mark.parametrize("version", ["", "2.7"])
def test_health_watches_of_dcgm(tmp_path: Path, version: str) -> None:
    """They belong to a group of their own, which is gone afterwards; each incident is told once."""
    folder = dcgmi(tmp_path / "bin", "DCGM_ALL_SUPPORTED_NVSWITCHES")
    sampler = Sampler(python=needed(version), seconds=60, every=0, PATH=f"{folder}:/bin")
    sampler.sample()
    assert not (folder / "asked").exists()  # the run need not wait for it
    sampler.again()
    assert told(sampler.again(), "health") == ["health,,,Healthy,"]
    (folder / "health").write_text(json.dumps(FAILING, **STYLED))
    lines = sampler.again() + sampler.again() + sampler.end()
    assert told(lines, "health") == [
        "health,,,Failure,",
        "health,GPU 1,Memory system,Failure,Detected 2 volatile double-bit ECC error(s) in GPU 1.",
        "health,GPU 1,PCIe system,Warning,"
        "Detected more than 8 PCIe replays per minute for GPU 1 : 13",
    ]
    asked = (folder / "asked").read_text().splitlines()
    assert asked[:4] == [SET[0], "group --create dlperf --default", *SET[1:]]
    assert (set(asked[4:-1]), asked[-1]) == ({SET[-1]}, "group --delete 2")


def test_group_that_an_earlier_run_left_is_used(tmp_path: Path) -> None:
    folder = dcgmi(tmp_path / "bin", "DCGM_ALL_SUPPORTED_NVSWITCHES", "dlperf")
    sampler = Sampler(seconds=60, PATH=f"{folder}:/bin")
    sampler.sample()
    sampler.again()
    sampler.end()
    assert (folder / "asked").read_text().splitlines() == [*SET, SET[-1], "group --delete 2"]


@pytest.mark.parametrize(
    "script",
    [
        "echo 'Error: unable to establish a connection to the specified host: localhost'; exit 255",
        "echo '{\"body\": [1]}'",
        "sleep 60",
    ],
)
def test_dcgm_that_does_not_answer_costs_its_reports_only(tmp_path: Path, script: str) -> None:
    folder = program(tmp_path, "dcgmi", script)
    sampler = Sampler(seconds=60, PATH=f"{folder}:/bin")
    sampler.sample()
    sampler.again()
    assert told(sampler.end(), "health") == []
