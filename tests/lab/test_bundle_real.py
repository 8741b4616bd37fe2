"""A small mirror of the real archives, for each suite: fetched, signed, verified by apt.

Takes a few packages without dependencies, so that it costs the package lists and some hundred kB.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mirror_site import lost

from dlperf_runner.bundle import apt, archives
from dlperf_runner.bundle.archives import Source
from dlperf_runner.bundle.mirror import Settings, make
from dlperf_runner.bundle.needs import Needs, debian_name
from dlperf_runner.bundle.wheels import RequirementsFile, Target
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.suites import SUITES

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(
        not all(shutil.which(command) for command in ("apt-get", "gpg")), reason="needs apt and gpg"
    ),
]
OTHER_RELEASES = (pytest.mark.heavy, pytest.mark.versions)
# Without dependencies beyond each other.
PACKAGES = {"debian": ("netbase", "media-types"), "ubuntu": ("distro-info-data",)}


@pytest.mark.parametrize(
    "suite",
    [pytest.param(suite, marks=() if suite == "bookworm" else OTHER_RELEASES) for suite in SUITES],
)
def test_a_mirror_of_the_real_archive(tmp_path: Path, suite: str) -> None:
    distribution = archives.DISTRIBUTIONS[SUITES[suite].distribution]
    target = Target(SUITES[suite].python, SUITES[suite].glibc, debian_name(platform.machine()))
    if not distribution.keyring.is_file():
        pytest.skip(f"needs {distribution.keyring_package}")
    names = PACKAGES[distribution.name]
    needs = Needs(
        stack="cpu",
        suite=suite,
        target=target,
        packages={"node_base": names},
        requirements=(RequirementsFile("requirements/uv.txt", "uv"),)
        if suite == "bookworm"
        else (),
        root=ROOT,
    )
    settings = Settings(
        tmp_path / "mirror",
        tmp_path / "cache",
        archives.host_sources(suite, distribution=distribution),
        base=(),
    )
    first = make(needs, settings)
    assert {item.name for item in first.manifest.files if item.kind == "deb"} == set(names)
    assert not make(needs, settings).changed

    key = str(settings.output / "apt/dlperf-mirror.asc")
    node = apt.Root(tmp_path / "node", target.architecture)
    apt.prepare(node, [Source(f"file:{settings.output}/apt", (suite,), signed_by=key)])
    assert not apt.update(node)
    (chosen,) = apt.resolve(node, [names[0]], where="test")
    assert not lost(node, [chosen], tmp_path)
    (tmp_path / chosen.filename).unlink()

    (package,) = settings.output.glob(f"apt/pool/**/{names[0]}_*.deb")
    content = bytearray(package.read_bytes())
    content[len(content) // 2] ^= 1
    package.write_bytes(bytes(content))
    assert list(lost(node, [chosen], tmp_path)) == [names[0]]
    repaired = make(needs, settings)
    assert repaired.repaired == (package.relative_to(settings.output).as_posix(),)
    assert not lost(node, [chosen], tmp_path)


@pytest.mark.heavy
@pytest.mark.versions
def test_wheels_and_packages_of_the_stack_for_arm_can_be_resolved(tmp_path: Path) -> None:
    """GB200. Debian's packages stand for Ubuntu's of the same names."""
    catalog = load_catalog()
    stack = catalog.stack("b200-cuda13")
    environments = [
        environment
        for framework in catalog.frameworks.values()
        for environment in framework.environments_on(stack.name).values()
        if environment.requirements
    ]
    argv = [Path(sys.executable).with_name("uv"), "pip", "install", "--dry-run", "--require-hashes"]
    argv += ["--only-binary", ":all:", "--python-version", "3.12", "--target", tmp_path]
    locks = {str(environment.requirements) for environment in environments}
    assert {"requirements/pytorch-cuda13.txt", "requirements/jax-cuda13.txt"} <= locks
    for lock in locks:
        for glibc in ("2_35", "2_39"):  # of Ubuntu 22.04 and 24.04
            platform_of_node = ["--python-platform", f"aarch64-manylinux_{glibc}"]
            subprocess.run([*argv, *platform_of_node, "-r", ROOT / lock], check=True)
    names = {name for role in stack.apt_packages.values() for name in role}
    names |= {name for environment in environments for name in environment.apt_packages}
    node = apt.Root(tmp_path / "node", "arm64")
    apt.prepare(node, archives.sources_of(archives.DEBIAN, "trixie", has_gpus=False))
    assert not apt.update(node)
    assert names <= {package.name for package in apt.resolve(node, sorted(names), where="test")}
