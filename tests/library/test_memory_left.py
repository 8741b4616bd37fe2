"""Memory of a device that is still in use when a run has ended; nvidia-smi is a stand-in."""

import os
import subprocess
from pathlib import Path
from typing import Any

from benchmark_jobs import call, sampling, telemetry
from standins import TWO, program


def with_memory(folder: Path, mib: int, processes: str = "") -> Path:
    """A stand-in for nvidia-smi; the file `mib` says how much of device 0 is in use."""
    folder.mkdir()
    (folder / "mib").write_text(f"{mib}\n")
    (folder / "processes").write_text(processes)
    two = TWO.format("$(cat mib)", 4).strip()
    script = f'cd {folder}; case "$*" in *compute-apps*) cat processes; exit;; esac\necho "{two}"'
    return program(folder, "nvidia-smi", script)


def test_memory_that_the_run_leaves_on_a_device(tmp_path: Path) -> None:
    """Of its own user's process, or of none that is visible. 100 MiB may come and go."""
    smi = with_memory(tmp_path / "bin", 3)
    uuid = "GPU-11111111-aaaa-bbbb-cccc-000000000000"
    options = sampling(smi)

    def left(run: str, mib: int, processes: str = "") -> Any:
        (smi / "mib").write_text("3\n")
        (smi / "processes").write_text("")
        used = f"echo {mib} > {smi}/mib; echo '{processes}' > {smi}/processes"
        result = call(tmp_path / run, "/bin/sh", "-c", used, **options)
        assert (result["finished"], result["exit_status"]) == (True, 0)
        rows = telemetry(tmp_path / run / "telemetry-node1.csv")
        assert {row["memory_used_mib"] for row in rows} <= {"3", "4", str(mib)}
        return result["left"]

    assert left("r1", 90) == []
    said = "node1: 12565 MiB of GPU 0 are in use, 12562 more than before the run, by"
    assert left("r2", 12565) == [f"{said} no process that is visible there"]
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert left("r3", 12565, f"{uuid}, {os.getpid()}, 503") == [f"{said} {name} ({os.getpid()})"]
    # The device is none of the run's.
    options |= sampling(smi, CUDA_VISIBLE_DEVICES="1")
    assert left("r4", 12565) == []


def test_memory_that_the_driver_frees_a_little_later(tmp_path: Path) -> None:
    smi = with_memory(tmp_path / "bin", 3)
    used = f"until grep -q 12565 {smi}/mib; do sleep 0.1; done"
    free = f"{used}; sleep 1; echo 3 > {smi}/mib"
    with subprocess.Popen(["/bin/sh", "-c", free]) as freeing:
        argv = ("/bin/sh", "-c", f"echo 12565 > {smi}/mib")
        result = call(tmp_path / "r1", *argv, **sampling(smi))
        assert freeing.wait(300) == 0
    assert (result["left"], result["exit_status"]) == ([], 0)
