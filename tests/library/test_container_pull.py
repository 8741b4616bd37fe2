"""The pulling of images by the role container, executed by Ansible on this machine, with a stand-in
for the engine that has no image and says what it was asked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
IMAGE = "nvcr.io/nvidia/tensorflow:20.12-tf1-py3"
DIGEST = "sha256:" + "5f" * 32
ENGINE = """#!/bin/sh
echo "$@" >> "$(dirname "$0")/asked"
test "$1" = pull
"""
PLAY = """
- hosts: localhost
  connection: local
  gather_facts: false
  tasks:
    - ansible.builtin.include_role: {name: container, tasks_from: pull.yml}
"""


@pytest.mark.parametrize(
    ("registry", "place"),
    [
        ("", "nvcr.io/nvidia/tensorflow"),
        ("registry.example:5000", "registry.example:5000/nvidia/tensorflow"),
        ("harbor.example/ngc", "harbor.example/ngc/nvidia/tensorflow"),
    ],
)
def test_images_come_by_digest_from_the_registry_that_is_named(
    tmp_path: Path, registry: str, place: str
) -> None:
    (tmp_path / "docker").write_text(ENGINE)
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "play.yml").write_text(PLAY)
    values = {
        "container_engine": "docker",
        "container_wanted": IMAGE,
        "dlperf_container_images": {IMAGE: DIGEST},
        "dlperf_registry": registry,
        "ansible_become": False,
        "ansible_python_interpreter": sys.executable,
    }
    done = subprocess.run(
        [
            *(Path(sys.executable).with_name("ansible-playbook"), tmp_path / "play.yml"),
            *("-i", "localhost,", "-e", json.dumps(values)),
        ],
        env={
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "asked").read_text().splitlines() == [
        f"image inspect {place}@{DIGEST}",
        f"pull --quiet {place}@{DIGEST}",
    ]
