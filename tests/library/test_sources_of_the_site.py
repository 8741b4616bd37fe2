"""Nodes whose apt has the vendors' repositories already, by the lines of their documentation.

Real are apt, dpkg, keys and the vendors' addresses; what these lead to are stand-ins.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.apt_sources import address, line_entries, stanza_entries
from ansible.module_utils.openpgp_key import dearmored
from apt_node import Node, make_site, vendor_node
from standin_repository import Standin, flat_repository, needs_apt, suite_repository

pytestmark = [needs_apt, pytest.mark.heavy, pytest.mark.gpu_roles]

CUDA = "developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64"
TOOLKIT = "nvidia.github.io/libnvidia-container/stable/deb/amd64"
DOCKER = "download.docker.com/linux/ubuntu"


@dataclass(frozen=True)
class Vendor:
    """`name`: of the repository in this project; `package`: the one to install from it."""

    name: str
    place: str
    package: str
    suite: str = "/"
    component: str = ""


VENDORS = {
    "cuda": Vendor("nvidia-cuda", CUDA, "libnccl2"),
    "toolkit": Vendor("nvidia-container", TOOLKIT, "libnvidia-container1"),
    "docker": Vendor("docker", DOCKER, "docker-ce", "jammy", "stable"),
}
VERSION = "1.2.3-1"


@dataclass(frozen=True)
class Setup:
    """How a site has set a repository up: files by path, with {armoured} for the key's text.

    A content that is `binary` or `armoured` is the key itself.
    """

    vendor: Vendor
    files: dict[str, str]


TOOLKIT_RING = "/usr/share/keyrings/nvidia-container-toolkit-keyring.gpg"
# As the vendors' documentation prints them, and as sites shorten them.
SETUPS = {
    "cuda-keyring": Setup(
        VENDORS["cuda"],
        {
            "/usr/share/keyrings/cuda-archive-keyring.gpg": "binary",
            "/etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list": "deb"
            f" [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://{CUDA}/ /\n",
        },
    ),
    "cuda with apt-key": Setup(
        VENDORS["cuda"],
        {
            "/etc/apt/trusted.gpg.d/cuda.asc": "armoured",
            "/etc/apt/sources.list.d/nvidia.list": f"deb http://{CUDA} /\n",
        },
    ),
    "toolkit": Setup(
        VENDORS["toolkit"],
        {
            TOOLKIT_RING: "binary",
            "/etc/apt/sources.list.d/nvidia-container-toolkit.list": "deb"
            f" [signed-by={TOOLKIT_RING}]"
            " https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n#deb"
            f" [signed-by={TOOLKIT_RING}]"
            " https://nvidia.github.io/libnvidia-container/experimental/deb/$(ARCH) /\n",
        },
    ),
    "docker in one line": Setup(
        VENDORS["docker"],
        {
            "/etc/apt/keyrings/docker.asc": "armoured",
            "/etc/apt/sources.list.d/docker.list": "deb [arch=amd64"
            f" signed-by=/etc/apt/keyrings/docker.asc] https://{DOCKER} jammy stable\n",
        },
    ),
    "docker in deb822": Setup(
        VENDORS["docker"],
        {
            "/etc/apt/keyrings/docker.asc": "armoured",
            "/etc/apt/sources.list.d/docker.sources": f"Types: deb\nURIs: https://{DOCKER}\n"
            "Suites: jammy\nComponents: stable\nArchitectures: amd64\n"
            "Signed-By: /etc/apt/keyrings/docker.asc\n",
        },
    ),
    "docker with its key within": Setup(
        VENDORS["docker"],
        {
            "/etc/apt/sources.list.d/docker.sources": "# The site's\nTypes: deb\n"
            f"URIs: https://{DOCKER}/\nSuites: jammy\nComponents: stable\n"
            "Signed-By:\n{armoured}\n"
        },
    ),
    "docker in the main file": Setup(
        VENDORS["docker"],
        {
            "/etc/apt/trusted.gpg.d/docker.gpg": "binary",
            "/etc/apt/sources.list": "deb [ arch=amd64 signed-by={fingerprint} ]"
            f" https://{DOCKER}/ jammy stable # it\n",
        },
    ),
}


@dataclass(frozen=True)
class Site:
    folder: Path
    fingerprints: dict[str, str]

    def key(self, vendor: Vendor) -> Path:
        return self.folder / "hosts.d" / vendor.place / "key.asc"

    def repository(self, vendor: Vendor, **more: Any) -> dict[str, Any]:
        """What the roles say of the vendor's repository."""
        found: dict[str, Any] = {
            "name": vendor.name,
            "uri": f"https://{vendor.place}/",
            "suite": vendor.suite,
            "components": [vendor.component] if vendor.component else [],
            "key": str(self.key(vendor)),
            "fingerprints": [self.fingerprints[vendor.name]],
        }
        return {**found, **more}

    def family(self, vendor: Vendor, **more: Any) -> dict[str, Any]:
        """The arguments of package_family."""
        packages = {vendor.package: VERSION}
        given = {"name": vendor.package, "packages": packages, "lock_timeout": 5}
        return {**given, "repository": self.repository(vendor), **more}

    def set_up(self, node: Node, setup: Setup, key: Path | None = None) -> None:
        armoured = (key or self.key(setup.vendor)).read_bytes()
        text = "\n".join(f" {line or '.'}" for line in armoured.decode().strip().splitlines())
        keys = {"binary": dearmored(armoured), "armoured": armoured}
        fingerprint = self.fingerprints[setup.vendor.name]
        for path, content in setup.files.items():
            filled = content.replace("{armoured}", text).replace("{fingerprint}", fingerprint)
            node.write(path, keys.get(content, filled.encode()))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    folder.chmod(0o755)
    make_site(folder, sorted({vendor.place.partition("/")[0] for vendor in VENDORS.values()}))
    keys = {}
    for vendor in VENDORS.values():
        packages = [Standin(vendor.package, version) for version in (VERSION, "9.9-1")]
        packages += [Standin("breaks", VERSION, postinst="exit 1"), Standin("other", VERSION)]
        place, ring = folder / "hosts.d" / vendor.place, folder / f"{vendor.name}-key"
        if vendor.component:
            made = suite_repository(
                place, vendor.suite, vendor.component, packages, ring, "key.asc"
            )
        else:
            made = flat_repository(place, packages, ring, "key.asc")
        keys[vendor.name] = made
    return Site(folder, keys)


