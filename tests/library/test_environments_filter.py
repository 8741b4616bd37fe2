"""The environments that the catalogue has for a stack, and the wheels that an operator provides."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_index import module_wheel

from dlperf_runner.core.errors import UserError
from dlperf_runner.provision import arguments, environments

FRAMEWORK = """
name: net
title: Net
import_name: net
tensor: net.array
environments:
  cpu:
    python: ">=3.8"
    requirements: requirements/net.txt
    horovod: {version: "1", requirements: r.txt, build_requirements: b.txt, module: h}
  gpu: {python: "==3.7", requirements: g.txt, distribution: net-cu102}
flavors:
  old:
    gpu:
      python: "==3.7"
      requirements: old.txt
      tensor: net.to_variable
      eager: net.enable_eager
      operator_wheels:
        - {distribution: net, names: [net_cu102], version: 0.1.8, reason: it is on no index}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "frameworks").mkdir()
    (tmp_path / "frameworks/net.yml").write_text(FRAMEWORK)
    monkeypatch.setenv("DLPERF_CATALOG", str(tmp_path))
    return str(tmp_path)


def wheels(
    tmp_path: Path, built: str = "net-0.1.8", file: str = "", **changes: str
) -> dict[str, dict[str, str]]:
    """What the inventory says of a wheel that was built with a name and version."""
    path, sha256 = module_wheel(tmp_path, *built.split("-"))
    if file:
        path = path.rename(path.with_name(file))
    return {"net": {"path": str(path), "sha256": sha256, **changes}}


def test_an_environment_of_a_flavor_has_its_own_name_and_place(root: str, tmp_path: Path) -> None:
    own, old = environments.installed(["net", "net-old"], "gpu", wheels(tmp_path))
    assert (own["name"], own["path"]) == ("net", "/opt/dlperf/envs/net")
    assert (own["tensor"], own["eager"], own["operator_wheels"]) == ("net.array", "", [])
    assert (old["name"], old["path"]) == ("net-old", "/opt/dlperf/envs/net-old")
    assert old["requirements"] == f"{root}/old.txt"
    assert (old["distribution"], old["import_name"]) == ("net", "net")
    assert (old["tensor"], old["eager"]) == ("net.to_variable", "net.enable_eager")
    (wheel,) = old["operator_wheels"]
    assert wheel == {"distribution": "net", "version": "0.1.8", **wheels(tmp_path)["net"]}


@pytest.mark.parametrize(
    ("name", "stack", "message"),
    [
        ("net", "rocm", "net has no environment for the stack rocm .expected .* cpu, gpu"),
        ("net-old", "cpu", "net-old: net has no environment for the stack cpu .* stacks gpu"),
        ("net-new", "cpu", "unknown framework 'net-new' .expected one of .*net, net-old"),
        ("other", "cpu", "unknown framework 'other' .expected one of .*net, net-old"),
    ],
)
def test_an_environment_that_is_not_there_is_told(
    root: str, name: str, stack: str, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        environments.installed([name], stack)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            None,
            "net-old needs the wheel of net 0.1.8, which you must provide .it is on no index.. Add",
        ),
        ({"built": "net-0.2.0"}, "is not a wheel of net or net_cu102 0.1.8.*say net 0.2.0"),
        ({"built": "other-0.1.8"}, "is not a wheel of net or net_cu102 0.1.8.*say other 0.1.8"),
        # uv and pip install no wheel under another name than its own.
        ({"built": "net_cu102-0.1.8", "file": "net-0.1.8-py3-none-any.whl"}, "say net_cu102 0.1.8"),
        ({"path": __file__}, "say no name"),
        ({"path": "/nowhere/net-0.1.8-py3-none-any.whl"}, "no file /nowhere/net-0.1.8"),
        ({"sha256": "abc"}, "must have 64 hexadecimal digits"),
    ],
)
def test_a_wheel_that_the_operator_owes_is_asked_for_by_the_name_of_its_variable(
    root: str, tmp_path: Path, changes: dict[str, str] | None, message: str
) -> None:
    given = {} if changes is None else wheels(tmp_path, **changes)
    with pytest.raises(UserError, match=message) as caught:
        environments.installed(["net-old"], "gpu", given)
    assert "dlperf_operator_wheels: {net: {path: ..., sha256: ...}}" in str(caught.value)


