"""The embedded lab: what its nodes are, that it goes up and down, and that nothing is left."""

import ctypes
import hashlib
import json
import os
import pwd
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from benchmark_jobs import until
from lab_under_test import (
    CONTROL,
    PROJECT,
    Lab,
    namespaces_of,
    namespaces_of_lab,
    parent_of,
    processes,
    traces,
)

pytestmark = pytest.mark.lab

USER = "dlperf-lab-test"
PTRACE_SEIZE, WALL = 0x4206, 0x40000000  # linux/ptrace.h, linux/wait.h


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Four nodes as they come up, that no test changes."""
    folder = tmp_path_factory.mktemp("bare")
    mirror = folder / "mirror"
    mirror.mkdir()
    made = Lab(folder / "lab")
    made.up(lab_mirror_dir=mirror)
    yield made
    made.down()


@pytest.mark.parametrize("number", [1, 4])
def test_a_node_has_its_name_and_address(bare: Lab, number: int) -> None:
    node = f"node{number}"
    assert bare.said(node, "hostname") == node
    assert bare.said(f"10.11.0.{number + 1}", "hostname") == node
    addresses = bare.said(node, "ip -4 -br address show dev eth0").split()
    assert addresses[0].startswith("eth0")
    assert addresses[2] == f"10.11.0.{number + 1}/24"
    assert bare.said(node, f"getent hosts {node}").split() == [f"10.11.0.{number + 1}", node]


def test_a_node_is_a_bare_server(bare: Lab) -> None:
    for command in ("mpirun", "pip", "pip3", "gcc", "make", "uv"):
        assert bare.ssh("node1", f"command -v {command}").returncode != 0, command
    assert bare.ssh("node1", "python3 -c 'import apt, sys'").returncode == 0
    assert bare.ssh("node1", "python3 -c 'import pip'").returncode != 0
    commands = bare.said("node1", "ps -eo comm=").split()
    assert set(commands) == {"lab-init", "sshd", "ps"}
    assert bare.ssh("node1", "id dlperf").returncode != 0


def test_host_keys_are_checked(bare: Lab, tmp_path: Path) -> None:
    keys = (bare.directory / "known_hosts").read_text().splitlines()
    assert len({line.split()[2] for line in keys}) == 4
    swapped = tmp_path / "known_hosts"
    swapped.write_text(keys[0].replace("node1,10.11.0.2", "node2,10.11.0.3") + "\n")
    argv = bare.ssh_argv("node2", "true")
    refused = subprocess.run(
        [*argv[:-2], "-o", f"UserKnownHostsFile={swapped}", *argv[-2:]],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 255
    assert "Host key verification failed" in refused.stderr


def test_nodes_cannot_reach_each_other_by_ssh(bare: Lab) -> None:
    # accept-new: node1 does not know the host key of node2. Without the option, ssh would stop
    # there, and the test would not show that node2 refuses the user. /dev/null: keeps no key.
    options = "-o BatchMode=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=/dev/null"
    refused = bare.ssh("node1", f"ssh {options} root@10.11.0.3 true")
    assert refused.returncode == 255
    assert "Permission denied (publickey" in refused.stderr


def test_nodes_reach_each_other_by_tcp_and_nothing_else(bare: Lab) -> None:
    connect = "python3 -c 'import socket, sys; socket.create_connection((sys.argv[1], 22), 5)'"
    assert bare.ssh("node1", f"{connect} 10.11.0.5").returncode == 0
    outside = bare.ssh("node1", f"{connect} 192.0.2.1")
    assert "Error" in outside.stderr
    assert bare.said("node1", "ip route show default") == "unreachable default"


def test_a_lookup_fails_at_once(bare: Lab) -> None:
    """The name server's port is closed; one that does not answer takes 5 s and more."""
    code = (
        "import re, socket; s = socket.socket(type=socket.SOCK_DGRAM)\n"
        "s.connect((re.search(r'nameserver (\\S+)', open('/etc/resolv.conf').read())[1], 53))\n"
        "s.send(b'?'); s.settimeout(60)\n"
        "try: s.recv(1)\n"
        "except ConnectionRefusedError: print('closed')"
    )
    assert bare.said("node1", f"python3 -c {shlex.quote(code)}") == "closed"


