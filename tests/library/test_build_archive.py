"""build_archive and what it relies on: what it refuses, and that it refuses before it writes."""

import io
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from executed_modules import call
from standins import program


def member(name: str, kind: bytes = tarfile.REGTYPE, mode: int = 0o755, link: str = "") -> Any:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.linkname, info.mtime = kind, mode, link, 1_500_000_000
    return info


def unpack(
    tmp_path: Path, *members: tarfile.TarInfo, cut: int | None = None, **more: Any
) -> dict[str, Any]:
    """Pack the members behind a sound program, and have the module put them in their place."""
    path = tmp_path / "build.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for info in (member("./bin", tarfile.DIRTYPE), member("./bin/program"), *members):
            data = b"content\n" if info.isreg() else b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    if cut is not None:
        path.write_bytes(path.read_bytes()[:cut])
    given = {"archive": str(path), "path": str(tmp_path / "prefix"), "key": "tiny-1_abc", **more}
    return call("build_archive", **given)


HARMFUL = {
    "setuid": (member("./bin/su", mode=0o4755), "setuid"),
    "setgid": (member("./bin/sg", mode=0o2755), "setgid"),
    "setgid folder": (member("./shared", tarfile.DIRTYPE, 0o2755), "setgid"),
    "sticky": (member("./bin/sticky", mode=0o1755), "sticky"),
    "world-writable": (member("./lib.so", mode=0o646), "world-writable"),
    "device": (member("./null", tarfile.CHRTYPE), "neither a file"),
    "disk": (member("./sda", tarfile.BLKTYPE), "neither a file"),
    "FIFO": (member("./pipe", tarfile.FIFOTYPE), "neither a file"),
    "absolute": (member("/etc/cron.d/x"), "outside the archive"),
    "upward": (member("./bin/../../x"), "outside the archive"),
    "line end": (member("./bin/a\nb"), "control character"),
    "twice": (member("bin/program"), "twice"),
    "stamp": (member("./.dlperf-build"), "stamp"),
    "stamp as link": (member("./.dlperf-build", tarfile.SYMTYPE, link="bin/program"), "stamp"),
    "link out": (member("./out", tarfile.SYMTYPE, link="/etc"), "link to '/etc'"),
    "link up": (member("./bin/up", tarfile.SYMTYPE, link="../../x"), "link to '../../x'"),
    "link to a neighbour": (
        member("./near", tarfile.SYMTYPE, link="/PREFIX-other/x"),
        "which is not in",
    ),
    "hard link out": (member("./shadow", tarfile.LNKTYPE, link="/etc/shadow"), "hard link"),
    "hard link to a link": (member("./hard", tarfile.LNKTYPE, link="./later"), "hard link"),
}


@pytest.mark.parametrize("case", HARMFUL)
def test_what_is_not_harmless_is_refused_before_anything_is_written(
    tmp_path: Path, case: str
) -> None:
    bad, said = HARMFUL[case]
    result = unpack(tmp_path, bad)
    assert result["failed"]
    assert said in result["msg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build.tar.gz"]


def test_links_that_leave_by_another_link_are_refused(tmp_path: Path) -> None:
    inward = member("./share/doc/here", tarfile.SYMTYPE, link="../..")
    out = member("./escape", tarfile.SYMTYPE, link="share/doc/here/../etc")
    result = unpack(tmp_path, inward, out)
    assert "'./escape' is a link" in result["msg"]


def test_nothing_lies_below_a_link(tmp_path: Path) -> None:
    link = member("./lib64", tarfile.SYMTYPE, link="bin")
    assert "below" in unpack(tmp_path, link, member("./lib64/x"))["msg"]
    assert "below" in unpack(tmp_path, member("./lib64/x"), link)["msg"]


def test_a_sound_build_belongs_to_root_and_keeps_its_times(tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    prefix.mkdir()
    (prefix / "before").touch()
    (tmp_path / "prefix.dlperf-new").mkdir()
    sound = [
        member("./bin/hard", tarfile.LNKTYPE, link="./bin/program"),
        member("./lib/deep/data", mode=0o664),
        member("./lib/deep/link", tarfile.SYMTYPE, mode=0o777, link="../../bin/program"),
        member("./lib/absolute", tarfile.SYMTYPE, mode=0o777, link=f"{prefix}/bin"),
        member("./lib/dangling", tarfile.SYMTYPE, mode=0o777, link="left/out"),
    ]
    assert unpack(tmp_path, *sound)["changed"]
    assert not (prefix / "before").exists()
    assert (prefix / ".dlperf-build").read_text() == "tiny-1_abc\n"
    assert (prefix / "lib/deep/link").read_text() == "content\n"
    assert (prefix / "bin/hard").samefile(prefix / "bin/program")
    assert (prefix / "lib/absolute/program").exists()
    modes = {
        name: (prefix / name).stat().st_mode & 0o7777
        for name in ("bin", "bin/program", "lib/deep", "lib/deep/data", ".dlperf-build", ".")
    }
    assert modes == {
        "bin": 0o755,
        "bin/program": 0o755,
        "lib/deep": 0o755,
        "lib/deep/data": 0o644,
        ".dlperf-build": 0o644,
        ".": 0o755,
    }
    for name in ("bin", "bin/program", "lib/deep/data", ".dlperf-build"):
        assert (prefix / name).stat().st_mtime == 1_500_000_000
        assert (prefix / name).stat().st_uid == os.geteuid()


def test_an_archive_that_was_cut_off_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "prefix").mkdir()
    (tmp_path / "prefix/before").touch()
    assert unpack(tmp_path, cut=100)["msg"].startswith("Cannot ")
    assert (tmp_path / "prefix/before").exists()
    assert not (tmp_path / "prefix.dlperf-new").exists()


