"""What is read of apt's own files and output, and the configuration of the private apt."""

from pathlib import Path

import pytest

from dlperf_runner.bundle import apt, archives
from dlperf_runner.core.errors import UserError

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


ONE_LINE = """\
# deb http://old.example/debian bookworm main
deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian/ bookworm main contrib # ours
deb-src http://sources.example/debian bookworm main
deb http://m.example/debian-security bookworm-security main
deb nonsense
"""


def test_sources_in_lines(tmp_path: Path) -> None:
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt/sources.list").write_text(ONE_LINE)
    (tmp_path / "os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    assert archives.host_sources("trixie", tmp_path) == (
        archives.Source(
            "http://m.example/debian", ("trixie", "trixie-updates"), signed_by="/k.gpg"
        ),
        archives.Source(
            "http://m.example/debian-security", ("trixie-security",), signed_by="/k.gpg"
        ),
    )


def host(tmp_path: Path, os_release: str) -> Path:
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "apt/sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "os-release").write_text(os_release)
    return tmp_path


def test_a_debian_host_lends_its_mirror_for_every_suite(tmp_path: Path) -> None:
    etc = host(tmp_path, 'ID=debian\nVERSION_CODENAME="bookworm"\n')
    main, security = archives.host_sources("trixie", etc)
    assert (main.uri, main.suites) == ("http://mirror.example/debian", ("trixie", "trixie-updates"))
    assert main.signed_by == security.signed_by == "/usr/share/keyrings/site.gpg"
    assert (security.uri, security.suites) == (
        "http://mirror.example/debian-security",
        ("trixie-security",),
    )


@pytest.mark.parametrize("os_release", ["ID=ubuntu\nVERSION_CODENAME=bookworm\n", ""])
def test_another_host_takes_debian_itself(tmp_path: Path, os_release: str) -> None:
    main, security = archives.host_sources("bookworm", host(tmp_path, os_release))
    assert main.uri == archives.DEBIAN.archive
    assert security.uri == "http://deb.debian.org/debian-security"


UBUNTU_HOST = """\
deb http://mirror.example/ubuntu jammy main restricted
deb http://mirror.example/ubuntu jammy universe
deb http://mirror.example/ubuntu jammy-updates main restricted
deb http://security.example/ubuntu jammy-security main restricted
"""


def test_an_ubuntu_host_lends_its_mirror_for_every_suite_of_ubuntu(tmp_path: Path) -> None:
    (tmp_path / "apt").mkdir()
    (tmp_path / "apt/sources.list").write_text(UBUNTU_HOST)
    (tmp_path / "os-release").write_text("ID=ubuntu\nVERSION_CODENAME=jammy\n")
    ring, components = str(archives.UBUNTU.keyring), ("main", "universe")
    assert archives.host_sources("bionic", tmp_path, archives.UBUNTU) == (
        archives.Source(
            "http://mirror.example/ubuntu", ("bionic", "bionic-updates"), components, ring
        ),
        archives.Source("http://security.example/ubuntu", ("bionic-security",), components, ring),
    )
    debian, _ = archives.host_sources("bookworm", tmp_path)
    assert debian.uri == archives.DEBIAN.archive


def test_a_debian_host_takes_ubuntu_itself(tmp_path: Path) -> None:
    etc = host(tmp_path, "ID=debian\nVERSION_CODENAME=bookworm\n")
    main, security = archives.host_sources("focal", etc, archives.UBUNTU)
    assert main.uri == security.uri == "http://archive.ubuntu.com/ubuntu"
    assert main.suites + security.suites == ("focal", "focal-updates", "focal-security")


def test_a_mirror_has_its_security_updates_where_the_distribution_has_them() -> None:
    def uris(distribution: archives.Distribution, *addresses: str) -> list[str]:
        return [one.uri for one in archives.sources_of(distribution, "suite", *addresses)]

    assert uris(archives.DEBIAN, "http://m/d/") == ["http://m/d", "http://m/d-security"]
    assert uris(archives.UBUNTU, "http://m/u/") == ["http://m/u", "http://m/u"]
    assert uris(archives.UBUNTU, "http://m/u", "http://s/u") == ["http://m/u", "http://s/u"]


def test_nodes_with_gpus_have_contrib_of_debian() -> None:
    """NVIDIA's packages for Debian 12 ask for some of it."""
    for source in archives.sources_of(archives.DEBIAN, "bookworm", has_gpus=True):
        assert source.components == ("main", "contrib")


def test_a_flat_repository_has_no_components() -> None:
    source = archives.Source("file:/mirror/", ("/",), (), "/key.gpg")
    assert source.stanza() == "Types: deb\nURIs: file:/mirror/\nSuites: /\nSigned-By: /key.gpg\n"


def test_what_is_not_met_is_in_apts_own_words() -> None:
    output = (
        "Some packages could not be installed.\n\n"
        "The following packages have unmet dependencies:\n"
        " dkms : Depends: gcc (>= 4) but it is not installable\n"
        "        Depends: make but it is not going to be installed\n"
        "E: Unable to correct problems\n"
    )
    assert apt.unmet(output) == [
        "dkms : Depends: gcc (>= 4) but it is not installable",
        "Depends: make but it is not going to be installed",
    ]
    assert apt.unmet("E: Unable to locate package x\n") == []


def test_uris() -> None:
    digest = "1896a2aacf4ad681ff5eacc24a5b0ca4d5d9c9b9c9e4b6de5197bc1e116ea619"
    line = (
        "'http://h/debian/pool/main/o/openssh/openssh-client_9.2p1-2%2bdeb12u7_amd64.deb'"
        f" openssh-client_1%3a9.2p1-2+deb12u7_amd64.deb 992036 SHA256:{digest}\n"
    )
    (choice,) = apt.parse_uris(line)
    assert choice.exact == "openssh-client:amd64=1:9.2p1-2+deb12u7"
    assert choice.filename == "openssh-client_1%3a9.2p1-2+deb12u7_amd64.deb"
    assert (choice.size, choice.sha256) == (992036, digest)


@pytest.mark.parametrize(
    "line",
    [
        "'http://h/a_1_all.deb' a_1_all.deb 5 MD5Sum:8e7e741807b1e1939df8f58323affdcb",
        "Reading package lists...",
        "'http://h/a.deb' a.deb 5 SHA256:" + "0" * 64,
    ],
)
def test_what_has_no_sha256_is_no_choice(line: str) -> None:
    with pytest.raises(UserError, match="unknown line"):
        apt.parse_uris(line)


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
