"""The sources of this machine, apt's output, the private apt's configuration, why a package is in
a mirror folder, and its manifest."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from debian.deb822 import Deb822
from refusals import refusal

from dlperf_runner.bundle import apt, archives, manifest
from dlperf_runner.bundle.manifest import Item, MirrorManifest, SkippedNeed, digest

DEB822 = """\
Types: deb
# http://snapshot.debian.org/archive/debian/20250520T000000Z
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/site.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 -----END PGP PUBLIC KEY BLOCK-----

Types: deb-src
URIs: http://mirror.example/sources
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://mirror.example/disabled
Suites: bookworm
Components: main
"""
LINES = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/site.gpg] http://mirror.example/debian/ bookworm main
deb-src http://sources.example/debian bookworm main
deb http://mirror.example/debian-security bookworm-security main # ours
deb nonsense
"""
UBUNTU_LINES = """\
deb http://mirror.example/ubuntu jammy main restricted
deb http://mirror.example/ubuntu jammy universe
deb http://mirror.example/ubuntu jammy-updates main restricted
deb http://security.example/ubuntu jammy-security main restricted
"""
RING, UBUNTU_RING = "/usr/share/keyrings/site.gpg", str(archives.UBUNTU.keyring)
Source, DEBIAN, UBUNTU = archives.Source, archives.DEBIAN, archives.UBUNTU


Sources = Callable[..., tuple[archives.Source, ...]]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    """Those for a suite on a machine with this file of apt, which runs a release."""

    def sources_on(text: str, release: Mapping[str, str], *wanted: Any) -> tuple[Source, ...]:
        name = "sources.list.d/site.sources" if "Types:" in text else "sources.list"
        (tmp_path / "sources.list.d").mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
        return archives.host_sources(*wanted, apt=tmp_path)

    return sources_on


@pytest.mark.parametrize("text", [DEB822, LINES], ids=["stanzas", "lines"])
def test_a_machine_lends_its_mirror_for_all_suites_of_its_kind(sources: Sources, text: str) -> None:
    release = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
    assert sources(text, release, "trixie", DEBIAN) == (
        Source("http://mirror.example/debian", ("trixie", "trixie-updates"), ("main",), RING),
        Source("http://mirror.example/debian-security", ("trixie-security",), ("main",), RING),
    )
    # For another distribution, it takes that distribution's own archive.
    own, updates = sources(text, release, "focal", UBUNTU)
    assert own.uri == updates.uri == "http://archive.ubuntu.com/ubuntu"
    assert own.suites + updates.suites == ("focal", "focal-updates", "focal-security")
    # And so does a machine that does not say what it runs.
    uris = [source.uri for source in sources(text, {}, "bookworm", DEBIAN)]
    assert uris == [DEBIAN.archive, f"{DEBIAN.archive}-security"]


def test_ubuntus_security_updates_may_lie_elsewhere(sources: Sources) -> None:
    release, both = {"ID": "ubuntu", "VERSION_CODENAME": "jammy"}, ("main", "universe")
    suites = ("bionic", "bionic-updates")
    assert sources(UBUNTU_LINES, release, "bionic", UBUNTU) == (
        Source("http://mirror.example/ubuntu", suites, both, UBUNTU_RING),
        Source("http://security.example/ubuntu", ("bionic-security",), both, UBUNTU_RING),
    )


def test_a_mirror_has_its_security_updates_where_the_distribution_has_them() -> None:
    def uris(distribution: archives.Distribution, *addresses: str) -> list[str]:
        return [one.uri for one in archives.sources_of(distribution, "suite", *addresses)]

    assert uris(DEBIAN, "http://m/d/") == ["http://m/d", "http://m/d-security"]
    assert uris(UBUNTU, "http://m/u/") == ["http://m/u", "http://m/u"]
    assert uris(UBUNTU, "http://m/u", "http://s/u") == ["http://m/u", "http://s/u"]
    # NVIDIA's packages for Debian 12 ask for some of contrib.
    for source in archives.sources_of(DEBIAN, "bookworm", has_gpus=True):
        assert source.components == ("main", "contrib")


