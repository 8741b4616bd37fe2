"""What the provisioning playbook and its roles compute."""

import socket
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils import sshd_access
from executed_modules import call, play
from provisioning_choices import NAMES, node, settings
from standins import PROJECT

from dlperf_runner.provision import arguments, environments, ssh_mesh

FACTS = {"distribution_release": "bookworm", "dlperf_node": node()}
NOTHING: dict[str, Any] = {"driver": None, "container_runtime": {}, "infiniband": {}}


def told(**changed: Any) -> dict[str, Any]:
    document: dict[str, Any] = arguments.arguments(settings(**changed), FACTS, {}, NOTHING)
    return document


@pytest.mark.parametrize(
    ("changed", "is_judged"),
    [
        ({}, True),
        ({"nodes": 1}, True),
        ({"suite": "bookworm"}, True),
        ({"suite": "noble"}, False),
        ({"adopt": ["driver"]}, False),
        ({"time": "ntp.example"}, False),
        ({"container_engine": "podman"}, False),
        ({"stack": "h100-cuda12.9"}, False),
    ],
)
def test_a_node_lacks_nothing_if_each_of_its_roles_has_nothing_to_do(
    changed: dict[str, Any], is_judged: bool
) -> None:
    judged = [role for role in arguments.JUDGES if role != "ssh_mesh" or changed != {"nodes": 1}]
    found = told(**changed)["provision_judges"]
    assert sorted(found) == sorted(f"{role}_stands" for role in judged if is_judged)
    for role in judged:
        assert f"{role}_stands:" in (PROJECT / f"roles/{role}/vars/main.yml").read_text()


def test_a_node_that_an_earlier_run_left_drained_lacks_that() -> None:
    """Otherwise the playbook would end before it gives the node back."""
    for name in ("", "node1"):
        facts = FACTS | {"dlperf_node": node(work={"drained": name})}
        document = arguments.arguments(settings(), facts, {}, NOTHING)
        assert (document["provision_judges"] == []) == bool(name)


@pytest.mark.parametrize("book", ["provision", "decommission"])
@pytest.mark.parametrize(
    ("drains", "drained", "is_asked"), [(False, "", False), (True, "", True), (False, "n", True)]
)
def test_a_node_that_this_or_an_earlier_run_drained_is_given_back(
    tmp_path: Path, book: str, drains: bool, drained: str, is_asked: bool
) -> None:
    last = yaml.safe_load((PROJECT / f"playbooks/{book}.yml").read_text())[-1]
    give_back = (last["tasks"] + last.get("post_tasks", []))[-1]
    give_back["slurm_drain"]["root"] = str(tmp_path)  # on which no slurmd runs
    facts = {"dlperf_node": {"work": {"drained": drained}}, "cacheable": True}
    tasks = [{"name": "Facts", "ansible.builtin.set_fact": facts}, give_back]
    done = play(tmp_path, *tasks, variables={"dlperf_drain": drains}, options=["--check"])
    assert done.returncode == 0, done.stdout
    assert ("skipping: [" not in done.stdout) == is_asked, done.stdout


