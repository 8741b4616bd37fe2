"""Which packages of vendors apt chooses under the pins of a stack.

The packages are stand-ins; apt, gpg and signatures are real. Nothing here uses the network.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_packages import one
from standin_repository import Standin, flat_repository, needs_apt

from dlperf_runner.bundle.mirror import Settings, make
from dlperf_runner.bundle.needs import Needs
from dlperf_runner.bundle.python.target import Target
from dlperf_runner.bundle.vendor.packages import Vendors, preferences
from dlperf_runner.bundle.vendor.release_tables import VendorRepository

pytestmark = needs_apt
URI = "https://vendor.example/"
Chosen = Callable[..., tuple[list[str], list[str]]]


def family(
    role: str, packages: dict[str, str], members: dict[str, str] | None = None
) -> VendorRepository:
    pins = tuple(((glob,), version) for glob, version in (members or {}).items())
    key, wanted = f"{URI}key.asc", tuple(packages.items())
    return VendorRepository("vendor", role, URI, "/", (), key, ("0" * 40,), "", wanted, pins)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("key")


@pytest.fixture
def chosen(tmp_path: Path, key: Path) -> Chosen:
    """What is in the folder when a vendor has `packages`, and what is missing."""

    def made(packages: list[Standin], *families: VendorRepository) -> tuple[list[str], list[str]]:
        folder = tmp_path / "mirror/vendor"
        flat_repository(folder / "vendor.example", packages, key, "key.asc")
        vendors = Vendors(folder, "", families, preferences(families))
        needs = Needs("stack", "bionic", Target("3.6", "2.27", "amd64"), {}, ())
        # The key that signs is at hand, so none is made.
        settings = Settings(folder.parent, tmp_path, (), base=(), vendors=vendors)
        shutil.copytree(key, tmp_path / "mirror-key")
        outcome = make(needs, settings)
        debs = [item for item in outcome.manifest.files if item.kind == "deb"]
        reasons = [missing.reason for missing in outcome.missing]
        return sorted(f"{item.name}={item.version}" for item in debs), reasons

    return made


def test_dependencies_are_pinned_or_the_newest_that_fits(chosen: Chosen) -> None:
    there = [
        one("driver", "1", "part (>= 1), tool (>= 1) | other"),
        one("driver", "2"),
        *(one(name, version) for name in ("part", "tool") for version in ("1", "2", "10")),
    ]
    assert chosen(there, family("driver", {"driver": "1"}, {"part": "1"})) == (
        ["driver=1", "part=1", "tool=10"],
        [],
    )


def test_a_pin_of_another_family_counts(chosen: Chosen) -> None:
    there = [
        one("cuda", "1", "tool"),
        one("driver", "1", "tool | other"),
        one("other", "1"),
        *(one("tool", version) for version in ("1", "2")),
    ]
    families = (family("cuda", {"cuda": "1"}), family("driver", {"driver": "1"}, {"tool": "1"}))
    assert chosen(there, *families) == (["cuda=1", "driver=1", "tool=1"], [])


@pytest.mark.parametrize("members", [{}, {"driver-*": "1"}, {"driver-*": "3"}], ids=str)
def test_members_that_nothing_asks_for_are_there_for_nodes_that_have_them(
    chosen: Chosen, members: dict[str, str]
) -> None:
    there = [
        one("driver", "1"),
        # They cannot be installed beside each other.
        one("driver-extra", "1", conflicts="driver-server"),
        one("driver-extra", "2"),
        one("driver-server", "1"),
    ]
    expected = ["driver-extra=1", "driver-server=1"] if "1" in members.values() else []
    found, missing = chosen(there, family("driver", {"driver": "1"}, members))
    assert (found, missing) == (sorted(["driver=1", *expected]), [])


def test_a_version_that_is_not_there_is_named_with_those_that_are(chosen: Chosen) -> None:
    there = [one("driver", version) for version in ("9", "10", "10~rc1")]
    wanted = family("driver", {"driver": "8", "gone": "1"})
    assert chosen([*there, one("other", "1")], wanted) == (
        [],
        [
            "does not have it: driver=8 is not in it; it has 10, 10~rc1, 9",
            "does not have it: gone=1 is not in it; it has none",
        ],
    )