@pytest.fixture
def node(site: Site) -> Iterator[Node]:
    with vendor_node(site.folder) as made:
        yield made


of_each_setup = pytest.mark.parametrize("setup", SETUPS.values(), ids=SETUPS)
FILES_OF_OURS = "find /etc/apt -name 'dlperf-*.sources' -o -name 'dlperf-*.gpg'"


@of_each_setup
def test_a_repository_of_the_site_is_used(site: Site, node: Node, setup: Setup) -> None:
    """And nothing of it is changed, neither by provisioning nor by removal."""
    site.set_up(node, setup)
    assert node.apt_works()
    before, family = node.state(), site.family(setup.vendor)
    checked = node.module("package_family", check=True, **family)
    assert checked["changed"], checked
    assert node.state() == before
    done = node.module("package_family", **family)
    assert done.get("versions") == {setup.vendor.package: VERSION}, done
    assert node.said(FILES_OF_OURS) == ""
    assert node.said("apt-mark showhold") == setup.vendor.package
    assert node.apt_works()
    assert not node.module("package_family", **family)["changed"]
    removed = node.module("package_family", name=setup.vendor.package, state="absent")
    assert removed.get("removed") == [removed_name(setup.vendor)], removed
    assert node.state() == before
    assert node.apt_works()


def removed_name(vendor: Vendor) -> str:
    return vendor.package + (":amd64" if vendor.package.startswith("lib") else "")


@pytest.mark.parametrize(
    ("then", "setup"),
    [
        *(("provision", setup) for setup in SETUPS.values()),
        *(("install", SETUPS[name]) for name in ("toolkit", "docker in deb822")),
        *(("decommission", SETUPS[name]) for name in ("cuda-keyring", "docker in the main file")),
    ],
)
def test_a_site_may_set_a_repository_up_later(
    site: Site, node: Node, then: str, setup: Setup
) -> None:
    """That breaks apt until the next run of this project, whatever it runs first."""
    family = site.family(setup.vendor)
    assert node.module("package_family", **family).get("changed")
    assert node.said(FILES_OF_OURS) != ""
    # Another family with the same repository records the same files.
    node.write(
        "/var/lib/dlperf/undo/other.json",
        node.said(f"cat /var/lib/dlperf/undo/{family['name']}.json"),
    )
    site.set_up(node, setup)
    if then == "provision":
        done = node.module("package_family", **family)
        assert done.get("changed"), done
        assert not node.module("package_family", **family)["changed"]
    elif then == "install":
        done = node.module("deb_packages", names=["other"], lock_timeout=5)
        assert done.get("versions") == {"other": VERSION}, done
    for name in ("other", family["name"]):
        done = node.module("package_family", name=name, state="absent")
        assert "removed" in done, done
    assert node.said(FILES_OF_OURS) == ""
    assert node.apt_works()


