"""An administrator's clone, which its users can only read: caches are the user's own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from captured import captured
from make_logs import ROOT

from dlperf_runner.core import paths

# Root may write anywhere, unless it has given this up.
ORDINARY = ("setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Path]:
    """A clone without write permission, and the home of a user."""
    clone = tmp_path / "clone"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dlperf_runner", clone / "dlperf_runner", ignore=ignored)
    clone.chmod(0o555)
    (tmp_path / "home").mkdir()
    yield tmp_path
    clone.chmod(0o755)


def as_user(site: Path, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
    home, clone = site / "home", site / "clone"
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(clone)}
    before = ORDINARY if os.getuid() == 0 else ()
    return captured(*before, sys.executable, *argv, cwd=home, env={**environment, **variables})


@pytest.mark.parametrize("given", ["", "own cache"])
def test_sources_are_made_in_a_cache_of_the_user(site: Path, given: str) -> None:
    variables = {"DLPERF_CACHE": str(site / "home" / given)} if given else {}
    command = ("-m", "dlperf_runner", "source", "--workload", "pytorch-resnet50v1.5", "--json")
    done = as_user(site, *command, **variables)
    assert done.returncode == 0, done.stderr
    cache = site / "home" / (given or ".local/share/dlperf_runner/.cache")
    assert Path(json.loads(done.stdout)["path"]).is_relative_to(cache)
    assert not (site / "clone/.cache").exists()


def test_ansible_and_the_roles_use_the_same_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPERF_CACHE", str(tmp_path))
    environment = paths.of_ansible()
    assert environment["DLPERF_CACHE"] == str(tmp_path)
    assert environment["ANSIBLE_LOCAL_TEMP"] == str(tmp_path / "ansible/tmp")
    monkeypatch.delenv("DLPERF_CACHE")
    assert paths.of_ansible()["DLPERF_CACHE"] == str(ROOT / ".cache")
    for role in ("horovod", "nccl", "openmpi", "python"):
        text = (ROOT / f"roles/{role}/defaults/main.yml").read_text(encoding="utf-8")
        (line,) = (line for line in text.splitlines() if "/.cache" in line)
        assert "lookup('ansible.builtin.env', 'DLPERF_CACHE')" in line