def test_a_node_cannot_change_the_machine(bare: Lab) -> None:
    assert bare.ssh("node1", "echo 1 > /proc/sys/vm/swappiness").returncode != 0
    assert bare.ssh("node1", "date --set=12:00").returncode != 0
    assert bare.ssh("node1", "mknod /tmp/disk b 8 0").returncode != 0
    assert bare.ssh("node1", "mkdir /sys/x").returncode != 0
    assert bare.ssh("node1", "echo 1 > /proc/sys/net/ipv4/ip_forward").returncode == 0


def test_the_network_is_the_labs_own(bare: Lab) -> None:
    """The machine has no bridge and no address of the lab, so that two labs can be up."""
    assert "10.11.0." not in Path("/proc/net/fib_trie").read_text()
    assert "lab0" not in Path("/proc/net/dev").read_text()


def test_a_second_up_changes_nothing_and_check_mode_says_so(bare: Lab) -> None:
    mirror = bare.state["mirror_dir"]
    before = bare.state
    assert "changed=0" in bare.up(lab_mirror_dir=mirror)
    checked = bare.play("playbooks/lab.yml", "--check", "-e", "lab_nodes=2")
    assert "changed=1" in checked
    assert bare.state == before


def test_down_leaves_nothing(tmp_path: Path) -> None:
    lab = Lab(tmp_path / "lab")
    lab.up(lab_nodes=2)
    assert lab.command("ansible", "nodes", "-m", "ansible.builtin.ping").returncode == 0
    namespaces = namespaces_of_lab(lab)
    assert len(namespaces) == 3 * 5
    assert traces(lab.directory, namespaces)
    assert "changed=1" in lab.down()
    assert traces(lab.directory, namespaces) == []
    assert not lab.directory.exists()
    assert "changed=0" in lab.down()


@pytest.mark.parametrize("which", ["pid", "supervisor"])
def test_a_killed_lab_leaves_nothing_and_can_come_up_again(tmp_path: Path, which: str) -> None:
    lab = Lab(tmp_path / "lab")
    with lab.running(nodes=2):
        # Ansible leaves SSH connections open for its next task; they too must end.
        pinged = lab.command("ansible", "nodes", "-m", "ansible.builtin.ping")
        assert pinged.returncode == 0, pinged.stdout
        namespaces = namespaces_of_lab(lab)
        os.kill(lab.state[which], signal.SIGKILL)
        left = partial(traces, lab.directory, namespaces)
        assert until(lambda: not left(), 45), left()  # below ControlPersist
        with lab.running(nodes=2):
            assert lab.said("node2", "hostname") == "node2"
    assert traces(lab.directory) == []


def test_a_lab_that_is_ending_is_not_up(tmp_path: Path) -> None:
    """Its first process lives until its children are reaped; one that is traced never is."""
    lab = Lab(tmp_path / "lab")
    with lab.running(nodes=2):
        state, namespaces = lab.state, namespaces_of_lab(lab)
        node = next(pid for pid in processes() if parent_of(pid) == state["pid"])
        if ctypes.CDLL(None).ptrace(PTRACE_SEIZE, node, 0, 0) != 0:
            pytest.skip("this machine forbids ptrace")
        os.kill(state["supervisor"], signal.SIGKILL)
        left = partial(traces, lab.directory, namespaces)
        assert until(lambda: not left(), 45), left()
        assert Path(f"/proc/{state['pid']}").exists()
        same = ("--nodes", 2, "--suite", state["suite"], "--base", state["base"])
        assert lab.control("up", *same, "--mirror-dir", state["mirror_dir"], "--dry-run")
        os.waitpid(node, WALL)
        with lab.running(nodes=2):
            assert lab.said("node2", "hostname") == "node2"


