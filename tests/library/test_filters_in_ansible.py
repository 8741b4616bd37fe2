"""Filters with values as Ansible gives them: its own lists and dictionaries, computed when read."""

import json
from pathlib import Path
from typing import Any

from executed_modules import playbook

VARIABLES: dict[str, Any] = {
    "some": "libucx0",
    "dlperf_stack_overrides": {
        "infiniband": {"rails": "=mlx5_{{ 1 }}"},
        "apt_packages": {"openmpi": ["libnuma1", "{{ some }}"]},
        "driver": {"version": "570.86.15"},
        "cudnn": None,
    },
    "dlperf_datasets": {
        "imagenet-tfrecord": {"path": "/{{ some }}", "images": "/i", "parts": 3, "shared": True}
    },
    "runs": [{"hosts": ["localhost"], "dataset": "{{ some }}"}],
    "further": ["-x", "{{ some }}"],
}
STACK = "('h100-cuda12.9' | stack_document(dlperf_stack_overrides))"
IMAGE = (
    "('x' | container_command(hosts=['a', 'b'], reference='r', user='u', interface=some,"
    " mpirun='/m', mpirun_args=further, argv=['/p'] + further))"
)
TRUE = [
    f"{STACK}.infiniband.rails == '=mlx5_1'",
    f"{STACK}.apt_packages.openmpi == ['libnuma1', 'libucx0']",
    f"{STACK}.driver.version == '570.86.15'",
    f"'cudnn' not in {STACK}",
    "(dlperf_datasets | dataset_sets)[0].path == '/libucx0'",
    "(dlperf_datasets | dataset_sets)[0].files | length == 3",
    f"{IMAGE}.argv[-2:] == ['-x', 'libucx0']",
    f"'btl_tcp_if_include libucx0' in {IMAGE}.argv | join(' ')",
    "runs | bench_datasets('localhost') == ['libucx0']",
    "(runs | bench_ready(['localhost'], hostvars)).bench_possible == []",
]


def test_filters_take_what_ansible_gives(tmp_path: Path) -> None:
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": VARIABLES,
        "tasks": [{"name": "Check", "ansible.builtin.assert": {"that": TRUE}}],
    }
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    done = playbook("-i", "localhost,", tmp_path / "play.yml")
    assert done.returncode == 0, done.stdout
