"""Modules that change nothing: facts of a node, and the basis of Horovod's wheel."""

import json
import pwd
import sys
from pathlib import Path
from typing import Any

import pytest
from executed_modules import call
from modules import load
from standins import program, tree


def of_mxnet(folder: Path) -> dict[str, str]:
    return {
        "environment": str(folder / "env"),
        "distribution": "mxnet",
        "version": "0.28.1",
        "mpirun": str(folder / "mpirun"),
    }


def test_the_key_names_what_the_wheel_depends_on(tmp_path: Path) -> None:
    site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
    (site / "mxnet-1.9.1.dist-info").mkdir(parents=True)
    program(tmp_path, "mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
    arguments = of_mxnet(tmp_path)
    result = call("horovod_basis", options={"A": "1"}, **arguments)
    assert result["key"].startswith("horovod-0.28.1_mxnet-1.9.1_cp311_openmpi-4.1.4_glibc-2.")
    assert result["installed_key"] is None
    other = call("horovod_basis", options={"A": "2"}, **arguments)
    assert other["key"] != result["key"]

    info = site / "horovod-0.28.1.dist-info"
    info.mkdir()
    url = f"file:///opt/dlperf/wheels/{result['key']}/horovod-0.28.1-cp311.whl"
    (info / "direct_url.json").write_text(json.dumps({"url": url}))
    again = call("horovod_basis", check=True, options={"A": "1"}, **arguments)
    assert again["installed_key"] == result["key"]
    assert not again["changed"]


def test_on_a_fresh_node_check_mode_goes_on_and_a_real_run_does_not(tmp_path: Path) -> None:
    arguments = of_mxnet(tmp_path)
    checked = call("horovod_basis", check=True, **arguments)
    assert checked["changed"]
    assert checked["key"] is None
    assert "mpirun" in call("horovod_basis", **arguments)["msg"]


def node_facts(**arguments: Any) -> dict[str, Any]:
    facts: dict[str, Any] = call("node_facts", **arguments)["ansible_facts"]
    return facts["dlperf_node"] | {"release": facts["distribution_release"]}


def test_it_says_whether_the_user_is_in_a_directory_service_and_has_a_home() -> None:
    user = node_facts(user="root")["user"]
    assert (user["is_local"], user["has_home"]) == (True, True)
    homeless = next(each for each in pwd.getpwall() if not Path(each.pw_dir).exists())
    assert node_facts(user=homeless.pw_name)["user"]["has_home"] is False
    assert node_facts(user="of-ldap")["user"] == {}


OF_INSTANCE = "var/lib/cloud/instance"


@pytest.mark.parametrize(
    ("files", "place"),
    [
        ({}, None),
        ({"etc/cloud/cloud.cfg": "users: []\nmanage_etc_hosts: true"}, "etc/cloud/cloud.cfg"),
        ({"etc/cloud/cloud.cfg": "manage_etc_hosts: localhost"}, None),
        (
            {
                "etc/cloud/cloud.cfg": "manage_etc_hosts: 'true'",
                "etc/cloud/cloud.cfg.d/99-site.cfg": "manage_etc_hosts: false",
            },
            None,
        ),
        (
            {f"{OF_INSTANCE}/cloud-config.txt": "manage_etc_hosts: template"},
            f"{OF_INSTANCE}/cloud-config.txt",
        ),
        (
            {
                "etc/cloud/cloud.cfg": "manage_etc_hosts: no",
                f"{OF_INSTANCE}/vendor-cloud-config.txt": "manage_etc_hosts: Yes",
            },
            f"{OF_INSTANCE}/vendor-cloud-config.txt",
        ),
        (
            {
                f"{OF_INSTANCE}/vendor-cloud-config.txt": "manage_etc_hosts: 1",
                f"{OF_INSTANCE}/cloud-config.txt": "manage_etc_hosts: false",
            },
            None,
        ),
        (
            {"etc/cloud/cloud.cfg": "manage_etc_hosts: on", "etc/cloud/cloud-init.disabled": ""},
            None,
        ),
    ],
)
def test_it_says_whether_cloud_init_writes_the_hosts_file(
    tmp_path: Path, files: dict[str, str], place: str | None
) -> None:
    found = load("library/node_facts.py").cloud_hosts(
        str(tree(tmp_path / "root", {"etc/x": "", **files}))
    )
    assert found == (place and str(tmp_path / "root" / place))


def test_it_says_which_interpreter_and_builds_of_ours_are_there(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "ours/.dlperf-build").write_text("python-3.7.17_1\n")
    (tmp_path / "foreign").mkdir()
    paths = [str(tmp_path / name) for name in ("ours", "foreign", "absent")]
    result = node_facts(interpreter=sys.executable, builds=paths, stamps=str(tmp_path))
    assert result["builds"] == {paths[0]: "python-3.7.17_1"}
    assert result["python_version"] == ".".join(map(str, sys.version_info[:3]))
    codename = f"VERSION_CODENAME={result['release']}\n"
    assert codename in Path("/etc/os-release").read_text()


def test_an_interpreter_that_is_not_there_has_no_version(tmp_path: Path) -> None:
    result = node_facts(interpreter=str(tmp_path / "python"), stamps=str(tmp_path))
    assert result["python_version"] is None