def edited(setup: Setup, change: Callable[[str], str]) -> Setup:
    return Setup(setup.vendor, {path: change(text) for path, text in setup.files.items()})


REFUSALS = {
    "another key": (
        SETUPS["cuda-keyring"],
        str,
        "with another key: expected fingerprint {wanted}, found ",
    ),
    "another key within": (
        SETUPS["docker with its key within"],
        str,
        "docker.sources:2 has https://",
    ),
    "another key of apt": (SETUPS["cuda with apt-key"], str, "with another key"),
    "no such file": (
        SETUPS["toolkit"],
        lambda text: text.replace(TOOLKIT_RING, "/nowhere.gpg"),
        "/nowhere.gpg: no such file",
    ),
    "trusted": (
        SETUPS["docker in one line"],
        lambda text: text.replace("[", "[trusted=yes "),
        "with trusted=yes, so apt does not verify it",
    ),
    "another key of the same": (
        Setup(
            VENDORS["docker"],
            SETUPS["docker in one line"].files
            | {
                "/etc/apt/sources.list.d/second.list": "deb [arch=amd64"
                f" signed-by=/usr/share/keyrings/docker.asc] https://{DOCKER} jammy stable\n"
            },
        ),
        lambda text: text,
        "different keys (Signed-By): /etc/apt/sources.list.d/docker.list:1 and"
        " /etc/apt/sources.list.d/second.list:1, and no apt command works",
    ),
    "another component": (
        SETUPS["docker in deb822"],
        lambda text: text.replace("stable", "test"),
        "without component stable. Add them there",
    ),
    "another architecture": (
        SETUPS["docker in one line"],
        lambda text: text.replace("arch=amd64", "arch=arm64"),
        "docker.list:1 has https://download.docker.com/linux/ubuntu/ without packages of amd64",
    ),
}


