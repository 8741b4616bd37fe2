"""The most memory that a program had at once."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Not ru_maxrss: after a fork, that begins with the memory of the test's own process.
_PEAK = """
import pathlib, re
print(re.search(r"VmHWM:\\s*(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
"""


def peak_of(program: str, *arguments: str | Path) -> tuple[str, float]:
    """What a Python program prints, and its peak memory in MB."""
    done = subprocess.run(
        [sys.executable, "-c", program + _PEAK, *map(str, arguments)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    printed, peak = done.stdout.rstrip("\n").rpartition("\n")[::2]
    return printed, int(peak) / 1024
