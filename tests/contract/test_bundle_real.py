"""A small mirror of the real Debian archive, for each suite: fetched, signed, verified by apt.

Takes a few packages without dependencies, so that it costs the package lists and some hundred kB.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dlperf_runner.bundle import Needs, RequirementsFile, Settings, Source, apt, archives, make
from dlperf_runner.bundle.mirror import ROOT
from dlperf_runner.bundle.needs import SUITES, host_architecture
from dlperf_runner.errors import UserError

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not all(shutil.which(command) for command in ("apt-get", "gpg")), reason="needs apt and gpg"
    ),
]


@pytest.mark.parametrize("suite", SUITES)
def test_a_mirror_of_the_real_archive(tmp_path: Path, suite: str) -> None:
    needs = Needs(
        stack="cpu",
        suite=SUITES[suite],
        architecture=host_architecture(),
        packages={"node_base": ("netbase", "media-types")},
        requirements=(RequirementsFile("requirements/uv.txt", "uv"),)
        if suite == "bookworm"
        else (),
        root=ROOT,
    )
    settings = Settings(
        tmp_path / "mirror", tmp_path / "cache", archives.host_sources(suite), base=()
    )
    first = make(needs, settings)
    assert {item.name for item in first.manifest.files if item.kind == "deb"} == {
        "netbase",
        "media-types",
    }
    assert not make(needs, settings).changed

    key = str(settings.output / "apt/dlperf-mirror.asc")
    node = apt.Root(tmp_path / "node", needs.architecture)
    apt.prepare(node, [Source(f"file:{settings.output}/apt", (suite,), signed_by=key)])
    apt.update(node)
    (netbase,) = apt.resolve(node, ["netbase"], where="test")
    apt.download(node, [netbase], tmp_path)
    (tmp_path / netbase.filename).unlink()

    (package,) = settings.output.glob("apt/pool/**/netbase_*.deb")
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 1
    package.write_bytes(bytes(content))
    with pytest.raises(UserError, match="netbase"):
        apt.download(node, [netbase], tmp_path)
    repaired = make(needs, settings)
    assert repaired.repaired == (package.relative_to(settings.output).as_posix(),)
    apt.download(node, [netbase], tmp_path)