@pytest.mark.parametrize(("setup", "change", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_source_that_cannot_serve_is_refused_before_anything_changes(
    site: Site, node: Node, setup: Setup, change: Callable[[str], str], message: str
) -> None:
    other = next(vendor for vendor in VENDORS.values() if vendor != setup.vendor)
    site.set_up(node, edited(setup, change), site.key(other) if change is str else None)
    before, family = node.state(), site.family(setup.vendor)
    examined = node.module("package_sources_info", families=[family])
    for check in (True, False):
        result = node.module("package_family", check=check, **family)
        wanted = site.fingerprints[setup.vendor.name]
        assert message.format(wanted=wanted) in result["msg"]
        assert examined["problems"] == [result["msg"]]
    assert node.state() == before


def test_a_family_that_lacks_nothing_needs_no_source(site: Site, node: Node) -> None:
    setup = SETUPS["docker in deb822"]
    site.set_up(node, setup)
    family = site.family(setup.vendor)
    assert node.module("package_family", **family).get("changed")
    site.set_up(node, setup, site.key(VENDORS["cuda"]))
    assert node.module("package_sources_info", families=[family])["problems"] == []
    newer = {**family, "packages": {setup.vendor.package: "9.9-1"}}
    (problem,) = node.module("package_sources_info", families=[newer])["problems"]
    assert "with another key" in problem


UNREADABLE = {
    "cuda.list": (f"deb [trusted=yes https://{CUDA}/ /\n", "Malformed entry 1 in list file "),
    "x.list": (
        "deb [signed-by=/a.gpg] http://x.example/ /\ndeb [signed-by=/b.gpg] http://x.example/ /\n",
        "Conflicting values set for option Signed-By regarding source http://x.example/ /",
    ),
    "y.sources": ("Types: deb\nURIs: http://x.example/\n", "Malformed entry 1 in sources file "),
}


@pytest.mark.parametrize(("name", "text", "words"), [(n, *v) for n, v in UNREADABLE.items()])
def test_sources_that_apt_cannot_read_are_refused_before_anything_changes(
    site: Site, node: Node, name: str, text: str, words: str
) -> None:
    """Whichever repository they are for: no apt command works."""
    node.write(f"/etc/apt/sources.list.d/{name}", text)
    before, families = node.state(), [site.family(vendor) for vendor in VENDORS.values()]
    (problem,) = node.module("package_sources_info", families=families)["problems"]
    assert problem.startswith("libnccl2, libnvidia-container1, docker-ce: apt cannot read the ")
    assert words in problem
    for check in (True, False):
        result = node.module("package_family", check=check, **families[0])
        assert result["msg"] == problem.replace(", libnvidia-container1, docker-ce", "")
    assert node.state() == before


FAILURES: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({"packages": {"docker-ce": "7.7"}}, "does not have this version"),
    "installation": ({"packages": {"docker-ce": VERSION, "breaks": VERSION}}, "installing breaks"),
    "key": ({"repository": {"fingerprints": ["A" * 40]}}, "is not the expected one"),
    "signature": ({"repository": {"fingerprints": None, "key": None}}, "signed with another key"),
    "address": ({"repository": {"uri": "https://download.docker.com/no/"}}, "does not exist"),
    "disk": ({}, "No space left on device"),
}


@pytest.mark.parametrize(("change", "message"), FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("is_upgrade", [False, True], ids=["first", "again"])
def test_a_failure_gives_back_what_was_placed(
    site: Site, node: Node, change: dict[str, Any], message: str, is_upgrade: bool
) -> None:
    """Whichever step fails; so it does the files of an earlier success that this run changes."""
    vendor = VENDORS["docker"]
    site.set_up(node, SETUPS["cuda-keyring"])
    if is_upgrade:
        assert node.module("package_family", **site.family(vendor)).get("changed")
    before = apart_from_records(node)
    repository = site.repository(vendor, **change.get("repository", {}))
    if repository["key"] is None:
        other = VENDORS["cuda"]
        repository["key"] = str(site.key(other))
        repository["fingerprints"] = [site.fingerprints[other.name]]
    family = site.family(vendor, packages={vendor.package: "9.9-1"})
    given = {**family, **change, "repository": repository}
    if message.startswith("No space"):
        node.said("mount -t tmpfs -o size=12k tmpfs /etc/apt/preferences.d")
        node.said("head -c 100000 /dev/zero > /etc/apt/preferences.d/.full || true")
    result = node.module("package_family", **given)
    assert result["failed"], result
    assert message in result["msg"]
    if message.startswith("No space"):
        node.said("umount /etc/apt/preferences.d")
    half_way = ("breaks ", "docker-ce ") if "installing" in message else ("breaks ",)
    assert apart_from_records(node, half_way) == [
        line for line in before if not line.startswith(half_way)
    ]
    assert node.apt_works()
    if not is_upgrade and "installing" not in message:
        assert node.shell("test -e /var/lib/dlperf").returncode != 0


def apart_from_records(node: Node, but: tuple[str, ...] = ()) -> list[str]:
    """The state without the records of this project and the packages of a half-way installation."""
    lines = [line for line in node.state() if "/var/lib/dlperf" not in line]
    return [line for line in lines if not line.startswith(but)]


def test_a_hold_of_somebody_else_is_not_overridden(site: Site, node: Node) -> None:
    site.set_up(node, SETUPS["cuda-keyring"])
    node.said("apt-get -q update && apt-get -q -y install libnccl2 && apt-mark hold libnccl2")
    was = node.state()
    result = node.module("package_family", **site.family(VENDORS["cuda"]))
    assert result["failed"], result
    assert "another version of libnccl2:amd64 is held on the node" in result["msg"]
    assert "apt-mark unhold libnccl2" in result["msg"]
    assert node.state() == was


def test_what_dpkg_was_interrupted_at_is_finished(site: Site, node: Node) -> None:
    """Unpacked and not configured: what a power cut leaves."""
    node.said(f"dpkg --unpack {site.folder}/hosts.d/{CUDA}/libnccl2_{VERSION}_amd64.deb")
    assert node.module("package_family", **site.family(VENDORS["cuda"])).get("changed")
    state = node.said("dpkg-query -W -f '${Status} ${Version}' libnccl2")
    assert state == f"hold ok installed {VERSION}"


def test_what_apt_does_not_read_is_no_source() -> None:
    line = "deb [arch=amd64 signed-by=/k] https://user:word@h.example:8080/a/$(ARCH)// ./ # deb x y"
    (entry,) = line_entries(f"# deb https://h.example/ /\n\n{line}\nnonsense\n")
    assert address(entry["uri"], "amd64") == "h.example:8080/a/amd64"
    assert (entry["suite"], entry["components"], entry["line"]) == ("./", [], 3)
    assert entry["options"] == {"architectures": "amd64", "signed-by": "/k"}
    stanza = "Types: deb deb-src\nURIs: https://a/ https://b/\nSuites: x y\nComponents: c\n"
    disabled = "Enabled: no\nTypes: deb\nURIs: https://a/\nSuites: z\n"
    entries = list(stanza_entries(f"{disabled}\n\n{stanza}# end\n"))
    assert len(entries) == 8
    assert {entry["suite"] for entry in entries} == {"x", "y"}
    assert {entry["line"] for entry in entries} == {7}
