"""The ordinary user of a node tries to become root while root's tasks run, and does not."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fabric_standins import tar_of
from lab_under_test import Lab, Shared, sharing

# ---- What the ordinary user of a node tries against root, and what root would have lost by it

SECRET = "planted-71d0c4b2aa"  # noqa: S105
CANARY = "/etc/canary.d"
NAMES = (
    *("secret", "authorized_keys", "authorized_keys.new", "id_ed25519", "id_ed25519.pub"),
    *("containers/storage.conf", "containers/containers.conf", "runs/campaign"),
)
PREPARE = f"""
set -e
mkdir -p {CANARY}/containers {CANARY}/runs
for name in {" ".join(NAMES)}; do echo {SECRET} > {CANARY}/$name; done
chmod 600 {CANARY}/* && chmod 755 {CANARY}/containers {CANARY}/runs
"""
# As the user, whose writable and readable places are asked for, and as root, who sees everything.
LOSSES = rf"""
echo "== canary"
find {CANARY} /etc/shadow /etc/gshadow /etc/sudoers /etc/ssh/*_key -printf '%M %U:%G %p %l\n'
find {CANARY} -type f -exec sha256sum {{}} +
echo "== privileged"; find / -xdev -type f -perm /6000 -uid 0
echo "== writable"
cd /; runuser -u dlperf -- find / -xdev ! -user dlperf ! -type l -writable 2>/dev/null
echo "== leaked"; grep -rlF -D skip {SECRET} /home /opt /srv /tmp /usr/local /var 2>/dev/null
echo "== executed"; grep -qsx 0 /home/dlperf/executed && echo by root
echo "== builder"; getent passwd dlperf-build; ls -d /opt/dlperf/build 2>/dev/null
true
"""
# Run by whoever starts a shell or a Python with something of the user's in its way.
PAYLOAD = "id -u >> /home/dlperf/executed"
PYTHON_PAYLOAD = f"import os; os.system({PAYLOAD!r})"
PLANT = f"""
set -e
cd ~
for file in .bashrc .profile .bash_profile .bash_env .ssh/rc; do echo '{PAYLOAD}' > $file; done
for name in PYTHONPATH LD_LIBRARY_PATH; do echo $name=$HOME/lib >> .pam_environment; done
echo BASH_ENV=$HOME/.bash_env >> .pam_environment
cp .pam_environment .ssh/environment
site=$(python3 -m site --user-site)
mkdir -p lib $site runs/campaign /opt/dlperf/runs/evil /opt/dlperf/data/evil
for folder in lib $site /opt/dlperf/runs /opt/dlperf/data /tmp /var/tmp; do
  for file in sitecustomize.py usercustomize.py evil.pth; do
    echo "{PYTHON_PAYLOAD}" > $folder/$file
  done
done
for folder in runs/campaign /opt/dlperf/runs/evil /opt/dlperf/data/evil; do
  (cd $folder; ln -sfn {CANARY} link; ln -sfn / root; mkfifo pipe; touch "$(printf 'a\nb')" -- -rf)
done
for file in /etc/shadow {CANARY}/secret /usr/bin/passwd; do ln $file runs/ 2>/dev/null || true; done
for folder in /opt/dlperf/envs/mxnet/bin /opt/dlperf/uv/bin /opt/dlperf/stamps /usr/local/bin; do
  cp /bin/sh $folder/evil 2>/dev/null || true
done
"""
# Swaps paths as fast as it can, and takes whatever folder lets it in.
RACE = rf"""
import os, shutil, time
home = os.path.expanduser("~")
watched = ["/opt/dlperf/build", "/var/lib/dlperf/files", "/usr/local", "/opt/dlperf/wheels", "/srv"]

def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        pass

def swap(path, target):
    if os.path.islink(path):
        os.unlink(path)
        os.path.lexists(path + ".kept") and os.rename(path + ".kept", path)
    else:
        os.path.lexists(path) and os.rename(path, path + ".kept")
        os.symlink(target, path)

def setuid_into(folder):
    path = os.path.join(folder, "evil")
    shutil.copy("/bin/sh", path)
    os.chmod(path, 0o4755)

def invade(folder):
    attempt(os.symlink, "{CANARY}/secret", os.path.join(folder, "build.tar.gz"))
    if "/root" in folder:
        attempt(setuid_into, folder)
        attempt(os.symlink, "{CANARY}/secret", os.path.join(folder, "link"))

while True:
    for top in watched:
        for folder, _folders, _files in os.walk(top):
            invade(folder)
    for name in SWAPPED:
        attempt(swap, os.path.join(home, name), "{CANARY}/" + os.path.basename(name))
    time.sleep(0.005)
"""


@dataclass(frozen=True)
class Intruder:
    """The user dlperf of a node."""

    lab: Lab
    node: str

    def does(self, script: str) -> str:
        return self.lab.said(
            self.node, f"cd / && runuser -u dlperf -- sh <<'END'\nHOME=/home/dlperf\n{script}\nEND"
        )

    def races(self, *swapped: str) -> None:
        """Start it; it goes on until it is stopped."""
        code = f"SWAPPED = {json.dumps(swapped)}\n{RACE}"
        self.lab.said(self.node, f"cat > /tmp/race.py <<'END'\n{code}\nEND")
        start = "HOME=/home/dlperf setsid runuser -u dlperf -- python3 -I /tmp/race.py"
        self.lab.said(self.node, f"cd / && ({start} > /tmp/race.log 2>&1 < /dev/null &)")

    def stops(self) -> None:
        alive = "grep -qs [r]ace.py /proc/[0-9]*/cmdline"
        said = self.lab.said(self.node, f"cat /tmp/race.log; {alive} || echo it had ended before")
        self.lab.said(self.node, "cd / && runuser -u dlperf -- sh -c 'kill -KILL -1'")
        assert said == ""


