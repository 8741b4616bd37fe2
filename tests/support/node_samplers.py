"""The program that samples a node, and what its lines tell."""

import csv
import subprocess
import sys
from collections.abc import Iterator

from run_agent.node_sampler import COLUMNS, SHARE
from standins import MODULE_UTILS

CALL = """
from run_agent import gpu_sampler, node_sampler
gpu_sampler.EVERY_S = {}
node_sampler.SHARE = {}
node_sampler.main({}, 60, {}, {!r})
"""


class Sampler:
    """The program. `root` has the tree of its node; `gpus` says whether it looks for devices."""

    def __init__(
        self, root: str = "", gpus: bool = True, seconds: int = 60, python: str | None = None,
        every: int = 60, share: float = SHARE, **environment: str,
    ) -> None:  # fmt: skip
        code = CALL.format(every, share, seconds, "gpu_sampler.gpus" if gpus else None, root)
        paths = {
            "PYTHONPATH": str(MODULE_UTILS),
            "PATH": "/nowhere",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.process = subprocess.Popen(
            [python or sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=paths | environment,
            text=True,
        )

    def until_node(self) -> Iterator[str]:
        """The lines of a sample, of which the node's is the last."""
        assert self.process.stdout
        for line in self.process.stdout:
            yield line.rstrip("\n")
            if line.startswith("sample,") and line.split(",")[2] == "":
                return

    def sample(self) -> list[str]:
        return list(self.until_node())

    def again(self) -> list[str]:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.sample()

    def end(self) -> list[str]:
        """The last sample."""
        said, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        return said.splitlines()


def cells(line: str) -> dict[str, str]:
    """What a sample tells, without its time."""
    _, _, device, uuid, *values = next(csv.reader([line]))
    found = {"device": device, "uuid": uuid, **dict(zip(COLUMNS, values, strict=True))}
    return {name: text for name, text in found.items() if text}


def told(lines: list[str], kind: str) -> list[str]:
    return [line for line in lines if line.partition(",")[0] == kind]