def test_check_mode_judges_and_writes_nothing(tmp_path: Path) -> None:
    assert unpack(tmp_path, check=True)["changed"]
    assert not (tmp_path / "prefix").exists()
    assert unpack(tmp_path, member("./bin/su", mode=0o4755), check=True)["failed"]


def test_a_place_that_others_may_write_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "everybodys"
    shared.mkdir()
    shared.chmod(0o777)
    for place in (shared / "prefix", shared / "not/there/prefix"):
        result = unpack(tmp_path, path=str(place))
        assert f"{shared} is world-writable" in result["msg"]
    (tmp_path / "link").symlink_to(shared)
    assert "is world-writable" in unpack(tmp_path, path=str(tmp_path / "link/prefix"))["msg"]
    assert list(shared.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="makes what belongs to another user")
class TestWhatAnotherUserOwns:
    def theirs(self, path: Path) -> Path:
        path.mkdir()
        os.chown(path, 64321, 64321)
        return path

    def test_root_unpacks_nothing_there(self, tmp_path: Path) -> None:
        home = self.theirs(tmp_path / "home")
        result = unpack(tmp_path, path=str(home / "prefix"))
        assert f"{home} belongs to user id 64321" in result["msg"]

    def test_a_group_without_members_but_root_may_write(self, tmp_path: Path) -> None:
        shared = tmp_path / "everybodys"
        shared.mkdir()
        for group, trusted in ((1, False), (64321, True)):  # daemon has a user, the other none
            os.chown(shared, 0, group)
            shared.chmod(0o2775)
            result = unpack(tmp_path, path=str(shared / "prefix"))
            assert bool(result.get("changed")) == trusted
            assert trusted or f"{shared} is writable by daemon" in result["msg"]
        assert (shared / "prefix").stat().st_gid == 0

    def test_root_writes_and_removes_no_file_there(self, tmp_path: Path) -> None:
        etc = tmp_path / "etc"
        etc.mkdir()
        (etc / "storage.conf").write_text("root's\n")
        home = self.theirs(tmp_path / "home")
        (home / "containers").symlink_to(etc)
        for state in ("absent", "blank", "file", "directory"):
            entry = {"path": str(home / "containers/storage.conf"), "state": state}
            result = call("node_files", entries=[entry | {"owner": "nobody", "mode": "0777"}])
            assert f"{home} belongs to user id 64321" in result["msg"]
        assert (etc / "storage.conf").read_text() == "root's\n"
        assert (etc / "storage.conf").stat().st_uid == 0

    def test_a_tree_of_theirs_is_removed_and_its_links_are_not_followed(
        self, tmp_path: Path
    ) -> None:
        kept = tmp_path / "kept"
        kept.mkdir()
        (kept / "file").touch()
        tree = self.theirs(tmp_path / "tree")
        (tree / "link").symlink_to(kept)
        os.mkfifo(tree / "pipe")
        (tmp_path / "other").symlink_to(kept)
        entries = [{"path": str(tmp_path / name), "state": "absent"} for name in ("tree", "other")]
        assert call("node_files", entries=entries)["changed"]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["kept"]
        assert (kept / "file").exists()

    def test_root_starts_no_interpreter_of_theirs(self, tmp_path: Path) -> None:
        folder = self.theirs(tmp_path / "conda")
        marker = tmp_path / "started"
        python = program(folder, "python", f"touch {marker}") / "python"
        given = {"interpreter": str(python), "path": str(tmp_path / "env")}
        said = f"{folder} belongs to user id 64321"
        assert said in call("python_environment", **given)["msg"]
        assert said in call("node_facts", interpreter=str(python))["msg"]
        assert not marker.exists()


def test_a_fifo_is_refused_and_waited_for_by_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hosts")
    entry = {"path": str(tmp_path / "hosts"), "state": "block", "content": "x"}
    assert "hosts: not a regular file of at most" in call("node_files", entries=[entry])["msg"]
