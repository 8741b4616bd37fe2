"""The prolog that the role slurm places on nodes, as slurmd starts it; with recorded GPUs and a
stand-in for scontrol."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from captured import captured
from cuda_standin import GCC, libcuda, libhip
from standins import amd, fixture, index_of, needed, nvidia_smi, program, several, tree

from dlperf_runner.provision import slurm

NODE = {
    "name": "node1",
    "address": "127.0.0.1",
    "user": "dlperf",
    "interface": "lo",
    "devices_per_node": 8,
    "accelerator": "Tesla V100-SXM2-16GB",
    "adopted": [],
    "env": {},
}
DRIVER = "440.33.01"
STACK = {
    "accelerator": "gpu",
    "driver": {"version": DRIVER},
    "gpu": {"models": ["Tesla V100-SXM2-16GB"]},
}
PROC = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Wed Nov 13 00:00:22 UTC 2019"
# As `python3 -IS prolog.py` imports, but with a root of its own.
CALL = """
import json, sys
sys.path.insert(0, sys.argv[1])
import prolog
prolog.NOT_HERE -= set(sys.argv[4:])
known = json.load(sys.stdin, object_hook=prolog.Described)
print(json.dumps(prolog.failed(known.node, known.stack, *sys.argv[2:4])))
"""


def placed(folder: Path, node: Mapping[str, Any], stack: Mapping[str, Any]) -> Path:
    """The prolog, as node_files places it."""
    for entry in slurm.prolog({"node": node, "stack": stack}, str(folder)):
        path = Path(entry["path"])
        if entry.get("state") == "directory":
            path.mkdir(mode=int(entry["mode"], 8))
        else:
            path.write_text(entry["content"])
    return folder / "prolog.py"


def prolog(
    tmp_path: Path,
    node: Mapping[str, Any],
    python: str = sys.executable,
    stack: Mapping[str, Any] = {"accelerator": "cpu"},
) -> tuple[int, str]:
    """Exit status, and what scontrol was told."""
    told = tmp_path / "told"
    scontrol = program(tmp_path / "bin", "scontrol", f'printf "%s\\n" "$@" > {told}\n')
    script = placed(tmp_path / "prolog", node, stack)
    environment = {"PATH": f"{scontrol}:/usr/bin:/bin", "SLURMD_NODENAME": "node1"}
    done = captured(python, "-IS", script, env=environment)
    assert done.stderr == ""
    return done.returncode, told.read_text() if told.exists() else ""


def test_a_good_node_runs_the_job(tmp_path: Path) -> None:
    assert prolog(tmp_path, NODE) == (0, "")


BAD = NODE | {"interface": "ib7"}


@pytest.mark.parametrize("version", ["3.9", "3.11", "3.13"])
def test_a_bad_node_is_drained_with_the_reason(tmp_path: Path, version: str) -> None:
    status, told = prolog(tmp_path, BAD, needed(version))
    assert status == 1
    assert told.splitlines() == [
        *("update", "NodeName=node1", "State=DRAIN"),
        "Reason=dlperf: interface: expected ib7, found no such interface",
    ]


def test_what_cannot_be_checked_drains_no_node(tmp_path: Path) -> None:
    without = {key: value for key, value in NODE.items() if key != "env"}
    assert prolog(tmp_path, without) == (0, "")


@pytest.mark.parametrize("version", ["3.6", "3.8"])
def test_too_old_a_python_drains_no_node(tmp_path: Path, version: str) -> None:
    assert prolog(tmp_path, BAD, needed(version)) == (0, "")


def gpus(
    tmp_path: Path, xml: str, *too: str, fails: str = "", driver: str = DRIVER, **changed: Any
) -> list[str]:
    """What fails on a node whose nvidia-smi prints this. `too`: checks that are not left out;
    `fails`: what the stand-in of libcuda answers."""
    bins = nvidia_smi(tmp_path / "bin", xml.replace(DRIVER, driver), "", index_of(8))
    logged = f'echo "$*" >> "{tmp_path}/asked"\n'
    script = (bins / "nvidia-smi").read_text().removeprefix("#!/bin/sh\n")
    program(bins, "nvidia-smi", logged + script)
    bus = {
        f"sys/bus/pci/devices/0000:{0x1A + n:02x}:00.0/{name}": value
        for n in range(8)
        for name, value in (("vendor", "0x10de"), ("class", "0x030200"))
    }
    files = {
        **bus,
        "proc/driver/nvidia/version": PROC.replace(DRIVER, driver),
        "sys/module/nvidia/version": driver,
        "var/log/dmesg": "[ 9.1] NVRM: loading",
    }
    return checked(tmp_path, libcuda, files, {"node": changed, "stack": STACK}, *too, fails=fails)


def checked(
    tmp_path: Path,
    compiled: Callable[[Path, str], Path],
    files: dict[str, str],
    checks: dict[str, Any],
    *too: str,
    fails: str,
) -> list[str]:
    """What the prolog's checks find with these files, and the stand-in of a library."""
    folder = tmp_path / "prolog"
    if not folder.exists():
        placed(folder, {}, {})
    given = json.dumps(checks | {"node": NODE | {"interface": ""} | checks["node"]})
    if not GCC:
        pytest.skip("there is no gcc to compile the stand-in of the library")
    (tmp_path / "fails").write_text(fails)
    library, root = compiled(tmp_path, str(tmp_path / "fails")), tree(tmp_path / "root", files)
    argv = (sys.executable, "-ISc", CALL, folder, root, library, *too)
    done = captured(*argv, env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}, input=given)
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


