"""What an image of a node holds, where secrets lie in all the places that nodes have them in."""

import hashlib
import io
import json
import os
import pwd
import py_compile
import sys
import tarfile
from pathlib import Path

import pytest
from captured import captured
from planted import MARK, PLACES, planted
from standins import ansible_standin, needed

ENVIRONMENT = "/opt/dlperf/envs/mxnet"
WRITE = """
import json, sys
from ansible.module_utils import node_image
node_image.write(**json.load(sys.stdin))
"""
# As Debian's mpirun: a link to the alternative, and its manual page as a slave.
ALTERNATIVE = """\
auto
/usr/bin/mpirun
mpirun.1.gz
/usr/share/man/man1/mpirun.1.gz

/usr/bin/mpirun.openmpi
50
/usr/share/man/man1/mpirun.openmpi.1.gz

"""


class Node:
    """A root file system with dpkg's database, as small as it can be."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.listed: list[str] = ["/."]
        self.sums: list[str] = []
        self.conffiles: list[str] = []

    def file(self, place: str, content: str | bytes, mode: int = 0o644) -> Path:
        path = self.root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        path.chmod(mode)
        return path

    def link(self, place: str, target: str) -> None:
        path = self.root / place.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def shipped(self, place: str, content: str = "", mode: int = 0o644) -> Path:
        """A package's file; without content one that is there, or a link."""
        content = content or f"shipped {place}\n"
        self.listed += [str(parent) for parent in Path(place).parents[:-1]] + [place]
        known = hashlib.md5(content.encode()).hexdigest()  # noqa: S324 - what dpkg has
        self.sums.append(f"{known}  {place[1:]}")
        return self.file(place, content, mode)

    def configuration(self, place: str, content: str, edited: str = "") -> None:
        known = hashlib.md5(content.encode()).hexdigest()  # noqa: S324 - what dpkg has
        self.listed.append(place)
        self.conffiles.append(f" {place} {known}")
        self.file(place, edited or content)

    def finish(self) -> None:
        info = "/var/lib/dpkg/info/"
        self.file(info + "all.list", "\n".join(self.listed) + "\n")
        self.file(info + "all:amd64.md5sums", "\n".join(self.sums) + "\n")
        status = ["Package: all", "Status: install ok installed", "Version: 1", "Conffiles:"]
        self.file("/var/lib/dpkg/status", "\n".join([*status, *self.conffiles, ""]))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node with packages, an environment, and everything in PLACES."""
    made = Node(tmp_path / "root")
    made.link("/bin", "usr/bin")
    made.shipped("/usr/bin/python3.11", mode=0o755)
    made.shipped("/bin/sh", mode=0o755)
    made.shipped("/usr/bin/mpirun.openmpi", mode=0o755)
    made.shipped("/usr/lib/x86_64-linux-gnu/libfoo.so.1")
    for link, target in {
        "/usr/bin/mpirun": "../../etc/alternatives/mpirun",
        "/etc/alternatives/mpirun": "../../usr/bin/mpirun.openmpi",
        "/etc/localtime": "/usr/share/zoneinfo/Etc/UTC",
    }.items():
        made.link(link, target)
    made.listed.append("/usr/lib/x86_64-linux-gnu/libfoo.so")
    made.link("/usr/lib/x86_64-linux-gnu/libfoo.so", "libfoo.so.1")
    made.file("/var/lib/dpkg/alternatives/mpirun", ALTERNATIVE)
    made.file("/etc/ld.so.cache", "cache")
    made.file("/etc/passwd", "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000:Alice:/home/alice:\n")
    made.file(f"{ENVIRONMENT}/lib/python3.11/site-packages/mxnet/__init__.py", "import this\n")
    made.link(f"{ENVIRONMENT}/bin/python", "../../../../../usr/bin/python3.11")
    for place in PLACES:
        made.file(place, planted(place))
    return made


def write(
    node: Node, archive: Path, python: str = sys.executable, **given: object
) -> dict[str, tarfile.TarInfo]:
    """The members of the layer by name. No archive has a secret."""
    node.finish()
    standin = archive.parent / "ansible-standin"
    if not standin.exists():
        ansible_standin(standin)
    arguments = {
        "path": str(archive),
        "name": "localhost/dlperf-mxnet",
        "label": "label",
        "folders": [ENVIRONMENT, "/opt/dlperf/python", "/usr/local/openmpi"],
        "needed": [ENVIRONMENT + "/bin/python", "/usr/bin/mpirun"],
        "root": str(node.root),
    } | given
    environment = {**os.environ, "PYTHONPATH": str(standin), "PYTHONDONTWRITEBYTECODE": "1"}
    done = captured(python, "-c", WRITE, input=json.dumps(arguments), env=environment)
    assert done.returncode == 0, done.stderr
    assert MARK.encode() not in archive.read_bytes()
    with tarfile.open(archive) as outer:
        layer = outer.extractfile("layer.tar")
        assert layer
        data = layer.read()
        manifest = json.load(outer.extractfile("manifest.json"))  # type: ignore[arg-type]
        configuration = json.load(outer.extractfile(manifest[0]["Config"]))  # type: ignore[arg-type]
    assert configuration["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(data).hexdigest()]
    with tarfile.open(fileobj=io.BytesIO(data)) as inner:
        return {member.name: member for member in inner}


@pytest.mark.parametrize("version", ["", "2.7", "3.6", "3.12"])
def test_no_secret_of_a_node_gets_into_its_image(node: Node, tmp_path: Path, version: str) -> None:
    members = write(node, tmp_path / "image.tar", needed(version))
    raw = (tmp_path / "image.tar").read_bytes()
    assert len(PLACES) > 50
    assert [place for place in PLACES if planted(place).encode() in raw] == []
    assert not {place.lstrip("/") for place in PLACES} & set(members)
    assert b"alice" not in raw
    expected = {
        "bin": "usr/bin",
        "etc/alternatives/mpirun": "../../usr/bin/mpirun.openmpi",
        "etc/localtime": "/usr/share/zoneinfo/Etc/UTC",
        "etc/ld.so.cache": "",
        "opt/dlperf/envs/mxnet/bin/python": "../../../../../usr/bin/python3.11",
        "opt/dlperf/envs/mxnet/lib/python3.11/site-packages/mxnet/__init__.py": "",
        "usr/bin/mpirun": "../../etc/alternatives/mpirun",
        "usr/bin/mpirun.openmpi": "",
        "usr/bin/python3.11": "",
        "usr/bin/sh": "",
        "usr/lib/x86_64-linux-gnu/libfoo.so": "libfoo.so.1",
        "usr/lib/x86_64-linux-gnu/libfoo.so.1": "",
    }
    assert {name: members[name].linkname for name in expected} == expected
    assert "bin/sh" not in members


def test_what_was_changed_since_its_package_stays_out(node: Node, tmp_path: Path) -> None:
    node.configuration("/etc/kept.conf", "as shipped\n")
    node.configuration("/etc/mysql/debian.cnf", "password=\n", f"password={MARK}\n")
    node.shipped("/usr/share/tool/defaults").write_text(f"password={MARK}\n")
    # One path of two packages, of which one was diverted.
    node.shipped("/usr/bin/wrapped", "the wrapper\n")
    node.shipped("/usr/bin/wrapped", "the program\n").write_text("the wrapper\n")
    node.file("/usr/bin/wrapped.real", "the program\n")
    node.file("/var/lib/dpkg/diversions", "/usr/bin/wrapped\n/usr/bin/wrapped.real\nwrapper\n")
    # A file that became a link, and a folder that did.
    node.shipped("/usr/share/tool/link").unlink()
    node.link("/usr/share/tool/link", "/root/.netrc")
    node.shipped("/usr/share/moved/file")
    (node.root / "usr/share/moved").rename(node.root / "elsewhere")
    node.link("/usr/share/moved", "../../elsewhere")
    members = write(node, tmp_path / "image.tar")
    assert {"etc/kept.conf", "usr/bin/wrapped", "usr/bin/wrapped.real"} <= set(members)
    assert not {"etc/mysql/debian.cnf", "usr/share/tool/defaults"} & set(members)
    assert members["usr/share/tool/link"].issym()
    assert members["usr/share/moved"].issym()
    assert "usr/share/moved/file" not in members


def test_compiled_modules_come_with_the_source_that_they_are_of(node: Node, tmp_path: Path) -> None:
    folder = "/usr/lib/python3/dist-packages"
    for name in ("kept", "edited", "stale"):
        node.shipped(f"{folder}/{name}.py", f"NAME = {name!r}\n")
    for name in ("edited", "stale"):
        source = node.file(f"{folder}/{name}.py", f"PASSWORD = {MARK!r}\n")
        py_compile.compile(str(source), doraise=True)
    py_compile.compile(f"{node.root}{folder}/kept.py", doraise=True)
    source.write_text("NAME = 'stale'\n")  # as its package has it, but compiled with a password
    members = write(node, tmp_path / "image.tar")
    compiled = {name.split("/")[-1].split(".")[0] for name in members if name.endswith(".pyc")}
    assert compiled == {"kept"}
    assert f"{folder[1:]}/stale.py" in members


def test_only_what_everybody_may_read_is_packed(node: Node, tmp_path: Path) -> None:
    node.shipped("/etc/sudoers", mode=0o440)
    node.shipped("/etc/closed/rules")
    (node.root / "etc/closed").chmod(0o700)
    node.shipped("/usr/bin/su", mode=0o4755)
    node.file(f"{ENVIRONMENT}/token", planted("/token"), mode=0o640)
    node.file(f"{ENVIRONMENT}/private/token", planted("/token"))
    (node.root / ENVIRONMENT[1:] / "private").chmod(0o750)
    members = write(node, tmp_path / "image.tar")
    assert not {"etc/sudoers", "etc/closed/rules"} & set(members)
    assert f"{ENVIRONMENT[1:]}/private/token" not in members
    assert members["usr/bin/su"].mode == 0o755
    assert {(member.uid, member.gid, member.mode & 0o6000) for member in members.values()} == {
        (0, 0, 0)
    }


def test_links_out_of_an_environment_are_not_followed(node: Node, tmp_path: Path) -> None:
    node.link(f"{ENVIRONMENT}/key", "../../../../root/.ssh/id_rsa")
    node.link(f"{ENVIRONMENT}/home", "../../../../root")
    os.mkfifo(node.root / ENVIRONMENT[1:] / "fifo")
    members = write(node, tmp_path / "image.tar")
    assert members[f"{ENVIRONMENT[1:]}/key"].issym()
    assert members[f"{ENVIRONMENT[1:]}/home"].issym()
    assert f"{ENVIRONMENT[1:]}/fifo" not in members


def test_of_the_certificates_only_certificates(node: Node, tmp_path: Path) -> None:
    kept = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    key = f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----\n"
    node.file("/etc/ssl/certs/ca-certificates.crt", kept + key + kept)
    node.link("/etc/ssl/certs/0b1b94ef.0", "Root.pem")
    members = write(node, tmp_path / "image.tar")
    assert members["etc/ssl/certs/ca-certificates.crt"].size == 2 * len(kept)
    assert members["etc/ssl/certs/0b1b94ef.0"].linkname == "Root.pem"


def test_the_same_node_makes_the_same_image_that_only_its_maker_reads(
    node: Node, tmp_path: Path
) -> None:
    first, second = (tmp_path / name for name in ("first.tar", "second.tar"))
    for archive in (first, second):
        write(node, archive)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode & 0o777 == 0o600


def test_a_link_in_the_place_of_the_archive_is_refused(node: Node, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("somebody's\n")
    archive = tmp_path / "image.tar"
    archive.symlink_to(target)
    with pytest.raises(AssertionError, match="File exists"):
        write(node, archive)
    assert target.read_text() == "somebody's\n"


@pytest.mark.parametrize("folder", ["/usr/local", "/opt/openmpi"])
def test_a_program_that_would_be_missing_is_named(node: Node, tmp_path: Path, folder: str) -> None:
    program = f"{folder}/bin/mpirun"
    node.file(program, "built here\n", mode=0o755)
    node.listed.append("/usr/local")
    with pytest.raises(AssertionError, match=f"{program} cannot be included: .*{ENVIRONMENT}"):
        write(node, tmp_path / "image.tar", folders=[ENVIRONMENT, "/usr/local"], needed=[program])


def test_a_build_in_a_folder_of_its_own_is_taken(node: Node, tmp_path: Path) -> None:
    node.listed.append("/usr/local")
    node.file("/usr/local/openmpi/bin/mpirun", "built here\n", mode=0o755)
    needed = ["/usr/local/openmpi/bin/mpirun"]
    members = write(node, tmp_path / "image.tar", needed=needed)
    assert "usr/local/openmpi/bin/mpirun" in members


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to give up")
def test_the_node_is_read_with_the_rights_of_the_user(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root's\n")
    secret.chmod(0o600)
    code = (
        "import os, pwd, sys; from ansible.module_utils import node_image\n"
        "with node_image.rights_of(pwd.getpwnam('nobody')):\n"
        "    print(os.geteuid(), os.getgroups(), end=' ')\n"
        "    try: open(sys.argv[1])\n"
        "    except PermissionError: print('refused', end=' ')\n"
        "print(os.geteuid(), open(sys.argv[1]).read(), end='')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ansible_standin(tmp_path / "ansible"))}
    done = captured(sys.executable, "-c", code, secret, env=environment)
    assert done.returncode == 0, done.stderr
    nobody = pwd.getpwnam("nobody").pw_uid
    assert done.stdout == f"{nobody} [] refused 0 root's\n"
