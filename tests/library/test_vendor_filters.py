"""The filters by which roles read their release tables and find vendors' repositories."""

import hashlib
import json
import re
import runpy
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from executed_modules import call
from hypothesis import given, settings
from hypothesis import strategies as st
from standins import LIBRARY, PROJECT

from dlperf_runner.provision import arguments, nvidia_driver, vendor


def releases(role: str, name: str = "releases") -> dict[str, Any]:
    variables = yaml.safe_load((PROJECT / f"roles/{role}/vars/main.yml").read_text())
    found: dict[str, Any] = variables[f"__{role}_{name}"]
    return found


@pytest.mark.parametrize(
    ("version", "system", "words"),
    [
        ("9.9", "ubuntu18.04", ["9.9 is unknown", "2.29.7, 2.28.9, 2.15.5 or 2.7.3"]),
        ("2.7.3", "ubuntu22.04", ["Ubuntu 22.04 (built for CUDA 10.2)", "use NCCL 2.15.5"]),
        ("2.29.7", "ubuntu20.04", ["only Debian 12, Ubuntu 22.04", "RHEL 9;", "use NCCL 2.15.5"]),
        ("2.7.3", "rhel9", ["RHEL 9 (", "only Ubuntu 16.04 or Ubuntu 18.04", "use NCCL 2.15.5"]),
        ("2.7.3", "centos7", ["centos 7", "no known version is available (nccl.version)"]),
        ("2.7.3", "ubuntu18.04", []),
    ],
)
def test_a_refusal_says_the_reason_and_the_nearest_that_works(
    version: str, system: str, words: list[str]
) -> None:
    told = vendor.refusal(releases("nccl"), version, system, "NCCL", "nccl.version")
    assert bool(told) == bool(words)
    assert all(word in told for word in [*words, "nccl.version"] if words)


@pytest.mark.parametrize(
    ("distribution", "version", "system"),
    [
        ("Ubuntu", "18.04", "ubuntu18.04"),
        ("Debian", "12", "debian12"),
        ("Rocky", "9.4", "rhel9"),
        ("AlmaLinux", "8.10", "rhel8"),
        ("RedHat", "9.5", "rhel9"),
        ("Red", "9.5", "rhel9"),  # of NAME="Red Hat Enterprise Linux"
        ("CentOS", "9", "centos9"),
    ],
)
def test_rebuilds_of_rhel_are_rhel(distribution: str, version: str, system: str) -> None:
    facts = {"distribution": distribution, "distribution_version": version}
    assert vendor.system_of(facts) == system


ARM = "ubuntu24.04 aarch64"  # GB200


def test_packages_for_arm_have_repositories_and_places_of_their_own() -> None:
    facts = {"distribution": "Ubuntu", "distribution_version": "24.04", "architecture": "aarch64"}
    assert vendor.system_of(facts) == ARM
    assert vendor.system_of(facts | {"architecture": "x86_64"}) == "ubuntu24.04"
    driver = vendor.release(releases("nvidia_driver"), "580.173.02", ARM, "the driver", "x")
    assert driver["packages"] == {"nvidia-driver-580-open": "580.173.02-1ubuntu1"}
    assert driver["imex_packages"] == {"nvidia-imex": "580.173.02-1ubuntu1"}
    nccl = vendor.release(releases("nccl"), "2.28.9", ARM, "NCCL", "x")
    assert nccl["files"] == ["/usr/lib/aarch64-linux-gnu/libnccl.so.2"]
    uris = {name: vendor.repository(name, ARM, None, {})["uri"] for name in vendor.repositories()}
    assert uris["nvidia-cuda"].endswith("/compute/cuda/repos/ubuntu2404/sbsa/")
    assert uris["nvidia-container"].endswith("/stable/deb/arm64/")
    said = vendor.refusal(releases("nvidia_driver"), "535.309.01", ARM, "the driver", "x")
    assert said.startswith("the driver 535.309.01 does not support Ubuntu 24.04 aarch64 (")
    assert "for Ubuntu 24.04 aarch64, use the driver 580." in said


@pytest.mark.parametrize(
    ("system", "said"),
    [
        (ARM, ""),
        ("ubuntu24.04", ""),
        ("ubuntu26.04", "n1 has Ubuntu 26.04, for which no versions are known here: NVIDIA's"),
        ("debian13 aarch64", "n1 has Debian 13, for which no versions are known here: NVIDIA's"),
        # CUDA 13 for Arm is on Ubuntu only.
        ("rhel9 aarch64", "n1 is RHEL 9 on aarch64, and the release tables have that system's"),
        ("rhel10", "n1 has RHEL 10, for which no versions are known here: which versions"),
    ],
)
def test_a_system_that_is_too_new_is_one_sentence(system: str, said: str) -> None:
    stack = arguments.stack_document("b200-cuda13")
    refusal = arguments.system_refusal(stack, system, "n1")
    assert refusal.startswith(said) and bool(refusal) == bool(said)
    if said:
        assert "Missing for stack b200-cuda13: the driver 580.173.02, CUDA 13.0.2" in refusal
        on_ubuntu = "For aarch64, use the stack b200-cuda13 (dlperf_stack) on Ubuntu; or install"
        known = "Use Ubuntu 22.04, Ubuntu 24.04, RHEL 8 or RHEL 9; or install them"
        assert (on_ubuntu if system == "rhel9 aarch64" else known) in refusal
    assert arguments.system_refusal(arguments.stack_document("mi300-rocm7"), system, "n1") == ""


