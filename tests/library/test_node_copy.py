"""The module node_copy: a folder from node to node, unpacked only if it is the right one."""

import os
from pathlib import Path
from typing import Any

import pytest
from executed_modules import HAVE_RUNUSER, ME, call
from standins import program

pytestmark = pytest.mark.skipif(not HAVE_RUNUSER, reason="fetches as another user")

# Another node: its files lie in a folder of its name. Nobody answers for a node without one.
SSH = """\
while [ "$1" = -o ]; do shift 2; done
test -d {nodes}/$1 || {{ echo "no route to $1" >&2; exit 255; }}
exec sh -c "$(printf %s "$2" | sed "s#{here}#{nodes}/$1#")"
"""


class Nodes:
    """node1 has a folder and has packed it; this machine is another node."""

    def __init__(self, folder: Path) -> None:
        self.here, self.nodes = folder / "here", folder / "nodes"
        for node in ("node1", "node2"):
            (self.nodes / node).mkdir(parents=True)
        self.made = self.nodes / "node1/env"
        (self.made / "bin").mkdir(parents=True)
        (self.made / "bin/python").symlink_to("/usr/bin/python3")
        (self.made / "lib.py").write_text("x = 1\n")
        (self.made / "tool").write_text("#!/bin/sh\n")
        (self.made / "tool").chmod(0o755)
        os.utime(self.made / "lib.py", (1_500_000_000, 1_500_000_000))
        archive = str(self.nodes / "node1/env.tar")
        self.told = call("node_copy", path=str(self.made), archive=archive, state="offered")
        ssh = SSH.format(nodes=self.nodes, here=self.here)
        self.path = f"{program(folder / 'ssh', 'ssh', ssh)}:{os.environ['PATH']}"

    def take(self, *sources: str, **changed: Any) -> dict[str, Any]:
        given = {key: self.told[key] for key in ("sha256", "size")}
        places = {"path": str(self.here / "env"), "archive": str(self.here / "env.tar")}
        more = {"state": "taken", "sources": list(sources), "user": ME, "timeout": 2}
        prefix = ["env", f"PATH={self.path}"]
        return call("node_copy", prefix=prefix, **{**places, **given, **more, **changed})


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    tmp_path.chmod(0o755)
    return Nodes(tmp_path)


def test_a_folder_arrives_as_it_was_and_is_offered_to_others(nodes: Nodes) -> None:
    old = nodes.here / "env"
    old.mkdir(parents=True)
    (old / "left").touch()
    assert nodes.take("node1")["taken"]
    assert sorted(path.name for path in old.iterdir()) == ["bin", "lib.py", "tool"]
    assert str((old / "bin/python").readlink()) == "/usr/bin/python3"
    # Python compares the time of a file with the one that is in its compiled file.
    assert (old / "lib.py").stat().st_mtime == 1_500_000_000
    assert (old / "tool").stat().st_mode & 0o777 == 0o755
    archive = nodes.here / "env.tar"
    assert archive.read_bytes() == (nodes.nodes / "node1/env.tar").read_bytes()
    assert archive.stat().st_mode & 0o777 == 0o644
    assert sorted(path.name for path in nodes.here.iterdir()) == ["env", "env.tar"]


def test_the_last_node_keeps_no_archive(nodes: Nodes) -> None:
    assert nodes.take("node1", keep=False)["taken"]
    assert [path.name for path in nodes.here.iterdir()] == ["env"]


def test_the_next_source_gives_what_the_first_cannot(nodes: Nodes) -> None:
    # node2 is there and never gets the archive, node3 cannot be reached.
    result = nodes.take("node2", "node3", "node1")
    assert result["taken"] and result["changed"]
    assert result["refused"] == ["node2: exit status 3", "node3: no route to node3"]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[:-1] + b"x", "node1: the archive is damaged"),
        (lambda data: data[:-512], "node1: the archive is damaged"),
        (lambda data: data + b"x", "node1: it sends more than the expected"),
    ],
)
def test_another_archive_is_never_unpacked(nodes: Nodes, damage: Any, why: str) -> None:
    archive = nodes.nodes / "node1/env.tar"
    archive.write_bytes(damage(archive.read_bytes()))
    (nodes.here / "env").mkdir(parents=True)
    result = nodes.take("node1")
    assert not result["taken"] and not result["changed"]
    assert result["refused"][0].startswith(why)
    assert [path.name for path in nodes.here.rglob("*")] == ["env"]


def test_what_cannot_be_packed_fails_and_offers_nothing(tmp_path: Path) -> None:
    archive = tmp_path / "env.tar"
    result = call("node_copy", path=str(tmp_path / "none"), archive=str(archive), state="offered")
    assert result["failed"]
    assert not archive.exists()