V100 = fixture("gpu/v100_440.xml")


@pytest.mark.parametrize(
    ("xml", "changed", "reason"),
    [
        (several(V100, 8), {}, None),
        (several(V100, 7), {}, "gpu count: expected 8 (dlperf_devices_per_node), found 7"),
        (several(V100, 8), {"accelerator": "V100"}, None),
        # An administrator updates the driver (NVIDIA/gpu-operator#2207).
        (several(V100, 8), {"driver": "440.95.01"}, None),
        (several(V100, 8), {"driver": "440.31"}, f"driver: expected {DRIVER}, found 440.31"),
        ("", {}, "nvidia-smi: expected it answers, found "),
    ],
)
def test_gpus_are_judged_as_by_the_doctor(
    tmp_path: Path, xml: str, changed: Mapping[str, Any], reason: str | None
) -> None:
    found = gpus(tmp_path, xml, **changed)
    assert found == [] if reason is None else any(each.startswith(reason) for each in found), found


def test_an_nvidia_smi_that_hangs_holds_no_job_up(tmp_path: Path) -> None:
    """The driver of a GPU that has fallen off the bus. It is asked once, for 20 s at most."""
    program(tmp_path / "bin", "nvidia-smi", f'echo "$*" >> {tmp_path}/asked; exec sleep 600')
    begin = time.monotonic()
    status, told = prolog(tmp_path, NODE, stack=STACK)
    assert 20 <= time.monotonic() - begin < 60
    assert (tmp_path / "asked").read_text() == "-q -x\n"
    assert status == 1
    drained = "Reason=dlperf: nvidia-smi: expected it answers, found timeout: no answer"
    assert told.splitlines()[3].startswith(drained)


def test_nvidia_smi_is_asked_nothing_that_only_warns(tmp_path: Path) -> None:
    """Without persistence mode, each question initialises the GPUs anew."""
    assert gpus(tmp_path, several(V100, 8)) == []
    assert (tmp_path / "asked").read_text().splitlines() == [
        *("-q -x", "--query-gpu=index,uuid --format=csv,noheader", "topo -m"),
    ]


def test_a_node_that_looks_well_and_computes_nothing_is_drained(tmp_path: Path) -> None:
    """The fabric manager does not run: nvidia-smi is content, and CUDA is not
    (NVIDIA/gpu-operator#2781)."""
    (found,) = gpus(tmp_path, several(V100, 8), fails="cuInit 802")
    assert found.startswith("gpu compute: ") and "the NVSwitch fabric is not ready" in found


@pytest.mark.parametrize(
    ("fails", "reason"),
    [
        ("", ""),
        ("hipInit 100", "hipInit returned 100 hipErrorNoDevice (module amdgpu 6.16.13). To do"),
        ("wrong 1", "GPU 0: 1 of 256 numbers are wrong"),
    ],
)
def test_gpus_of_amd_compute_before_each_job(tmp_path: Path, fails: str, reason: str) -> None:
    name = "AMD Instinct MI300X"
    node = {"accelerator": name, "devices_per_node": 2}
    stack = {"accelerator": "gpu", "gpu": {"models": [name]}}
    files = amd(2) | {"sys/module/amdgpu/version": "6.16.13"}
    found = checked(tmp_path, libhip, files, {"node": node, "stack": stack}, fails=fails)
    assert [reason in each for each in found] == [True] * bool(reason), found


def test_what_other_jobs_do_drains_no_node(tmp_path: Path) -> None:
    """Processes of another job on the GPUs."""
    process = (
        "<processes><process_info><pid>7</pid><type>C</type><process_name>python</process_name>"
        "<used_memory>100 MiB</used_memory></process_info></processes>"
    )
    busy = several(V100, 8)
    assert "<processes>" in busy
    start, end = busy.index("<processes>"), busy.index("</processes>") + len("</processes>")
    busy = busy[:start] + process + busy[end:]
    assert gpus(tmp_path, busy) == []
    (found,) = gpus(tmp_path, busy, "other processes")
    assert found.startswith("other processes: expected none, found GPU 0: pid 7 python")
