"""The bundle and the nodes treat repositories the same way: their pins and keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible.module_utils import deb_family, openpgp_key
from standin_repository import flat_repository

from dlperf_runner.bundle import release_tables
from dlperf_runner.bundle.archives import keyring
from dlperf_runner.bundle.release_tables import VendorRepository
from dlperf_runner.bundle.vendors import preferences
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.suites import SYSTEMS
from dlperf_runner.provision.vendor import repositories

STACKS = [stack for stack in load_catalog().stacks.values() if stack.accelerator == "gpu"]


def test_the_pins_of_a_mirror_are_those_of_the_nodes() -> None:
    seen = set()
    for stack in STACKS:
        for system in [*(SYSTEMS[suite] for suite in stack.suites), *stack.systems]:
            for one in release_tables.wanted(stack, system):
                if isinstance(one, VendorRepository):
                    seen.add(one.name)
                    pins = [{"packages": list(names), "version": v} for names, v in one.pins]
                    text = deb_family.preferences_text(dict(one.packages), pins)
                    assert deb_family.HEADER + preferences([one]) == text
    assert seen == set(repositories())


def test_a_mirror_that_signs_anew_has_the_sites_keys_and_no_checksum_of_the_vendors() -> None:
    keys, seen = {"docker": ["A" * 40], "nvidia-cuda": ["B" * 40]}, set()
    for one in release_tables.wanted(load_catalog().stacks["v100-cuda10.2"], "bionic", keys):
        if isinstance(one, VendorRepository) and one.name in keys:
            seen.add(one.name)
            assert (list(one.fingerprints), one.key_sha256) == (keys[one.name], "")
    assert seen == set(keys)


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
