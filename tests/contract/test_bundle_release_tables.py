"""The bundle and the roles read the same data the same way: releases, repositories, pins, keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import vendor as filters
from ansible.module_utils import deb_family, openpgp_key
from standin_repository import flat_repository

from dlperf_runner.bundle import release_tables
from dlperf_runner.bundle.openpgp import keyring
from dlperf_runner.bundle.release_tables import ReleaseTable, VendorRepository
from dlperf_runner.bundle.vendors import preferences
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.suites import SYSTEMS

STACKS = [stack for stack in load_catalog().stacks.values() if stack.accelerator == "gpu"]
TABLES = {(table.role, table.name): table for s in STACKS for table in release_tables.tables(s)}
VERSIONS = [
    ReleaseTable(role, name, version, table.title)
    for (role, name), table in TABLES.items()
    for version in [*map(str, table.releases), "0.0"]
]


@pytest.mark.parametrize("system", [*SYSTEMS.values(), "rhel8", "rhel9", "centos7"])
def test_a_release_is_refused_by_both_or_is_the_same_for_both(system: str) -> None:
    for table in VERSIONS:
        arguments = (table.releases, table.version, system, table.title, "the stack")
        assert bool(table.refusal(system)) == bool(filters.refusal(*arguments)), table
        if not table.refusal(system):
            assert table.release(system) == filters.release(*arguments), table


@pytest.mark.parametrize("keys", [{}, {"docker": ["A" * 40], "nvidia-cuda": ["B" * 40]}], ids=str)
def test_a_repository_and_its_pins_are_the_same_for_both(keys: dict[str, list[str]]) -> None:
    seen = set()
    for stack in STACKS:
        for system in [*(SYSTEMS[suite] for suite in stack.suites), *stack.systems]:
            for one in release_tables.wanted(stack, system, keys):
                if not isinstance(one, VendorRepository):
                    continue
                seen.add(one.name)
                there = filters.repository(one.name, system, None, keys)
                assert (one.uri, one.components, one.key) == (
                    there["uri"],
                    tuple(there["components"]),
                    there["key"],
                )
                assert list(one.fingerprints) == there["fingerprints"]
                assert one.key_sha256 == there.get("key_sha256", "")
                pins = [{"packages": list(names), "version": v} for names, v in one.pins]
                text = deb_family.preferences_text(dict(one.packages), pins)
                assert deb_family.HEADER + preferences([one]) == text
    assert seen == set(filters.repositories())


def test_a_key_is_judged_as_nodes_judge_it(tmp_path: Path) -> None:
    flat_repository(tmp_path, [], tmp_path / "key", "key.asc")
    key = (tmp_path / "key.asc").read_bytes()
    binary = openpgp_key.dearmored(key)
    for content in (key, binary, key + b"\n" + key):
        found, fingerprints = keyring(content)
        assert fingerprints == openpgp_key.fingerprints(openpgp_key.dearmored(content))
        assert found == openpgp_key.dearmored(content)
    changed = bytearray(key)
    changed[len(key) // 2] ^= 1
    secret = (tmp_path / "key/secret.asc").read_bytes()
    for content in (b"", b"<html>", key[:-9], key[: len(key) // 2], bytes(changed), binary[:99]):
        with pytest.raises(ValueError, match=r"public key|cut off"):
            keyring(content)
        with pytest.raises(ValueError, match=r"its armour|incomplete|OpenPGP|no public key"):
            openpgp_key.fingerprints(openpgp_key.dearmored(content))
    with pytest.raises(ValueError, match="secret key"):
        keyring(secret)
