"""Wrap a verification's command in containers, with the same program as for benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

DOCUMENTATION = """
name: container_command
short_description: A command in a container on the first host, or across all hosts by mpirun
options:
  _input: {description: Name of the container., type: str, required: true}
"""
PROJECT = Path(__file__).resolve().parents[3]


def container_command(name: str, hosts: Sequence[str], **options: Any) -> dict[str, Any]:
    """The command that runs `argv` once, or with mpirun twice (on two hosts or on the same one).

    `options` are the other ones of `python -m dlperf_runner container-command`: reference, user,
    interface, mpirun, mpirun_args, argv.
    """
    asked = json.dumps({"name": name, "hosts": list(hosts), **options}, default=list)
    argv = [sys.executable, "-m", "dlperf_runner", "container-command"]
    done = subprocess.run(
        argv, cwd=PROJECT, input=asked, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AnsibleFilterError(done.stderr.strip())
    command: dict[str, Any] = json.loads(done.stdout)
    return command


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"container_command": container_command}
