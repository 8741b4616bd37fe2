"""The module python_environment, with uv and with pip."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from executed_modules import call
from tiny_index import module_wheel

from dlperf_runner.catalog.framework import OperatorWheel
from dlperf_runner.provision import environments

REQUIREMENT = "{name} @ file://{path} --hash=sha256:{digest}"


UV = str(Path(sys.executable).parent / "uv")


def environment(folder: Path, requirements: str = "", **more: Any) -> dict[str, Any]:
    given = {"interpreter": os.path.realpath(sys.executable), "uv": UV, **more}
    return call(
        "python_environment",
        path=str(folder / "env"),
        requirements=requirements,
        find_links=str(folder),
        **given,
    )


def test_it_is_made_once_and_follows_its_pins(tmp_path: Path) -> None:
    _path, one = module_wheel(tmp_path, "alpha", "1.0")
    _path, two = module_wheel(tmp_path, "alpha", "2.0")
    first = f"alpha==1.0 \\\n    --hash=sha256:{one}\n"
    second = f"alpha==2.0 ; python_version >= '3.8' \\\n    --hash=sha256:{two}\n"
    checked = environment(tmp_path, first, check=True)
    assert checked["changed"]
    assert checked["diff"]["after"] == "alpha==1.0\n"
    assert not (tmp_path / "env").exists()
    assert environment(tmp_path, first)["packages"] == {"alpha": "1.0"}
    shared = [path for path in (tmp_path / "env").rglob("*") if path.stat().st_mode & 0o022]
    assert shared == []
    assert not environment(tmp_path, first)["changed"]
    assert environment(tmp_path, second)["packages"] == {"alpha": "2.0"}
    assert not environment(tmp_path, second, check=True)["changed"]


def test_an_interpreter_that_is_not_there_will_be_there_after_check_mode(tmp_path: Path) -> None:
    """What built it has only said that it would."""
    absent = str(tmp_path / "python/bin/python3")
    assert environment(tmp_path, interpreter=absent, check=True)["changed"]
    result = environment(tmp_path, interpreter=absent)
    assert result["failed"]
    assert f"this node has no interpreter {absent}" in result["msg"]


@pytest.mark.parametrize("seen", [True, False])
def test_it_sees_the_packages_of_the_distribution_where_that_is_asked_for(
    tmp_path: Path, seen: bool
) -> None:
    environment(tmp_path, system_packages=seen)
    settings = (tmp_path / "env/pyvenv.cfg").read_text()
    assert f"include-system-site-packages = {str(seen).lower()}" in settings


def test_an_environment_whose_filling_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    _path, digest = module_wheel(tmp_path, "alpha", "1.0")
    text = f"alpha==1.0 --hash=sha256:{digest}"
    environment(tmp_path, text)
    (tmp_path / "env" / "dlperf-unfinished").touch()
    (module,) = (tmp_path / "env").glob("lib/*/site-packages/alpha.py")
    module.unlink()
    assert environment(tmp_path, text)["changed"]
    assert module.exists()
    assert not environment(tmp_path, text)["changed"]


def test_a_wheel_with_another_hash_is_refused(tmp_path: Path) -> None:
    module_wheel(tmp_path, "alpha", "1.0")
    result = environment(tmp_path, f"alpha==1.0 --hash=sha256:{'0' * 64}")
    assert result["failed"]
    assert "hash" in result["msg"].lower()


def test_a_wheel_by_its_path_is_replaced_when_the_path_changes(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        path, digest = module_wheel(tmp_path / folder, "alpha", "1.0")
        text = REQUIREMENT.format(name="alpha", path=path, digest=digest)
        assert environment(tmp_path, text, dependencies=False)["changed"]
        assert not environment(tmp_path, text, dependencies=False)["changed"]


@pytest.mark.parametrize(
    ("built", "uv"),
    [("net_cu102-0.1.8", UV), ("net_cu102-0.1.8", None), ("net-0.1.8+git.17a2bdc9b", UV)],
)
def test_an_operators_wheel_is_installed_under_the_name_of_its_metadata(
    tmp_path: Path, built: str, uv: str | None
) -> None:
    """Of an entry of the catalogue that is called net."""
    path, digest = module_wheel(tmp_path, *built.split("-"))
    wanted = OperatorWheel(distribution="net", names=("net_cu102",), version="0.1.8", reason="")
    given = {"net": {"path": path, "sha256": digest}}
    found = environments._operator_wheel("net", wanted, given)
    text = REQUIREMENT.format(name=found["distribution"], path=path, digest=digest)
    made = environment(tmp_path, text, dependencies=False, uv=uv)
    name = found["distribution"].replace("_", "-")
    assert made["packages"] == {name: found["version"]}, made
    assert not environment(tmp_path, text, dependencies=False, uv=uv)["changed"]
    (module,) = (tmp_path / "env").glob("lib/*/site-packages/net.py")
    assert found["version"] in module.read_text()


def test_a_requirement_for_another_python_is_left_out(tmp_path: Path) -> None:
    digest = f" --hash=sha256:{'0' * 64}\n"
    text = (
        f"alpha==1.0 ; python_full_version < '3.8' and sys_platform == 'linux'{digest}"
        f"beta==1.0 ; (sys_platform == 'win32' or platform_machine == 'none'){digest}"
    )
    assert environment(tmp_path, text)["packages"] == {}
