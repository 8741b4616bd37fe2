"""The modules json_settings, driver_info and vendor_file."""

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
from executed_modules import call
from hypothesis import given, settings
from hypothesis import strategies as st
from standins import LIBRARY, execute, needed

json_settings = runpy.run_path(str(LIBRARY / "json_settings.py"))
driver_info = runpy.run_path(str(LIBRARY / "driver_info.py"))


class TestJsonSettings:
    VALUES = st.recursive(
        st.integers(0, 3),
        lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
        max_leaves=6,
    )
    OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)

    @settings(deadline=None)
    @given(OBJECTS, OBJECTS)
    def test_what_is_merged_can_be_given_back(self, value: Any, wanted: Any) -> None:
        new, before = json_settings["merged"](value, wanted)
        assert json_settings["restored"](new, wanted, before) == value

    def test_what_others_have_changed_since_stays(self) -> None:
        wanted = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
        new, before = json_settings["merged"]({"log-driver": "local"}, wanted)
        new["runtimes"]["kata"] = {"path": "kata"}
        new["log-driver"] = "journald"
        assert json_settings["restored"](new, wanted, before) == {
            "log-driver": "journald",
            "runtimes": {"kata": {"path": "kata"}},
        }


class TestDriverState:
    def test_the_module_that_runs_says_its_version(self, tmp_path: Path) -> None:
        version = tmp_path / "proc/driver/nvidia/version"
        version.parent.mkdir(parents=True)
        running = driver_info["nvidia_kernel"].running
        assert running(str(tmp_path)) is None
        version.write_text(
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  440.33.01"
            "  Wed Nov 13 00:00:22 UTC 2019\n"
        )
        assert running(str(tmp_path)) == "440.33.01"
        version.write_text(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build\n"
        )
        assert running(str(tmp_path)) == "580.105.08"

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
    def test_a_drivers_packages_are_known_by_their_names(self, name: str, is_driver: bool) -> None:
        assert bool(re.match(driver_info["DRIVER_PACKAGES"]["nvidia"], name)) == is_driver


class TestVendorFile:
    def test_it_lies_there_whole_or_not_at_all(self, tmp_path: Path) -> None:
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

    def test_a_source_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        gone = str(tmp_path / "gone.run")
        result = call("vendor_file", path=str(tmp_path / "x"), source=gone, sha256="0" * 64)
        assert f"{gone} does not exist" in result["msg"]

    @pytest.mark.parametrize("check_mode", [False, True])
    def test_an_address_that_the_vendor_took_away_is_refused_in_check_mode_too(
        self, tmp_path: Path, check_mode: bool
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


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.12"])
def test_old_interpreters_merge_settings(tmp_path: Path, version: str) -> None:
    python = needed(version)
    path = tmp_path / "daemon.json"
    path.write_text('{"log-driver":   "local"}')
    given = {"path": str(path), "undo": str(tmp_path / "undo"), "settings": {"runtimes": {"n": 1}}}

    def settle(state: str) -> bool:
        return execute("json_settings", tmp_path, python, **given, state=state)["changed"]

    assert settle("present")
    assert json.loads(path.read_text()) == {"log-driver": "local", "runtimes": {"n": 1}}
    assert not settle("present")
    assert settle("absent")
    assert path.read_text() == '{"log-driver":   "local"}'
    assert not (tmp_path / "undo").exists()