def test_what_apt_chose_has_a_sha256() -> None:
    sha256 = "1896a2aacf4ad681ff5eacc24a5b0ca4d5d9c9b9c9e4b6de5197bc1e116ea619"
    (choice,) = apt.parse_uris(
        "'http://h/debian/pool/main/o/openssh/openssh-client_9.2p1-2%2bdeb12u7_amd64.deb'"
        f" openssh-client_1%3a9.2p1-2+deb12u7_amd64.deb 992036 SHA256:{sha256}\n"
    )
    assert choice.exact == "openssh-client:amd64=1:9.2p1-2+deb12u7"
    assert choice.filename == "openssh-client_1%3a9.2p1-2+deb12u7_amd64.deb"
    assert (choice.size, choice.sha256) == (992036, sha256)
    line = "'http://h/a_1_all.deb' a_1_all.deb 5 MD5Sum:8e7e741807b1e1939df8f58323affdcb"
    assert "unknown line" in refusal(apt.parse_uris, line)


def test_the_private_apt_takes_the_network_of_the_host_and_nothing_else(tmp_path: Path) -> None:
    dump = (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::AllowInsecureRepositories "1";\n'
        'APT::Get::AllowUnauthenticated "1";\n'
        'APT::Update::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";\n'
        'DPkg::Post-Invoke:: "rm -f /var/cache/apt/archives/*.deb";\n'
    )
    text = apt.configuration(apt.Root(tmp_path, "amd64"), dump)
    assert 'Acquire::http::Proxy "http://proxy.example:3128";' in text
    assert "Post-Invoke" not in text
    assert '"1"' not in text
    assert 'APT::Get::AllowUnauthenticated "false";' in text


# ---- why a package is in the folder


def entry(name: str, depends: str = "", **fields: str) -> Deb822:
    return Deb822({"Package": name, "Depends": depends, **fields})


def test_an_entry_cannot_leave_the_folder() -> None:
    for filename in ("/etc/x.deb", "pool/../../x.deb", "pool/x"):
        assert "outside" in refusal(apt.path_of, entry("a", Filename=filename))
    assert apt.path_of(entry("a", Filename="./pool/a_1_all.deb")) == "apt/pool/a_1_all.deb"


def test_reasons_are_the_shortest_way_from_a_role() -> None:
    entries = [
        entry("mpi", "libmpi:any (>= 2) | other, plm [amd64], "),
        entry("libmpi", "", **{"Pre-Depends": "hwloc"}),
        entry("plm", "ssh-client"),
        entry("openssh-client", "libc", Provides="ssh-client (= 1)"),
        entry("hwloc", "libc"),
        entry("libc", Essential="yes"),
        entry("base-files", Priority="required"),
        entry("loop", "mpi, loop"),
    ]
    reasons = apt.reasons(entries, {"openmpi": ["mpi"], "ssh": ["openssh-client"]})
    assert reasons["mpi"] == apt.Reason(("openmpi",), "mpi")
    assert reasons["openssh-client"].why == "mpi > plm > openssh-client"
    assert reasons["openssh-client"].wanted_by == ("openmpi", "ssh")
    assert reasons["libc"].why == "mpi > libmpi > hwloc > libc"
    assert reasons["libc"].wanted_by == ("openmpi", "ssh", "base system")
    assert reasons["base-files"] == apt.Reason(("base system",), "base-files")


# ---- the manifest


def test_a_manifest_is_read_back_and_finds_damage(tmp_path: Path) -> None:
    files = []
    for name in ("right", "altered", "cut", "grown", "gone"):
        (tmp_path / name).write_bytes(name.encode() * 100)
        sha256 = digest(tmp_path / name)
        files.append(Item(name, "deb", name, "1", sha256, 1, ("a", "b"), "a > b"))
    facts = ("cpu", "x", "amd64", "3.11", "00", "now", ("u",), "F")
    whole = MirrorManifest(*facts, (SkippedNeed("mxnet", "no"),), tuple(files))
    manifest.write(tmp_path, whole)
    assert manifest.read(tmp_path) == whole
    assert manifest.damaged(tmp_path, whole) == ()
    for name, content in {"altered": b"x" * 700, "cut": b"cut" * 99, "grown": b"more"}.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "gone").unlink()
    assert manifest.damaged(tmp_path, whole) == ("altered", "cut", "grown", "gone")
    other = json.dumps(whole.to_json() | {"format": manifest.FORMAT + 1}).encode()
    for content in (b"", b"{", b"[]", b"null", b'{"format": 1}', b"\xff", other):
        (tmp_path / manifest.NAME).write_bytes(content)
        assert manifest.read(tmp_path) is None