def changes(before: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """What was not there before, and what is gone, with its kind."""
    pairs = {f"{kind}: {line}" for kind in before for line in set(before[kind]) ^ set(now[kind])}
    return sorted(pairs)


def losses(lab: Lab, node: str) -> dict[str, list[str]]:
    """What root would not want to change, by kind."""
    found: dict[str, list[str]] = {}
    for line in lab.said(node, LOSSES).splitlines():
        if line.startswith("== "):
            kind = line[3:]
            found[kind] = []
        else:
            found[kind].append(line)
    return {kind: sorted(lines) for kind, lines in found.items()}


def source(prefix: str, install: str = "") -> dict[str, Any]:
    """Files of a tiny project that configure and make build; `install` is added to its own."""
    configure = f"""#!/bin/sh
cat > Makefile <<'END'
P = $(DESTDIR){prefix}
all:
	printf '#!/bin/sh\\necho tiny\\n' > tiny && chmod 755 tiny
install: all
	mkdir -p $(P)/bin $(P)/share && cp tiny $(P)/bin && ln -s tiny $(P)/bin/also && sleep 2
	{install or "true"}
END
"""
    return {"configure": configure}


# ---- tests

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]  # minutes

NODES = ("node1", "node2")
NOTHING: dict[str, list[str]] = {node: [] for node in NODES}
ROLE = "tests/lab/plays/role.yml"
PATIENCE_S = 400  # a play that waits for a FIFO waits for ever


@dataclass(frozen=True)
class Cluster:
    lab: Lab
    scratch: Path
    users: list[Intruder]
    before: dict[str, dict[str, list[str]]]

    def play(self, book: str, *options: str, **variables: object) -> tuple[int, str]:
        """Run a playbook that may fail, but neither hangs nor breaks down."""
        argv = ["timeout", "--kill-after=10", str(PATIENCE_S), "ansible-playbook", book, *options]
        done = self.lab.command(*argv, "-e", json.dumps(variables))
        output = re.sub(r"\s+", " ", done.stdout)  # messages are wrapped
        assert done.returncode in (0, 2), output
        for word in ("Traceback", "MODULE FAILURE", "Unexpected", SECRET):
            assert word not in output, output
        return done.returncode, output

    def build(self, name: str, prefix: str, install: str = "") -> tuple[int, str]:
        path = self.scratch / name / "source.tar.gz"
        sha256 = tar_of(path, name, source(prefix, install))
        given = {"name": name, "version": "1", "source": str(path), "file": path.name}
        given |= {"role": "tiny", "sha256": sha256, "prefix": prefix}
        given |= {"cache": str(path.with_name("cache"))}
        variables: dict[str, Any] = {f"source_build_{key}": value for key, value in given.items()}
        variables["source_build_packages"] = ["make"]
        return self.play(ROLE, role="source_build", **variables)

    def reset(self) -> None:
        """Give the users their homes back."""
        for user in self.users:
            user.does("cd ~; rm -rf .config* runs.kept; cd .ssh && rm -f *.kept *keys* id_*")

    def gained(self) -> dict[str, list[str]]:
        return {node: changes(self.before[node], losses(self.lab, node)) for node in NODES}