def test_with_the_lab_down_playbooks_say_how_to_bring_it_up(tmp_path: Path) -> None:
    refused = Lab(tmp_path / "lab").command("ansible-playbook", "provision.yml")
    assert refused.returncode != 0
    assert "The lab is not running. Start it: dlperf lab up." in refused.stdout
    assert "node2" not in refused.stdout.partition("PLAY RECAP")[0]


@pytest.mark.parametrize("said", ["", "base unpacked"])
def test_an_interrupted_up_leaves_nothing(tmp_path: Path, said: str) -> None:
    """At the holder's start, and when it starts its nodes."""
    lab = Lab(tmp_path / "lab")
    process = subprocess.Popen(
        ["ansible-playbook", "playbooks/lab.yml", "-e", "lab_nodes=64", "-e", "lab_bundle=false"],
        cwd=PROJECT, env=lab.environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    log = lab.directory / "holder.log"
    while not log.exists() or said not in log.read_text():
        assert process.poll() is None
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does on Ctrl-C
    process.communicate(timeout=300)
    assert process.returncode != 0
    # The holder looks between its steps whether it is still wanted.
    assert until(lambda: not lab.directory.exists() and not traces(lab.directory)), traces(
        lab.directory
    )


def test_two_labs_do_not_see_each_other_and_a_node_that_goes_down_is_only_that_node(
    bare: Lab, tmp_path: Path
) -> None:
    with Lab(tmp_path / "lab").running(nodes=2) as lab:
        assert bare.said("node1", "echo x > /only-here; hostname") == "node1"
        assert lab.ssh("node1", "test -e /only-here").returncode == 1
        assert bare.said("node1", "rm /only-here; hostname") == "node1"
        assert namespaces_of_lab(bare).isdisjoint(namespaces_of_lab(lab))
        lab.ssh("node2", "kill 1")
        assert lab.said("node1", "hostname") == "node1"
        log = lab.directory / "holder.log"
        assert until(lambda: "node2 ended" in log.read_text())
        # Where the way out has another address then, connections stall.
        assert "02:00:00:00:00:01" in lab.said("node1", "grep -w 10.11.0.1 /proc/net/arp")
        pinged = lab.command("ansible", "nodes", "-m", "ansible.builtin.ping")
        assert "node1 | SUCCESS" in pinged.stdout
        assert "node2 | UNREACHABLE" in pinged.stdout


def test_many_nodes_read_the_mirror_all_at_once(tmp_path: Path) -> None:
    nodes, mirror = 16, tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "file").write_bytes(os.urandom(1_000_000))
    with Lab(tmp_path / "lab").running(nodes, mirror=mirror) as lab:
        listing = json.loads(lab.command("inventory/lab/hosts.py").stdout)
        assert listing["nodes"]["hosts"] == [f"node{n}" for n in range(1, nodes + 1)]
        code = (
            "import hashlib, socket, urllib.request as u; "
            "content = u.urlopen('http://10.11.0.1:8010/file').read(); "
            "print(socket.gethostname(), hashlib.sha256(content).hexdigest())"
        )
        started = [
            subprocess.Popen(
                lab.ssh_argv(f"node{n}", f'python3 -c "{code}"'), stdout=subprocess.PIPE
            )
            for n in range(1, nodes + 1)
        ]
        answers = [process.communicate()[0].decode().strip() for process in started]
        digest = hashlib.sha256((mirror / "file").read_bytes()).hexdigest()
        assert answers == [f"node{n} {digest}" for n in range(1, nodes + 1)]


