"""What is taken of a vendor's repository: versions in dpkg's order, and apt's choice under pins."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlperf_runner.bundle import repository
from dlperf_runner.bundle.debian_version import Relation, alternatives, key
from dlperf_runner.bundle.fetch import Fetcher, FetchError
from dlperf_runner.bundle.repository import Package
from dlperf_runner.bundle.vendor import VendorRepository
from dlperf_runner.bundle.vendor_repository import choose, pins

# From old to new.
ORDERED = (
    "0~~",
    "0~",
    "0",
    "1.4.6~rc1-1",
    "1.4.6-1",
    "1.4.6-1a",
    "1.4.6-1+b1",
    "1.4.10-1",
    "440.33.01-0ubuntu1",
    "440.118.02-0ubuntu1",
    "5:18.09.9~3-0~ubuntu-bionic",
    "5:20.10.7~3-0~ubuntu-bionic",
    "5:20.10.7-0",
)


def test_versions_are_in_the_order_that_the_manual_says() -> None:
    assert all(key(one) < key(other) for one, other in pairwise(ORDERED))
    assert key("1.0") == key("1.0-0") == key("0:1.0") == key("1.00")


def dpkg_says(one: str, sign: str, other: str) -> bool:
    argv = ["dpkg", "--compare-versions", one, sign, other]
    return subprocess.run(argv, check=False).returncode == 0


needs_dpkg = pytest.mark.skipif(not shutil.which("dpkg"), reason="needs dpkg")


@needs_dpkg
def test_dpkg_has_the_same_order() -> None:
    assert all(dpkg_says(one, "lt", other) for one, other in pairwise(ORDERED))


VERSIONS = st.from_regex(r"([0-2]:)?[0-2][0a.~+]{0,3}[0-9b]?(-[0a~]{1,2})?", fullmatch=True)


@needs_dpkg
@settings(max_examples=60, deadline=None)
@given(VERSIONS, VERSIONS)
def test_any_two_versions_compare_as_dpkg_compares_them(one: str, other: str) -> None:
    said = (dpkg_says(one, "lt", other), dpkg_says(one, "eq", other))
    assert (key(one) < key(other), key(one) == key(other)) == said


def test_relations_are_read_as_they_are_written() -> None:
    assert alternatives("a (>= 1:2) | b:any, c [amd64] <!nocheck>,d(=3)") == [
        (Relation("a", ">=", "1:2"), Relation("b")),
        (Relation("c"),),
        (Relation("d", "=", "3"),),
    ]
    assert alternatives("") == []


@pytest.mark.parametrize(
    ("sign", "versions"),
    [("<<", "1"), ("<=", "12"), ("=", "2"), (">=", "23"), (">>", "3"), ("<", "12"), (">", "23")],
)
def test_a_relation_holds_for_the_versions_that_it_says(sign: str, versions: str) -> None:
    assert [v for v in "123" if Relation("a", sign, "2").holds(v)] == list(versions)


# ---- the choice


def package(name: str, version: str, depends: str = "") -> Package:
    return repository.parse(
        f"Package: {name}\nVersion: {version}\nDepends: {depends}\n"
        f"Filename: {name}_{version}.deb\nSize: 1\nSHA256: {'0' * 64}\n"
    )


def family(
    name: str, packages: dict[str, str], members: dict[str, str] | None = None
) -> VendorRepository:
    return VendorRepository(
        "vendor",
        name,
        "https://vendor.example/",
        "/",
        (),
        "https://vendor.example/key",
        (),
        "",
        tuple(packages.items()),
        tuple(((glob,), version) for glob, version in (members or {}).items()),
    )


def chosen(packages: list[Package], *families: VendorRepository) -> tuple[list[str], list[str]]:
    found, missing = choose(packages, families, pins(families))
    return sorted(f"{one.package.name}={one.package.version}" for one in found), missing


def test_what_is_depended_on_is_pinned_or_the_newest_that_fits() -> None:
    there = [
        package("driver", "1", "part (>= 1), tool (>= 1) | other, libc6"),
        package("driver", "2"),
        *(package(name, version) for name in ("part", "tool") for version in ("1", "2", "10")),
    ]
    assert chosen(there, family("driver", {"driver": "1"}, {"part": "1"})) == (
        ["driver=1", "part=1", "tool=10"],
        [],
    )


def test_a_pin_of_another_family_counts_and_each_is_asked_for_once() -> None:
    there = [
        package("cuda", "1", "tool"),
        package("driver", "1", "tool | other"),
        package("other", "1"),
        *(package("tool", version) for version in ("1", "2")),
    ]
    families = (family("cuda", {"cuda": "1"}), family("driver", {"driver": "1"}, {"tool": "1"}))
    assert chosen(there, *families) == (["cuda=1", "driver=1", "tool=1"], [])


def test_members_that_nothing_asks_for_are_there_for_nodes_that_have_them() -> None:
    there = [package("driver", "1"), package("driver-extra", "1"), package("driver-extra", "2")]
    assert chosen(there, family("driver", {"driver": "1"}))[0] == ["driver=1"]
    assert chosen(there, family("driver", {"driver": "1"}, {"driver-*": "1"}))[0] == [
        "driver-extra=1",
        "driver=1",
    ]


def test_a_version_that_is_not_there_is_named_with_those_that_are() -> None:
    there = [package("driver", version) for version in ("9", "10")]
    assert chosen(there, family("driver", {"driver": "8", "gone": "1"}))[1] == [
        "driver=8 is not in it; it has 10, 9",
        "gone=1 is not in it; it has none",
    ]


@pytest.mark.parametrize("url", ["https://../x", "https://host/%2e%2e/%2e%2e/x", "/etc/passwd"])
def test_no_address_leads_out_of_the_folder(tmp_path: Path, url: str) -> None:
    with pytest.raises(FetchError, match="leads out of its folder"):
        Fetcher(tmp_path).path(url)