CUDA_KEY = "610C7B14E068A878070DA4E99CD0A493D42D0685"  # D42D0685.pub
CONTAINER_KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
DOCKER_KEY = "060A61C51B558A7F742B77AAC52FEB6B621E9F35"


@pytest.mark.parametrize(
    ("repository", "system", "place", "signed", "fingerprint"),
    [
        ("nvidia-cuda", "rhel9", "/repos/rhel9/x86_64/", "packages", CUDA_KEY),
        ("nvidia-container", "rhel9", "/stable/rpm/x86_64/", "index", CONTAINER_KEY),
        ("docker", "rhel8", "/linux/rhel/8/x86_64/stable/", "packages", DOCKER_KEY),
    ],
)
def test_rpm_repositories_sign_packages_or_their_index(
    repository: str, system: str, place: str, signed: str, fingerprint: str
) -> None:
    found = vendor.repository(repository, system, None, {})
    assert found["uri"].endswith(place) and found["components"] == []
    assert (found["signed"], found["fingerprints"]) == (signed, [fingerprint])


def test_rpm_packages_have_versions_of_their_own() -> None:
    entry = vendor.release(releases("nvidia_driver"), "580.105.08", "rhel9", "the driver", "x")
    assert entry["packages"]["nvidia-driver-cuda"] == "580.105.08-1.el9"
    assert entry["stream"] == "nvidia-driver:580-open"


@pytest.mark.parametrize(
    ("version", "package", "exact"),
    [
        ("580.173.02", "nvidia-driver-580-open", "580.173.02-1ubuntu1"),
        ("580.105.08", "nvidia-driver-580-open", "580.105.08-0ubuntu1"),
        ("580.178.04", "nvidia-driver-580-open", "580.178.04-1ubuntu1"),  # without an entry
        ("535.309.01", "nvidia-driver-535", "535.309.01-1ubuntu1"),
        ("535.183.01", "nvidia-driver-535", "535.183.01-0ubuntu1"),
    ],
)
def test_a_newer_point_release_has_the_packages_of_its_branch(
    version: str, package: str, exact: str
) -> None:
    what = ("the driver", "driver.version")
    entry = vendor.release(releases("nvidia_driver"), version, "ubuntu22.04", *what)
    assert entry["packages"] == {package: exact}
    assert not re.search(r"{[a-z]", str(entry).replace("{'", ""))
    assert {pin["version"].split("-")[0] for pin in entry["pins"]} == {version}


def test_an_operator_states_packages_of_a_branch_without_an_entry() -> None:
    table, what = releases("nvidia_driver"), ("the driver", "driver.version")
    assert "595.71.05 is unknown" in vendor.refusal(table, "595.71.05", "ubuntu24.04", *what)
    assert "580.65.06 is unknown" in vendor.refusal(table, "580.65.06", "ubuntu24.04", *what)
    stated = {"nvidia-driver-open": "595.71.05-1ubuntu1"}
    entry = vendor.release(table, "595.71.05", "ubuntu24.04", *what, stated)
    assert entry["packages"] == stated
    assert entry["fabric_packages"]["nvidia-fabricmanager"] == "595.71.05-1ubuntu1"
    fabric = {"packages": ["nvidia-fabricmanager"], "version": "595.71.05-1ubuntu1"}
    assert fabric in nvidia_driver.pins(entry)
    runfiles = releases("nvidia_driver", "runfiles")
    entry = vendor.release(runfiles, "580.178.04", "debian12", *what)
    assert entry["url"].endswith("/580.178.04/NVIDIA-Linux-x86_64-580.178.04.run")


@pytest.mark.parametrize(
    ("other", "expected"),
    [("580.178.04", True), ("580.95.05", False), ("595.71.05", False), ("", False)],
)
def test_only_a_point_release_of_the_same_branch_is_newer(other: str, expected: bool) -> None:
    assert vendor.is_newer("580.105.08", other) is expected


def test_a_toolkit_that_the_driver_is_too_old_for_is_refused() -> None:
    entry = {"version": "12.9.1", "minimum_driver": "525.60"}
    assert "needs driver 525.60 or newer, but the driver is 440.33.01" in vendor.too_old(
        entry, "440.33.01", "driver.version"
    )
    assert vendor.too_old(entry, "580.105.08", "driver.version") == ""
    assert vendor.too_old(entry, "", "driver.version") == ""