@pytest.mark.parametrize(
    ("built", "name", "version"),
    [
        ("net_cu102-0.1.8", "net_cu102", "0.1.8"),
        ("net-0.1.8+git.17a2bdc9b", "net", "0.1.8+git.17a2bdc9b"),
    ],
)
def test_an_operators_wheel_is_called_as_its_own_metadata_say(
    root: str, tmp_path: Path, built: str, name: str, version: str
) -> None:
    (old,) = environments.installed(["net-old"], "gpu", wheels(tmp_path, built))
    (found,) = old["operator_wheels"]
    assert (found["distribution"], found["version"]) == (name, version)
    distributions = {name.replace("_", "-"): {"version": version}}
    there = {old["path"]: {"python": "3.7.16", "distributions": distributions}}
    pins = tmp_path / "none.txt"
    pins.touch()
    pinned = [{**old, "requirements": pins}]
    assert arguments.complete(pinned, there, "3.7.9") == [old["path"]]
    there[old["path"]]["distributions"] = {}
    assert arguments.complete(pinned, there, "3.7.9") == []


def test_what_has_no_horovod_is_left_out_where_horovod_is_asked_for(root: str) -> None:
    (found,) = environments.installed(["net"], "gpu")
    assert found["distribution"] == "net-cu102"
    assert arguments.only([found], "name", "horovod") == []
    assert arguments.only([found], "name") == [{"name": "net"}]


def test_an_alternative_takes_its_place_where_the_operator_gives_its_wheel(tmp_path: Path) -> None:
    path, sha256 = module_wheel(tmp_path, "torch", "2.13.0")
    given = {"torch": {"path": str(path), "sha256": sha256}}
    (own,) = environments.installed(["pytorch"], "cpu")
    (other,) = environments.installed(["pytorch"], "cpu", given)
    assert (own["apt_packages"], own["operator_wheels"]) == (["python3-torch"], [])
    assert own["requires_python"] == ">=3.13,<3.14"
    assert (other["apt_packages"], other["requires_python"]) == ([], ">=3.10,<3.14")
    (installed,) = other["operator_wheels"]
    assert (installed["distribution"], installed["version"]) == ("torch", "2.13.0")
    # Where there is nothing to replace, the wheel is not asked for.
    assert environments.installed(["pytorch"], "h100-cuda12.9", given)[0]["operator_wheels"] == []


def test_an_environment_that_is_an_image_only_is_pulled_and_not_installed(root: str) -> None:
    image = "registry.example/net:1"
    path = Path(root, "frameworks/net.yml")
    path.write_text(
        path.read_text().replace("  cpu:", f"  big: {{container: {{image: '{image}'}}}}\n  cpu:")
    )
    assert environments.installed(["net"], "big") == []
    assert environments.images(["net"], "big", {}) == [image]
    assert environments.images(["net"], "cpu", {}) == []


def test_an_environment_that_is_an_image_too_is_pulled_where_there_is_a_digest(root: str) -> None:
    image = "registry.example:5000/net:1"
    path = Path(root, "frameworks/net.yml")
    path.write_text(
        path.read_text().replace("  gpu: {", f"  gpu: {{container: {{image: '{image}'}}, ")
    )
    for digests in ({}, {"other:1": "sha256:0"}):
        (environment,) = environments.installed(["net"], "gpu", images=digests)
        assert environment["distribution"] == "net-cu102"
        assert environments.images(["net"], "gpu", digests) == []
    # Of another tag too: the role container then asks for the digest of this one.
    for digests in ({image: "sha256:0"}, {"registry.example:5000/net:2": "sha256:0"}):
        assert environments.installed(["net"], "gpu", images=digests) == []
        assert environments.images(["net"], "gpu", digests) == [image]


# ---- versions


SCRIPT = Path(__file__).parents[2] / "roles/benchmark_source/files/versions.py"


def test_names_and_versions_are_read_from_all_folders_and_the_first_one_wins(
    tmp_path: Path,
) -> None:
    own, system = tmp_path / "own", tmp_path / "system"
    for folder, name in (
        (own, "alpha-2.0.dist-info"),
        (system, "alpha-1.0.dist-info"),
        (system, "torch-2.6.0+debian.egg-info"),
        (system, "typing_extensions-4.13.2.dist-info"),
        (system, "six-1.17.0-py3.13.egg-info"),
        (system, "not-a-distribution-info"),
    ):
        (folder / name).mkdir(parents=True)
    begin = f"import sys; sys.path[:] = [{str(own)!r}, {str(system)!r}, *sys.path];"
    code = f"{begin} exec(open({str(SCRIPT)!r}).read())"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, check=True)
    found = {entry["name"]: entry["version"] for entry in json.loads(done.stdout)}
    assert found == {
        "alpha": "2.0",
        "six": "1.17.0",
        "torch": "2.6.0+debian",
        "typing-extensions": "4.13.2",
    }