@pytest.mark.heavy
@pytest.mark.versions
@pytest.mark.parametrize(("suite", "version"), [("bullseye", "11"), ("trixie", "13")])
def test_other_releases(tmp_path: Path, suite: str, version: str) -> None:
    with Lab(tmp_path / "lab").running(2, suite) as lab:
        assert lab.said("node2", "cat /etc/debian_version").startswith(version)
        assert lab.said("node2", "hostname") == "node2"
        assert lab.command("ansible", "nodes", "-m", "ansible.builtin.ping").returncode == 0


@pytest.fixture
def ordinary_user() -> Iterator[Path]:
    """The home of an ordinary user that is made for the test, with what the lab needs in it."""
    if os.geteuid() != 0:
        pytest.skip("this is an ordinary user already, and all other tests ran as one")
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", USER], check=True)
    entry = pwd.getpwnam(USER)
    home = Path(entry.pw_dir)
    try:
        subordinate = [line.split(":")[0] for line in Path("/etc/subuid").read_text().splitlines()]
        if USER not in subordinate:
            pytest.skip("useradd gives no subordinate ids on this machine")
        for program in CONTROL.parent.glob("lab_*.py"):
            shutil.copy(program, home)
        shutil.copy(PROJECT / ".cache/lab/bookworm.tar", home)
        yield home
    finally:
        for pid in processes():
            if _owner(pid) == entry.pw_uid:
                os.kill(pid, signal.SIGKILL)
        subprocess.run(["userdel", "--remove", USER], check=True, capture_output=True)


def _owner(pid: int) -> int | None:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return None


@pytest.mark.parametrize("overlay", ["", "copy"])
def test_an_ordinary_user_can_bring_it_up(bare: Lab, ordinary_user: Path, overlay: str) -> None:
    """`copy` is what kernels older than 6.6 make an ordinary user's nodes of."""
    home = ordinary_user
    directory = home / "lab"

    def as_user(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["runuser", "-u", USER, "--", *argv], cwd="/", text=True, check=False,
            env={"PATH": os.environ["PATH"], "DLPERF_LAB_OVERLAY": overlay},
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip

    control = ("/usr/bin/python3", "-I", str(home / "lab_control.py"))
    common = ("--base", str(home / "bookworm.tar"), "--suite", "bookworm")
    up = as_user(*control, "up", "--directory", str(directory), "--nodes", "1", *common,
                 "--mirror-dir", str(home / "mirror"))  # fmt: skip
    assert up.returncode == 0, up.stderr
    try:
        state = json.loads((directory / "lab.json").read_text())
        assert _owner(state["pid"]) == pwd.getpwnam(USER).pw_uid
        namespaces = namespaces_of(state["pid"]) - namespaces_of(os.getpid())
        script = (
            "set -e; hostname; id -u; useradd -m somebody; su somebody -c 'id -un'; "
            "rm -r /var/lib/dpkg/info; mkdir /var/lib/dpkg/info; ls /var/lib/dpkg/info | wc -l"
        )
        answer = as_user("ssh", "-F", str(directory / "ssh_config"), "node1", script)
        assert answer.stdout.split() == ["node1", "0", "somebody", "0"], answer.stderr
    finally:
        down = as_user(*control, "down", "--directory", str(directory))
    assert down.returncode == 0, down.stderr
    assert traces(directory, namespaces) == []
    assert not directory.exists()


def test_a_machine_that_forbids_namespaces_is_told_why(tmp_path: Path) -> None:
    """As root of a container without privileges: nothing may be mounted, no namespace be made."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give up its capabilities")
    lab = Lab(tmp_path / "lab")
    refused = lab.command(
        "setpriv", "--bounding-set=-sys_admin", "ansible-playbook", "playbooks/lab.yml",
        "-e", "lab_state=checked",
    )  # fmt: skip
    assert refused.returncode == 2
    assert "this machine does not allow the lab: unshare" in refused.stdout
    assert "-i inventory/local" in refused.stdout
    assert not lab.directory.exists()