@pytest.mark.parametrize(
    ("mirror", "address"),
    [
        (None, "https://vendor.example/a/b.run"),
        ("", "https://vendor.example/a/b.run"),
        ("http://10.0.0.1:8010/vendor/", "http://10.0.0.1:8010/vendor/vendor.example/a/b.run"),
        ("/srv/mirror/vendor", "file:/srv/mirror/vendor/vendor.example/a/b.run"),
    ],
)
def test_every_address_is_found_behind_the_mirror(mirror: str | None, address: str) -> None:
    assert vendor.address("https://vendor.example/a/b.run", mirror) == address


# ---- modules


json_settings = runpy.run_path(str(LIBRARY / "json_settings.py"))
driver_info = runpy.run_path(str(LIBRARY / "driver_info.py"))


VALUES = st.recursive(
    st.integers(0, 3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)


@settings(deadline=None)
@given(OBJECTS, OBJECTS)
def test_what_is_merged_can_be_given_back(value: Any, wanted: Any) -> None:
    new, before = json_settings["merged"](value, wanted)
    assert json_settings["restored"](new, wanted, before) == value


def test_what_others_have_changed_since_stays() -> None:
    wanted = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
    new, before = json_settings["merged"]({"log-driver": "local"}, wanted)
    new["runtimes"]["kata"] = {"path": "kata"}
    new["log-driver"] = "journald"
    assert json_settings["restored"](new, wanted, before) == {
        "log-driver": "journald",
        "runtimes": {"kata": {"path": "kata"}},
    }


@pytest.mark.parametrize(
    ("name", "is_driver"),
    [
        ("nvidia-driver-440", True),
        ("nvidia-440", True),
        ("cuda-drivers", True),
        ("nvidia-driver-580-open", True),
        ("nvidia-driver-cuda", True),
        ("nvidia-kernel-open-dkms", True),
        ("nvidia-driver-pinning-580", False),
        ("nvidia-container-toolkit", False),
        ("nvidia-settings", False),
    ],
)
def test_a_drivers_packages_are_known_by_their_names(name: str, is_driver: bool) -> None:
    assert bool(re.match(driver_info["DRIVER_PACKAGES"]["nvidia"], name)) == is_driver


def test_it_lies_there_whole_or_not_at_all(tmp_path: Path) -> None:
    source, path = tmp_path / "source.run", tmp_path / "files/driver.run"
    source.write_bytes(b"stand-in")
    digest = hashlib.sha256(b"stand-in").hexdigest()
    wrong = call("vendor_file", path=str(path), source=str(source), sha256="0" * 64)
    assert f"expected sha256 {'0' * 64}, found {digest}" in wrong["msg"]
    assert list(path.parent.iterdir()) == []
    given = {"path": str(path), "source": str(source), "sha256": digest, "mode": "0755"}
    assert call("vendor_file", **given)["changed"]
    assert path.stat().st_mode & 0o777 == 0o755
    assert not call("vendor_file", **given)["changed"]
    path.write_bytes(b"damaged")
    assert call("vendor_file", **given)["changed"]
    assert path.read_bytes() == b"stand-in"


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.run")
    result = call("vendor_file", path=str(tmp_path / "x"), source=gone, sha256="0" * 64)
    assert f"{gone} does not exist" in result["msg"]


@pytest.mark.parametrize("check_mode", [False, True])
def test_an_address_that_the_vendor_took_away_is_refused_in_check_mode_too(
    tmp_path: Path, check_mode: bool
) -> None:
    """coreweave/nccl-tests#95: MLNX_OFED's addresses went away."""
    (tmp_path / "site").mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path / "site")
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        source = f"http://127.0.0.1:{server.server_port}/MLNX_OFED.tgz"
        given = {"path": str(tmp_path / "x.tgz"), "source": source, "sha256": "0" * 64}
        given |= {"variable": "infiniband_archive", "_ansible_check_mode": check_mode}
        message = call("vendor_file", **given)["msg"]
        server.shutdown()
    assert f"cannot download {source}: HTTP Error 404" in message
    assert "set infiniband_archive to a copy of it" in message


def test_settings_are_merged_once_and_given_back(tmp_path: Path) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"log-driver":   "local"}')
    given = {"path": str(path), "undo": str(tmp_path / "undo"), "settings": {"runtimes": {"n": 1}}}

    def settle(state: str) -> bool:
        return call("json_settings", **given, state=state)["changed"]

    assert settle("present")
    assert json.loads(path.read_text()) == {"log-driver": "local", "runtimes": {"n": 1}}
    assert not settle("present")
    assert settle("absent")
    assert path.read_text() == '{"log-driver":   "local"}'
    assert not (tmp_path / "undo").exists()