@contextmanager
def provisioned(scratch: Path, mirror: Path) -> Iterator[Cluster]:
    with Lab(scratch / "lab").running(nodes=len(NODES), mirror=mirror) as lab:
        lab.play("provision.yml")
        lab.play(ROLE, "-e", "role=container")
        users = [Intruder(lab, node) for node in NODES]
        for user in users:
            lab.said(user.node, PREPARE)
            lab.said(user.node, "install -d -o dlperf /opt/dlperf/runs /opt/dlperf/data")
            user.does(PLANT)
        before = {node: losses(lab, node) for node in NODES}
        for found in before.values():
            assert found["leaked"] == found["builder"] == found["executed"] == []
            own = ("/dev/", "/proc/", "/run/lock", "/tmp", "/var/lock", "/var/tmp")
            assert [path for path in found["writable"] if not path.startswith(own)] == []
        yield Cluster(lab, scratch, users, before)


shared = sharing(provisioned)


@pytest.fixture
def cluster(shared: Shared[Cluster]) -> Cluster:
    return shared.get()


# tests/library/test_build_archive.py has what an archive must not contain, one by one.
HOSTILE = {
    "archive": (
        f"chmod 4755 $(P)/bin/tiny; ln -sf {CANARY}/secret build.tar.gz; mkfifo $(P)/pipe;"
        f" ln -s {CANARY}/secret $(P)/out; ln -s {CANARY}/secret $(P)/.dlperf-build",
        "has the reserved name of the stamp",
    ),
    "all-of-it": (f"rm -r $(P); ln -s {CANARY} $(P); (setsid sleep 3000 &)", "Permission denied"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_source_becomes_no_root(cluster: Cluster, name: str) -> None:
    install, said = HOSTILE[name]
    prefix = f"/usr/local/{name}"
    status, output = cluster.build(name, prefix, install)
    assert cluster.gained() == NOTHING
    assert status == 2, output
    assert f"Cannot build {name} 1 on node1" in output
    assert said in output
    for node in NODES:
        left = f"ls -d {prefix}* /var/lib/dlperf/files/*; grep -lz '^300[0]$' /proc/*/cmdline"
        assert cluster.lab.ssh(node, left).stdout == ""
    assert list((cluster.scratch / name / "cache").rglob("build*")) == []


def test_the_user_gets_nothing_into_what_root_builds(cluster: Cluster) -> None:
    for user in cluster.users:
        user.races()
    prefix = "/usr/local/sound"
    status, output = cluster.build("sound", prefix)
    for user in cluster.users:
        user.stops()
    assert cluster.gained() == NOTHING
    assert status == 0, output
    for node in NODES:
        assert cluster.lab.said(node, f"{prefix}/bin/also; find {prefix} ! -user root") == "tiny"
        files = "./.dlperf-build ./bin/also ./bin/tiny"
        found = cluster.lab.said(node, f"cd {prefix}; find . ! -type d | sort | xargs")
        assert found == files


def test_a_full_disk_is_told_of_and_leaves_no_half(cluster: Cluster) -> None:
    for node in NODES:
        cluster.lab.said(node, "mount -t tmpfs -o size=1m,mode=755 tmpfs /srv")
        cluster.lab.said(node, "install -d -o dlperf /srv/theirs")
    cluster.users[1].does("dd if=/dev/zero of=/srv/theirs/full bs=4k 2>/dev/null || true")
    install = "head -c 200000 /dev/urandom > $(P)/share/data"
    status, output = cluster.build("disk", "/srv/disk", install)
    assert status == 2, output
    assert "No space left on device. Free disk space (df -h)" in output
    assert cluster.lab.said("node2", "ls /srv") == "theirs"
    cluster.lab.said("node2", "rm /srv/theirs/full")
    status, output = cluster.build("disk", "/srv/disk", install)
    assert status == 0, output
    for node in NODES:
        assert cluster.lab.said(node, "/srv/disk/bin/tiny") == "tiny"
        cluster.lab.said(node, "umount /srv")
    assert cluster.gained() == NOTHING


def test_a_home_that_is_swapped_all_the_time_is_no_way_to_root(cluster: Cluster) -> None:
    for node in NODES:
        cluster.lab.said(node, "rm -f /opt/dlperf/stamps/*")
    for user in cluster.users:
        user.races(
            ".ssh/authorized_keys", ".ssh/authorized_keys.new", ".ssh/id_ed25519.pub", ".config"
        )
    # Whether the mesh is proven is up to the user, whose keys these are.
    cluster.play("provision.yml", "--tags", "node_base,ssh_mesh,openmpi,python_env,framework")
    for user in cluster.users:
        user.stops()
    assert cluster.gained() == NOTHING


def test_what_blocks_in_the_home_is_told_of(cluster: Cluster) -> None:
    """Of node1 another file than of node2."""
    cluster.reset()
    again = "rm -f /opt/dlperf/stamps/ssh_mesh.json"
    for node in NODES:
        cluster.lab.said(node, again)
    status, output = cluster.play("provision.yml", "--tags", "ssh_mesh")
    assert status == 0, output
    names = ("authorized_keys", "id_ed25519.pub")
    for user, name in zip(cluster.users, names, strict=True):
        user.does(f"cd ~/.ssh; rm {name}; mkfifo {name}")
        cluster.lab.said(user.node, again)
    status, output = cluster.play("provision.yml", "--tags", "ssh_mesh")
    assert status == 2, output
    for user in cluster.users:
        assert re.search(rf"fatal: \[{user.node}\].*?/home/dlperf/\.ssh", output), output
    assert output.count("Check what is there, and repair or remove it.") >= len(NODES)
    cluster.reset()
    assert cluster.gained() == NOTHING


def test_podmans_settings_are_not_written_where_a_link_leads(cluster: Cluster) -> None:
    for user in cluster.users:
        user.does(f"rm -rf ~/.config; ln -s {CANARY} ~/.config")
    status, output = cluster.play(ROLE, role="container")
    assert status == 2, output
    assert "Permission denied" in output or "Operation not permitted" in output, output
    assert cluster.gained() == NOTHING
    status, output = cluster.play(ROLE, role="container", part="absent")
    assert cluster.gained() == NOTHING


def test_a_campaign_gives_root_away_to_nobody(cluster: Cluster) -> None:
    cluster.reset()
    for user in cluster.users:
        user.races(".config")
    given = {"model": "resnet50v1b", "nodes": "1", "gpus_per_node": "1"}
    campaign = cluster.scratch / "results" / "campaign"
    status, output = cluster.play("bench.yml", **given, campaign=str(campaign))
    for user in cluster.users:
        user.stops()
    assert cluster.gained() == NOTHING
    assert status == 0, output
    assert not [path for path in campaign.rglob("*") if path.is_symlink()]


def test_root_starts_nothing_of_the_users_in_an_environment(cluster: Cluster) -> None:
    code = "import mxnet, horovod.mxnet, sys; print(sys.prefix)"
    activated = f'. /opt/dlperf/envs/mxnet/bin/activate; cd /opt/dlperf; python -c "{code}"'
    for node in NODES:
        assert cluster.lab.said(node, activated) == "/opt/dlperf/envs/mxnet"
    assert cluster.gained() == NOTHING


def test_decommissioning_removes_what_is_ours_and_nothing_that_a_link_leads_to(
    shared: Shared[Cluster],
) -> None:
    cluster = shared.last()
    for user in cluster.users:
        user.races(".config", "runs")
    status, output = cluster.play("playbooks/decommission.yml", dlperf_remove_results=True)
    assert status == 2, output
    assert "user dlperf is currently used by process" in output
    for user in cluster.users:
        user.stops()
    cluster.reset()
    status, output = cluster.play("playbooks/decommission.yml", dlperf_remove_results=True)
    assert status == 0, output
    for node in NODES:
        now = losses(cluster.lab, node)
        assert now["canary"] == cluster.before[node]["canary"]
        assert now["leaked"] == now["builder"] == []
        assert cluster.lab.ssh(node, "ls -d /opt/dlperf /home/dlperf; id dlperf").stdout == ""
