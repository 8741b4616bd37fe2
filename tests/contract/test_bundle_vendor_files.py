"""Files that the operator gives to a mirror folder, and the options for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from standin_repository import needs_apt
from vendor_site import NCCL, NCCL_SOURCE, PUBLISHED, Site, fetch, make_site, only

from dlperf_runner.bundle.folder.files import digest
from dlperf_runner.bundle.vendor.indexes_and_files import VendorSettings
from dlperf_runner.catalog.stack import Stack
from dlperf_runner.core.errors import UserError

pytestmark = needs_apt


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("vendors"))


def stack_of(**role: Any) -> Stack:
    return Stack(name="files", title="One role", accelerator="gpu", suites=("bionic",), **role)


ARCHIVE = stack_of(nccl=PUBLISHED.nccl)
NETWORK = stack_of(infiniband=PUBLISHED.infiniband)


def source_of(site: Site) -> Callable[..., VendorSettings]:
    """The settings that find the source of NCCL, with further ones."""

    def settings(output: Path, **changed: Any) -> VendorSettings:
        checksums = {"nccl_source_sha256": site.checksums["nccl_source_sha256"]}
        checksums |= changed.pop("checksums", {})
        return VendorSettings(
            output, **{"mirror": str(site.folder / "vendor"), "checksums": checksums, **changed}
        )

    return settings


def test_an_archive_behind_a_login_is_asked_for_by_its_options(site: Site, tmp_path: Path) -> None:
    # Without a word of it, the nodes build the source.
    source = source_of(site)
    assert fetch(ARCHIVE, "bionic", source(tmp_path)).missing == ()
    assert (tmp_path / NCCL_SOURCE).is_file() and not (tmp_path / NCCL).exists()

    given = {"nccl_archive_sha256": site.checksums["nccl_archive_sha256"].upper()}
    missing = only(fetch(ARCHIVE, "bionic", source(tmp_path, mirror="", checksums=given)))
    assert missing.reason == "is behind a login"
    assert "--file nccl_archive=PATH" in missing.remedy

    settings = source(
        tmp_path, mirror="", files={"nccl_archive": str(site.folder / NCCL)}, checksums=given
    )
    assert fetch(ARCHIVE, "bionic", settings).missing == ()
    # At the vendor's address: the roles find it behind the mirror, whatever it was called here.
    assert digest(tmp_path / NCCL) == site.checksums["nccl_archive_sha256"]
    assert fetch(ARCHIVE, "bionic", source(tmp_path, mirror="")).missing == ()


def test_a_given_file_needs_its_checksum_and_has_to_have_it(site: Site, tmp_path: Path) -> None:
    source, files = source_of(site), {"nccl_archive": str(site.folder / NCCL)}
    missing = only(fetch(ARCHIVE, "bionic", source(tmp_path, files=files)))
    assert missing.reason == "has no known checksum, and nothing is kept without one"
    assert "--checksum nccl_archive_sha256=SHA256" in missing.remedy
    wrong = {"nccl_archive_sha256": "0" * 64}
    missing = only(fetch(ARCHIVE, "bionic", source(tmp_path, files=files, checksums=wrong)))
    assert f"sha256 {'0' * 64} was expected" in missing.reason
    assert not (tmp_path / NCCL).exists()
    files = {"nccl_archive": str(tmp_path / "nothing.deb")}
    settings = source(tmp_path, files=files, checksums=wrong)
    assert only(fetch(ARCHIVE, "bionic", settings)).reason == f"is not at {tmp_path}/nothing.deb"


def test_checksums_that_no_table_has_are_asked_for_by_their_variables(
    site: Site, tmp_path: Path
) -> None:
    settings = VendorSettings(tmp_path, mirror=str(site.folder / "vendor"))
    # Nobody asks for nv_peer_mem, which is optional, unless the operator has begun to give it.
    ofed = only(fetch(NETWORK, "bionic", settings))
    assert ofed.reason == "has no known checksum, and nothing is kept without one"
    assert "--checksum infiniband_archive_sha256=SHA256" in ofed.remedy
    files = {"infiniband_peer_memory_archive": str(site.peer_memory)}
    peer_memory = fetch(NETWORK, "bionic", dataclasses.replace(settings, files=files)).missing[-1]
    assert peer_memory.reason == "has no known checksum, and nothing is kept without one"
    assert "--checksum infiniband_peer_memory_sha256=SHA256" in peer_memory.remedy


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"checksums": {"cudnn_sha256": "0" * 64}}, "cudnn_sha256"),
        ({"checksums": {"nccl_archive_sha256": "0"}}, "0"),
        ({"files": {"nccl": "x"}}, "nccl"),
        ({"keys": {"docker": ["0" * 40]}}, "docker"),
    ],
)
def test_an_option_that_the_stack_has_no_use_for_is_an_error(
    tmp_path: Path, given: dict[str, Any], found: str
) -> None:
    with pytest.raises(UserError) as error:
        fetch(ARCHIVE, "bionic", VendorSettings(tmp_path, **given))
    assert error.value.found == found
    assert not list(tmp_path.iterdir())


def test_a_system_that_the_stack_is_not_made_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not support this suite"):
        fetch(PUBLISHED, "noble", VendorSettings(tmp_path))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stack", "v100-cuda10.2", "--checksum", "unknown=1"), "--checksum"),
        (("--stack", "v100-cuda10.2", "--file", "nccl_archive"), "expected NAME=VALUE"),
        (("--stack", "cpu", "--vendor-mirror", "/mirror"), "the stack needs no files from vendors"),
    ],
)
def test_bad_options_are_exit_status_2(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    assert said in call("bundle", *options, "--output-dir", tmp_path / "output", status=2).err
    assert not (tmp_path / "output").exists()