class Recorded(dict[str, Any]):
    """A dictionary that knows which of its keys were read."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(content)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        self.read.add(key)
        return super().__getitem__(key)


def test_what_the_playbook_reads_of_the_inventory_is_what_is_computed_with() -> None:
    given = Recorded(settings(adopt=["openmpi"]))
    assert arguments.refusal(given) == ""
    arguments.query(given)
    arguments.arguments(given, FACTS, {}, NOTHING | {"openmpi": None})
    assert given.read == set(NAMES)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"stack": False}, "must set dlperf_stack"),
        ({"frameworks": False}, "must set dlperf_frameworks"),
        ({"stack": "gpu"}, "unknown stack 'gpu'"),
        ({"stack_overrides": {"cudn": None}}, "dlperf_stack_overrides: unknown key"),
        ({"frameworks": ["mxnets"]}, "unknown framework 'mxnets'"),
        ({"stack": "v100-cuda10.2", "frameworks": ["insightface-mxnet"]}, "unknown framework"),
    ],
)
def test_what_the_catalogue_lacks_is_refused(changed: dict[str, Any], said: str) -> None:
    assert said in arguments.refusal(settings(**changed))


def test_what_a_node_cannot_keep_and_a_wrong_release_are_told_together() -> None:
    document = told(stack="h100-cuda12.9", adopt=["driver"], suite="noble")
    first, last = document["provision_problems"]
    assert first == "dlperf_adopt has driver, but no driver is loaded on the node"
    assert last == "dlperf_suite is noble, but the node is bookworm. Correct it"
    assert document["gpu_node_stack"]["driver"]["method"] == "adopted"
    own = {"driver": {"version": "580.105.08", "cuda": "13.0"}}
    kept = arguments.arguments(
        settings(stack="h100-cuda12.9", adopt=["driver"]), FACTS, {}, NOTHING | own
    )
    assert kept["provision_problems"] == []
    assert [note.partition(":")[0] for note in kept["provision_notes"]] == ["driver"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"shell": "/bin/tcsh"}, "has the shell /bin/tcsh"),
        ({"has_home": False}, "/home/dlperf does not exist). Mount it, or make it (mkhomedir_"),
        ({"shell": "/usr/bin/bash"}, ""),
        ({"shell": "/bin/tcsh", "is_local": True}, ""),
        # NFS is not mounted at the moment.
        ({"has_home": False, "is_local": True}, "mkhomedir_helper dlperf"),
    ],
)
def test_a_user_of_the_node_that_does_not_fit_is_refused(
    changed: dict[str, Any], reason: str
) -> None:
    """usermod: user 'dlperf' does not exist in /etc/passwd (ansible/ansible#79479)."""
    user = {"home": "/home/dlperf", "shell": "/bin/bash", "uid": 7, "has_home": True}
    facts = FACTS | {"dlperf_node": node(user=user | {"is_local": False} | changed)}
    problems = arguments.arguments(settings(), facts, {}, NOTHING)["provision_problems"]
    assert len(problems) == bool(reason)
    assert all(reason in problem and "node_base_user" in problem for problem in problems)


@pytest.mark.parametrize(
    ("place", "adopt", "where"),
    [
        ("/etc/cloud/cloud.cfg.d/90_maas.cfg", [], "there"),
        ("/var/lib/cloud/instance/cloud-config.txt", [], "in the instance's user data"),
        ("/etc/cloud/cloud.cfg.d/90_maas.cfg", ["hosts"], None),
    ],
)
def test_a_hosts_file_that_does_not_last_is_told(
    place: str, adopt: list[str], where: str | None
) -> None:
    """ "cloud-init destroyed my /etc/hosts" at the driver's reboot (NVIDIA/deepops#663)."""
    facts = FACTS | {"dlperf_node": node(cloud_hosts=place)}
    notes = arguments.arguments(settings(adopt=adopt), facts, {}, NOTHING)["provision_notes"]
    assert len(notes) == bool(where)
    assert all(place in note and f"manage_etc_hosts: false {where}" in note for note in notes)


@pytest.mark.parametrize(
    ("overrides", "release", "notes"),
    [
        ({}, "jammy", []),
        (
            {"driver": {"version": "580.105.08"}},
            "jammy",
            ["asks for driver 580.105.08, which has", "580.159.03", "{driver: {version: ...}}"],
        ),
        ({"container_runtime": {"version": "28.5.2"}}, "jammy", ["29.7.1", "{version: ...}}"]),
        ({"container_runtime": {"toolkit": "1.16.2"}}, "jammy", ["1.17.8", "{toolkit: ...}}"]),
        # Podman is the distribution's.
        ({"container_runtime": {"version": "28.5.2"}}, "noble", []),
    ],
)
def test_releases_with_holes_are_told_before_they_are_installed(
    overrides: dict[str, Any], release: str, notes: list[str]
) -> None:
    facts = FACTS | {"distribution_release": release}
    given = settings(stack="h100-cuda12.9", stack_overrides=overrides)
    found = arguments.arguments(given, facts, {}, NOTHING)["provision_notes"]
    assert len(found) == bool(notes)
    assert all(each in found[0] for each in notes)


@pytest.mark.parametrize(
    ("changed", "mirror"),
    [
        ({}, ""),
        ({"mirror": "/srv/mirror"}, "/srv/mirror/vendor"),
        ({"mirror": "/srv/mirror", "vendor_mirror": "http://v.example"}, "http://v.example"),
        ({"mirror": "/srv/mirror", "vendor_mirror": ""}, ""),
    ],
)
def test_vendors_files_come_from_the_mirror_unless_they_have_their_own(
    changed: dict[str, Any], mirror: str
) -> None:
    assert told(**changed)["dlperf_vendor_mirror"] == mirror


def test_slurm_is_asked_for_by_any_form_of_true() -> None:
    for value, is_wanted in (("true", True), ("yes", True), (True, True), ("false", False)):
        assert ("slurm" in told(slurm=value)["provision_roles"]) == is_wanted


def test_what_is_computed_of_all_nodes_keeps_what_this_run_has_seen() -> None:
    proven, seen = {"ssh_mesh": {"members": {}}}, {"public_key": "k", "host_keys": ["h"]}
    hosts: dict[str, Any] = {
        name: {"ansible_host": address, "ansible_facts": {"dlperf_node": {"stamps": proven}}}
        for name, address in (("a", "10.0.0.1"), ("b", "b.example"))
    }
    hosts["a"] |= {"dlperf_address": "192.168.0.1", "__ssh_mesh_identity": seen}
    hosts["down"] = {"ansible_host": "10.0.0.3", "dlperf_address": "10.0.0.3"}
    found = arguments.of_all(["a", "b", "down"], hosts, ["a", "b"])
    assert found["node_base_hosts"] == {"a": "192.168.0.1", "down": "10.0.0.3"}
    assert found["slurm_addresses"] == {"a": "192.168.0.1", "b": "b", "down": "10.0.0.3"}
    assert found["ssh_mesh_addresses"]["b"] == ["b.example"]
    assert found["provision_mesh"] == proven["ssh_mesh"]
    a, down = ssh_mesh.members(["a", "down"], hosts)
    assert a == {"name": "a", "addresses": ["192.168.0.1", "10.0.0.1"], **seen}
    assert (down["addresses"], down["public_key"]) == (["10.0.0.3"], None)


def test_a_large_mesh_is_proven_from_the_first_to_all_and_from_each_to_the_next() -> None:
    names = [f"n{number}" for number in range(10)]
    assert ssh_mesh.partners(names[:4], "n2", 8) == ["n3", "n0", "n1"]
    assert ssh_mesh.partners(names, "n0", 8) == names[1:]
    assert ssh_mesh.partners(names, "n4", 8) == ["n5"]
    assert ssh_mesh.partners(names, "n9", 8) == ["n0"]
    assert ssh_mesh.partners(["n0"], "n0", 8) == []


def test_hosts_are_named_by_their_address_in_the_cluster() -> None:
    hosts = {
        "a": {"ansible_host": "10.0.0.1", "dlperf_address": "192.168.0.1"},
        "b": {"ansible_host": "10.0.0.2"},
        "named": {"ansible_host": "named.example"},
        "localhost": {"dlperf_address": "127.0.0.1"},
    }
    assert ssh_mesh.hosts(list(hosts), hosts) == {"a": "192.168.0.1", "b": "10.0.0.2"}
    assert ssh_mesh.unaddressed(list(hosts), hosts) == ["named"]
    assert ssh_mesh.unaddressed(["named"], hosts) == []
    kept = {"a": hosts["a"] | {"dlperf_adopt": ["hosts"]}, "b": hosts["b"]}
    assert ssh_mesh.unaddressed(list(kept), kept) == ["a", "b"]


def test_names_that_the_node_cannot_resolve_are_refused_although_it_lacks_nothing() -> None:
    """stackhpc/ansible-slurm-appliance#469: provisioning stopped after driver and CUDA."""
    known = socket.gethostname() if _resolves(socket.gethostname()) else "localhost"
    missing = [f"gpu{number}.invalid" for number in range(5)]
    found = call("node_facts", names=[known, *missing])["ansible_facts"]
    assert found["dlperf_node"]["unresolved"] == missing[:3]
    node = FACTS["dlperf_node"] | {"unresolved": missing[:1]}
    document = arguments.arguments(settings(), FACTS | {"dlperf_node": node}, {})
    (problem,) = document["provision_problems"]
    assert problem.startswith("the node cannot resolve gpu0.invalid, and the inventory has no IP")
    assert document["provision_judges"] == []


@pytest.mark.parametrize(
    ("printed", "obstacles"),
    [
        ("authorizedkeysfile .ssh/authorized_keys .ssh/authorized_keys2\nusepam yes\n", []),
        ("allowusers admin\nallowusers root\n", ["AllowUsers admin root"]),
        ("allowusers admin\nallowusers dl*@10.11.*\nallowgroups users\n", []),
        ("allowgroups wheel\n", ["AllowGroups wheel"]),
        ("allowgroups domain users\nallowgroups users\n", []),
        ("allowgroups domain users\n", ["AllowGroups domain users"]),
        ("denyusers *@!10.11.*\ndenygroups users\n", ["DenyGroups users"]),
        ("pubkeyauthentication no\n", ["PubkeyAuthentication no"]),
        ("authorizedkeysfile /etc/ssh/keys/%u\n", ["AuthorizedKeysFile /etc/ssh/keys/%u"]),
        (
            "authenticationmethods publickey,keyboard-interactive:pam\n",
            ["AuthenticationMethods publickey,keyboard-interactive:pam"],
        ),
    ],
)
def test_an_sshd_that_lets_the_user_not_in_is_refused(printed: str, obstacles: list[str]) -> None:
    """The mesh failed after driver and CUDA. As `sshd -T` prints it."""
    assert sshd_access.obstacles(printed, "dlperf", ["dlperf", "users"]) == obstacles
    node = FACTS["dlperf_node"] | {"sshd": obstacles}
    document = arguments.arguments(settings(), FACTS | {"dlperf_node": node}, {})
    problems = document["provision_problems"]
    assert len(problems) == bool(obstacles) == (document["provision_judges"] == [])
    assert all("; ".join(obstacles) in problem for problem in problems)


def _resolves(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(name, None))
    except OSError:
        return False


def refusal(takes: str, **node: object) -> str:
    state = {"interpreter": "/usr/bin/python3", "python_version": "3.13.5", "interpreters": []}
    wanted = [{"name": "net", "requires_python": takes}]
    return environments.python_refusal(wanted, state | node)


def test_a_python_out_of_range_is_refused_with_the_nearest_that_fits() -> None:
    assert refusal(">=3.8,<3.14") == refusal(">=3.8,<3.12", python_version="3.11.2") == ""
    message = refusal(">=3.8,<3.12")
    assert message.startswith(
        "the environment of net needs Python >=3.8,<3.12, but this node's /usr/bin/python3 is"
        " 3.13.5; use Debian 12 (bookworm) with 3.11"
    )
    message = refusal(">=3.8,<3.12", interpreters=["/usr/bin/python3.9", "/usr/bin/python3.11"])
    assert "this node also has /usr/bin/python3.11" in message
    assert "is missing" in refusal(">=3.8", python_version=None)


PINS = """# made by a tool
alpha==1.0 \\
    --hash=sha256:00
Beta_x==2 ; python_full_version < '3.10' \\
    --hash=sha256:00
beta-x==3 ; python_full_version >= '3.10' \\
    --hash=sha256:00
"""


def test_an_environment_is_as_pinned_only_by_its_python_and_every_version() -> None:
    def environment(**versions: str) -> dict[str, object]:
        found = {
            name.replace("_", "-"): {"version": v, "url": None} for name, v in versions.items()
        }
        return {"python": "3.11.2", "distributions": found}

    right = environment(alpha="1.0", beta_x="3", more="1")
    assert arguments.as_pinned(PINS, right, "3.11.9")
    assert not arguments.as_pinned(PINS, right, "3.12.1")
    assert not arguments.as_pinned(PINS, environment(alpha="1.0", beta_x="2"), "3.11.2")
    assert not arguments.as_pinned(PINS, environment(alpha="1.0"), "3.11.2")
    assert not arguments.as_pinned(PINS, None, "3.11.2")


def test_the_mesh_stands_where_every_node_has_proven_the_same() -> None:
    wanted = {"user": "dlperf", "members": {"node1": ["10.11.0.2"], "node2": ["10.11.0.3"]}}
    proven = {"ssh_mesh": {**wanted, "trust": "a" * 64}}
    other_key = {"ssh_mesh": {**wanted, "trust": "b" * 64}}
    assert ssh_mesh.agreed([proven, proven]) == proven["ssh_mesh"]
    assert ssh_mesh.agreed([]) == {}
    assert ssh_mesh.agreed([proven, {}]) == {}  # a new node, or somebody's edit on one
    assert ssh_mesh.agreed([proven, other_key]) == {}
    assert ssh_mesh.stands(proven["ssh_mesh"], wanted)
    assert not ssh_mesh.stands({}, wanted)  # a role that is run alone knows of no proof
    assert not ssh_mesh.stands(proven["ssh_mesh"], {**wanted, "members": {"node1": ["10.11.0.2"]}})
    assert not ssh_mesh.stands(proven["ssh_mesh"], {**wanted, "user": "other"})


def test_frameworks_stand_where_each_is_complete_and_proven_with_its_pins(tmp_path: Path) -> None:
    pins = tmp_path / "net.txt"
    pins.write_text("net==1.0\n")
    net = {"name": "net", "path": "/e", "requirements": str(pins)}
    proven = {"framework-net": environments.inputs(net)}
    assert environments.stand([net], ["/e"], proven)
    assert environments.stand([], [], {})
    assert environments.stand([{**net, "horovod": {}}], ["/e"], {})
    assert not environments.stand([net], [], proven)
    assert not environments.stand([net], ["/e"], {})
    assert not environments.stand([{**net, "operator_wheels": [{"sha256": "a"}]}], ["/e"], proven)
    pins.write_text("net==2.0\n")
    assert not environments.stand([net], ["/e"], proven)


def test_nodes_that_lack_the_same_environment_are_a_tree_below_the_first(tmp_path: Path) -> None:
    pins = tmp_path / "net.txt"
    pins.write_text("net==1.0\n")
    net = {"name": "net", "path": "/opt/dlperf/envs/net", "requirements": str(pins)}

    def host(release: str = "bookworm", complete: tuple[str, ...] = ()) -> dict[str, Any]:
        own = {"complete": list(complete), "python_version": "3.11.2", "interpreter": "/p"}
        facts = {"distribution_release": release, "architecture": "x86_64"}
        facts["dlperf_node"] = {"packages": {}}
        return {"ansible_facts": facts, "dlperf_node": own, "framework_environments": [net]}

    hosts = {f"node{number}": host() for number in range(1, 9)}
    hosts["node3"] = host(complete=(net["path"],))
    hosts["node5"] = host("trixie")  # alone with its release
    hosts["alone"] = {"ansible_facts": {}}  # a role that is run without provision.yml
    (group,) = environments.groups(list(hosts), hosts)
    assert group["nodes"] == ["node1", "node2", "node4", "node6", "node7", "node8"]
    placed = {name: environments.places([group], name, "/c") for name in hosts}
    assert placed["node3"] == placed["node5"] == placed["alone"] == []
    first = {"path": net["path"], "archive": "/c/net.tar", "sources": [], "keep": True}
    assert placed["node1"] == [first]
    keep = {name: places[0]["keep"] for name, places in placed.items() if places}
    assert [name for name, keeps in keep.items() if keeps] == ["node1", "node2", "node4"]
    sources = {name: places[0]["sources"] for name, places in placed.items() if places}
    assert sources == {
        "node1": [],
        "node2": ["node1"],
        "node4": ["node1"],
        "node6": ["node2", "node1"],
        "node7": ["node2", "node1"],
        "node8": ["node4", "node1"],
    }
    (place,) = placed["node8"]
    assert environments.offer(place, hosts) == {}  # the first has failed
    told = {"item": {"path": net["path"]}, "sha256": "a", "size": 1, "changed": False}
    hosts["node1"]["__framework_offered"] = {"results": [told]}
    assert environments.offer(place, hosts) == {"sha256": "a", "size": 1}


def test_horovod_stands_with_any_wheel_but_no_other_choice(tmp_path: Path) -> None:
    pins = tmp_path / "horovod.txt"
    pins.write_text("horovod==1\n")
    build = {"version": "1", "requirements": str(pins), "build_environment": {"A": "1"}}
    environment = {"horovod": build}
    wanted = environments.horovod_inputs(environment, "/usr/bin/mpirun", "eth0", [])
    proven = {**wanted, "wheel": "horovod-1_net-1.0"}
    assert environments.horovod_stands(proven, wanted)
    assert not environments.horovod_stands({}, wanted)
    assert not environments.horovod_stands(
        proven, environments.horovod_inputs(environment, "/usr/bin/mpirun", "ib0", [])
    )
    chosen = ("/usr/bin/mpirun", "eth0", [])
    named = [{"name": name, "path": f"/{name}", **environment} for name in ("net", "other")]
    stamps = {"horovod-net": proven}
    assert environments.horovod_unproven(named, stamps, None, *chosen) == named[1:]
    assert environments.horovod_unproven(named, stamps, ["/net"], *chosen) == named[1:]
    assert environments.horovod_unproven(named, stamps, ["/other"], *chosen) == named
    build["build_environment"] = {"A": "2"}
    assert not environments.horovod_stands(
        proven, environments.horovod_inputs(environment, "/usr/bin/mpirun", "eth0", [])
    )


@pytest.mark.parametrize(
    ("extra", "refused"),
    [
        ({}, ""),
        ({"horovod-1.data/scripts/horovodrun": ""}, ""),
        ({"evil.pth": "import os"}, "'evil.pth'"),
        ({"sitecustomize.py": ""}, "'sitecustomize.py'"),
        ({"horovod/../../x": ""}, "'horovod/../../x'"),
        ({"horovod-1.data/scripts/python": ""}, "'horovod-1.data/scripts/python'"),
        ({"horovod-1.data/data/bin/python": ""}, "'horovod-1.data/data/bin/python'"),
        ({"horovod-1.data/purelib/evil.pth": ""}, "'horovod-1.data/purelib/evil.pth'"),
        ({"horovod-1.dist-info/entry_points.txt": "[console_scripts]\npython = a:b\n"}, "'python'"),
        ({"horovod-1.dist-info/RECORD": "../../../../../etc/passwd,,\n"}, "etc/passwd"),
    ],
)
def test_a_wheel_brings_horovod_and_nothing_that_root_would_run(
    tmp_path: Path, extra: dict[str, str], refused: str
) -> None:
    files = {
        "horovod/__init__.py": "",
        "horovod-1.dist-info/METADATA": "Name: horovod",
        "horovod-1.dist-info/RECORD": "horovod/__init__.py,sha256=x,0\n",
        "horovod-1.dist-info/entry_points.txt": "[console_scripts]\nhorovodrun = horovod:run\n",
    }
    path = tmp_path / "horovod-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (files | extra).items():
            archive.writestr(name, content)
    found = environments.wheel_refusal(str(path))
    assert refused in found if refused else found == ""


# ---- values as Ansible gives them: its own lists and dictionaries, computed when read

VARIABLES: dict[str, Any] = {
    "some": "libucx0",
    "dlperf_stack_overrides": {
        "infiniband": {"rails": "=mlx5_{{ 1 }}"},
        "apt_packages": {"openmpi": ["libnuma1", "{{ some }}"]},
        "driver": {"version": "570.86.15"},
        "cudnn": None,
    },
    "dlperf_datasets": {
        "imagenet-tfrecord": {"path": "/{{ some }}", "images": "/i", "parts": 3, "shared": True}
    },
    "runs": [{"hosts": ["localhost"], "dataset": "{{ some }}"}],
    "further": ["-x", "{{ some }}"],
}
STACK = "('h100-cuda12.9' | stack_document(dlperf_stack_overrides))"
IMAGE = (
    "('x' | container_command(hosts=['a', 'b'], reference='r', user='u', interface=some,"
    " mpirun='/m', mpirun_args=further, argv=['/p'] + further))"
)
TRUE = [
    f"{STACK}.infiniband.rails == '=mlx5_1'",
    f"{STACK}.apt_packages.openmpi == ['libnuma1', 'libucx0']",
    f"{STACK}.driver.version == '570.86.15'",
    f"'cudnn' not in {STACK}",
    "(dlperf_datasets | dataset_sets)[0].path == '/libucx0'",
    "(dlperf_datasets | dataset_sets)[0].files | length == 3",
    f"{IMAGE}.argv[-2:] == ['-x', 'libucx0']",
    f"'btl_tcp_if_include libucx0' in {IMAGE}.argv | join(' ')",
    "runs | bench_datasets('localhost') == ['libucx0']",
    "(runs | bench_ready(['localhost'], hostvars)).bench_possible == []",
]


def test_filters_take_what_ansible_gives(tmp_path: Path) -> None:
    check = {"name": "Check", "ansible.builtin.assert": {"that": TRUE}}
    done = play(tmp_path, check, variables=VARIABLES)
    assert done.returncode == 0, done.stdout
