"""The modules under every Python that a node may have."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from captured import captured
from standins import LIBRARY, MODULE_UTILS, PROJECT, ansible_standin, needed

VERSIONS = ("2.7", "3.6", "3.12")


def run(*argv: object, path: Path) -> None:
    environment = {"PYTHONPATH": str(path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = captured(*argv, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", VERSIONS)
def test_every_module_can_be_read(tmp_path: Path, version: str) -> None:
    """With a stand-in for Ansible's own part; nothing of theirs is run."""
    modules = sorted(LIBRARY.glob("*.py"))
    shared = [path.stem for path in sorted(MODULE_UTILS.glob("*.py"))]
    assert min(len(modules), len(shared)) > 10
    code = f"""import importlib, runpy, sys
for path in sys.argv[1:]: runpy.run_path(path)
for name in {shared}: importlib.import_module("ansible.module_utils." + name)"""
    utils = ansible_standin(tmp_path) / "ansible/module_utils"
    (utils / "common/text").mkdir(parents=True)
    for name, content in {
        "urls.py": "fetch_url = None",
        "common/__init__.py": "",
        "common/text/__init__.py": "",
        "common/text/converters.py": "to_bytes = to_native = to_text = None",
    }.items():
        (utils / name).write_text(content)
    run(needed(version), "-c", code, *modules, path=tmp_path)


@pytest.fixture(scope="module")
def oldest_ansible(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ansible-core of the oldest release that is supported, which has modules for old Pythons."""
    folder = tmp_path_factory.mktemp("oldest")
    locked = (PROJECT / "requirements/ansible-2.16.txt").read_text()
    pinned = re.search(r"^ansible-core==.*(\n +--hash.*)+", locked, re.MULTILINE)
    assert pinned
    (folder / "requirements.txt").write_text(pinned[0] + "\n")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
    argv = [*pip, "--target", folder / "site", "-r", folder / "requirements.txt"]
    subprocess.run(argv, check=True, timeout=600)
    return folder / "site"


@pytest.mark.heavy
@pytest.mark.versions
@pytest.mark.parametrize("version", VERSIONS)
def test_the_modules_do_there_what_they_do_here(oldest_ansible: Path, version: str) -> None:
    """Their own tests again, each execution of a module in that Python."""
    names = ("node_files", "deb_packages", "proof", "python_environment", "ssh_mesh", "node_facts")
    names += ("node_copy", "build_archive", "benchmark_job", "other_nodes", "telemetry")
    names += ("benchmark_fetch", "dataset_modules", "stamps", "node_lock", "node_tuning")
    names += ("adoption", "dcgm_info", "fabric_info", "gpu_compute", "gpu_info", "vendor_filters")
    names += ("node_health_info", "driver_of_images", "slurm_conf", "unpacked_packages")
    tests = [Path(__file__).with_name(f"test_{name}.py") for name in names]
    # This is the last to end of its suite: nothing else needs the second core.
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *tests]
    given = {"MODULES_PYTHON": needed(version), "MODULES_PYTHONPATH": str(oldest_ansible)}
    done = captured(*argv, cwd=PROJECT, env={**os.environ, **given})
    assert done.returncode == 0, done.stdout[-5000:]
