"""A mirror made by the real apt, gpg and pip out of a tiny archive and a tiny index of this test,
and what apt itself makes of the mirror: signatures hold, a changed byte does not.

The payload (packages and wheels) is a stand-in of a few bytes; tools, signatures, digests and
errors are real. Nothing here uses the network.
"""

from __future__ import annotations

import dataclasses
import shutil
import tarfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest
from mirror_site import PACKAGES, POOL, Site, publish, site_in
from standin_repository import Standin, needs_apt
from tiny_index import only_this_index, wheel

from dlperf_runner.bundle import apt, openpgp
from dlperf_runner.bundle import manifest as manifests
from dlperf_runner.bundle.manifest import digest
from dlperf_runner.bundle.wheels import RequirementsFile
from dlperf_runner.core.errors import UserError

pytestmark = needs_apt


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`work/` with an archive, an index and locks; and the same with a mirror made of them, as
    copies that each test starts from: making keys and mirrors takes seconds."""
    folder = tmp_path_factory.mktemp("bundle")
    work = folder / "work"
    index = work / "index"
    index.mkdir(parents=True)
    publish(work, *PACKAGES)
    (work / "env.txt").write_text(wheel(index, "tinynet", "1.9"))
    (work / "uv.txt").write_text(wheel(index, "tinyuv", "0.1"))
    shutil.copytree(work, folder / "fresh")
    with pytest.MonkeyPatch.context() as patch:
        only_this_index(patch, index)
        site_in(work).make()
    work.rename(folder / "made")
    return folder


def start(folder: Path, state: str, patch: pytest.MonkeyPatch) -> Iterator[Site]:
    work = folder / "work"
    shutil.copytree(folder / state, work)
    only_this_index(patch, work / "index")
    yield site_in(work)
    shutil.rmtree(work)


@pytest.fixture
def site(upstream: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Nothing made yet."""
    yield from start(upstream, "fresh", monkeypatch)


@pytest.fixture
def made(upstream: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The mirror is there, whole."""
    yield from start(upstream, "made", monkeypatch)


def test_made_whole_then_left_alone(site: Site) -> None:
    first = site.make()
    assert sorted(p.relative_to(site.mirror).as_posix() for p in site.mirror.rglob("*.deb")) == [
        f"apt/{POOL}/libmpi_4.1_amd64.deb",
        f"apt/{POOL}/mpi_4.1_amd64.deb",
        f"apt/{POOL}/ssh_1%3a9.2_amd64.deb",
    ]
    by_name = {entry.name: entry for entry in first.manifest.files}
    assert by_name["ssh"].version == "1:9.2"
    assert by_name["ssh"].why == "mpi > ssh"
    assert by_name["tinynet"].why == "tinynet==1.9 in env.txt"
    assert {entry.path for entry in first.manifest.files} | {"manifest.json"} == set(site.files())

    before = site.files()
    second = site.make()
    assert not second.changed
    assert site.files() == before


def test_the_key_is_private_and_stays_the_same(site: Site) -> None:
    fingerprint = site.make().manifest.key_fingerprint
    secret = site.settings.cache / "mirror-key/secret.asc"
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in site.mirror.rglob("*.asc"))
    assert site.make(refresh=True).manifest.key_fingerprint == fingerprint


def test_a_node_verifies_the_signature_and_installs_the_closure(made: Site) -> None:
    node = made.node()
    assert not apt.update(node)
    chosen = apt.resolve(node, ["mpi"], where="test")
    assert {choice.name for choice in chosen} == {"mpi", "libmpi", "ssh"}
    assert apt.download(node, chosen, made.folder / "node") == {}


def change_byte(path: Path, find: bytes | None = None) -> None:
    content = bytearray(path.read_bytes())
    position = content.index(find) if find else len(content) // 2
    content[position] ^= 1
    path.write_bytes(bytes(content))


def remove_inline_signature(site: Site) -> None:
    """Then apt takes Release with Release.gpg."""
    (site.mirror / "apt/dists/bookworm/InRelease").unlink()


def in_inline_release(site: Site) -> None:
    change_byte(site.mirror / "apt/dists/bookworm/InRelease", b"Origin")


def in_detached_release(site: Site) -> None:
    remove_inline_signature(site)
    change_byte(site.mirror / "apt/dists/bookworm/Release", b"Origin")


def in_every_packages_file(site: Site) -> None:
    for path in (site.mirror / "apt/dists/bookworm/main/binary-amd64").iterdir():
        change_byte(path)


def signed_by_another_key(site: Site) -> None:
    release = (site.mirror / "apt/dists/bookworm/Release").read_bytes()
    signed = openpgp.sign(release, site.folder / "archive-key")
    (site.mirror / "apt/dists/bookworm/InRelease").write_bytes(signed.inline)


def not_signed(site: Site) -> None:
    remove_inline_signature(site)
    (site.mirror / "apt/dists/bookworm/Release.gpg").unlink()


def test_the_detached_signature_serves_as_well(made: Site) -> None:
    remove_inline_signature(made)
    assert not apt.update(made.node())


@pytest.mark.parametrize(
    "tamper",
    [
        in_inline_release,
        in_detached_release,
        in_every_packages_file,
        signed_by_another_key,
        not_signed,
    ],
)
def test_a_node_refuses_a_tampered_index(made: Site, tamper: Callable[[Site], None]) -> None:
    tamper(made)
    assert apt.update(made.node())


def test_a_node_refuses_a_changed_package(made: Site) -> None:
    node = made.node()
    assert not apt.update(node)
    change_byte(made.mirror / f"apt/{POOL}/mpi_4.1_amd64.deb")
    chosen = [c for c in apt.resolve(node, ["mpi"], where="test") if c.name == "mpi"]
    (reason,) = apt.download(node, chosen, made.folder / "node").values()
    assert "mpi_4.1_amd64.deb" in reason


def test_damage_is_found_and_repaired_and_nothing_else_is_fetched(made: Site) -> None:
    cut = made.mirror / f"apt/{POOL}/mpi_4.1_amd64.deb"
    cut.write_bytes(cut.read_bytes()[:-10])
    (altered,) = (made.mirror / "wheels").glob("tinynet-*.whl")
    change_byte(altered)
    (made.mirror / f"apt/{POOL}/stray.deb").write_text("not ours")
    outcome = made.make()
    assert sorted(outcome.fetched) == [f"apt/{POOL}/mpi_4.1_amd64.deb", f"wheels/{altered.name}"]
    assert sorted(outcome.repaired) == sorted(outcome.fetched)
    assert outcome.removed == (f"apt/{POOL}/stray.deb",)
    assert not made.make().changed
    assert not apt.update(made.node())


def test_a_tampered_index_is_made_anew(made: Site) -> None:
    in_inline_release(made)
    made.make()
    assert not apt.update(made.node())


@pytest.mark.parametrize("manifest", [None, "", "{", '{"format": 1}'])
def test_a_run_that_was_cut_off_is_completed(made: Site, manifest: str | None) -> None:
    (made.mirror / "manifest.json").unlink()
    if manifest is not None:
        (made.mirror / "manifest.json").write_text(manifest)
    (made.mirror / "apt/dists/bookworm/InRelease").unlink()
    (made.mirror / f"apt/{POOL}/ssh_1%3a9.2_amd64.deb").unlink()
    (made.mirror / ".partial").mkdir()
    (made.mirror / ".partial/libmpi_4.1_amd64.deb").write_text("half")
    outcome = made.make()
    assert outcome.fetched == (f"apt/{POOL}/ssh_1%3a9.2_amd64.deb",)
    assert not (made.mirror / ".partial").exists()
    assert not made.make().changed


def test_what_is_no_longer_needed_is_removed(made: Site) -> None:
    made.needs = dataclasses.replace(
        made.needs, packages={"ssh": ("ssh",)}, requirements=made.needs.requirements[:1]
    )
    outcome = made.make()
    assert outcome.fetched == ()
    names = [Path(path).name.split("_")[0].split("-")[0] for path in outcome.removed]
    assert names == ["libmpi", "mpi", "tinynet"]


def test_refresh_takes_a_newer_version_and_drops_the_old(made: Site) -> None:
    publish(made.folder, *PACKAGES, Standin("ssh", "1:9.3"))
    assert not made.make().changed
    outcome = made.make(refresh=True)
    assert outcome.fetched == (f"apt/{POOL}/ssh_1%3a9.3_amd64.deb",)
    assert outcome.removed == (f"apt/{POOL}/ssh_1%3a9.2_amd64.deb",)


def test_a_changed_lock_is_noticed(made: Site) -> None:
    (made.folder / "env.txt").write_text(wheel(made.folder / "index", "tinynet", "2.0"))
    outcome = made.make()
    assert [Path(path).name.split("-")[1] for path in outcome.fetched] == ["2.0"]
    assert [Path(path).name.split("-")[1] for path in outcome.removed] == ["1.9"]


def test_an_sdist_is_kept_as_it_is(site: Site) -> None:
    path = site.folder / "index/tinyvod-0.28.tar.gz"
    content = b"Metadata-Version: 2.1\nName: tinyvod\nVersion: 0.28\n"
    backend = (
        b"def prepare_metadata_for_build_wheel(folder, settings=None):\n"
        b"    import os, shutil\n"
        b"    os.mkdir(os.path.join(folder, 'tinyvod-0.28.dist-info'))\n"
        b"    shutil.copy('PKG-INFO', os.path.join(folder, 'tinyvod-0.28.dist-info/METADATA'))\n"
        b"    return 'tinyvod-0.28.dist-info'\n"
        b"def build_wheel(*args): raise SystemExit('not built here')\n"
    )
    project = b"[build-system]\nrequires = []\nbuild-backend = 'b'\nbackend-path = ['.']\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, data in {"PKG-INFO": content, "b.py": backend, "pyproject.toml": project}.items():
            member = tarfile.TarInfo(f"tinyvod-0.28/{name}")
            member.size = len(data)
            archive.addfile(member, BytesIO(data))
    (site.folder / "sdist.txt").write_text(f"tinyvod==0.28 --hash=sha256:{digest(path)}\n")
    site.needs = dataclasses.replace(
        site.needs, requirements=(RequirementsFile("sdist.txt", "tinyvod", "sdist"),)
    )
    outcome = site.make()
    assert "wheels/tinyvod-0.28.tar.gz" in outcome.fetched
    assert (site.mirror / "wheels/tinyvod-0.28.tar.gz").read_bytes() == path.read_bytes()


def fails(site: Site) -> str:
    before = manifests.read(site.mirror)
    with pytest.raises(UserError) as caught:
        site.make()
    assert manifests.read(site.mirror) == before
    return str(caught.value)


def test_an_unknown_package_is_named(site: Site) -> None:
    site.needs = dataclasses.replace(site.needs, packages={"openmpi": ("mpi", "nompi")})
    message = fails(site)
    assert "stack cpu, apt_packages" in message
    assert "Unable to locate package nompi" in message


def test_a_package_that_the_archive_lost_is_named(site: Site) -> None:
    (site.folder / "archive" / POOL / "libmpi_4.1_amd64.deb").unlink()
    message = fails(site)
    assert "could not be fetched: libmpi 4.1, for openmpi (found Failed to fetch" in message
    assert "libmpi_4.1_amd64.deb" in message


def test_what_only_slurm_needs_is_left_out_while_the_archive_lacks_it(site: Site) -> None:
    site.needs = dataclasses.replace(
        site.needs, packages={"openmpi": ("mpi",), "slurm": ("mpi", "unrelated")}
    )
    lost = site.folder / "archive" / POOL / "unrelated_1_amd64.deb"
    content = lost.read_bytes()
    lost.unlink()
    first = site.make()
    (missing,) = first.missing
    assert (missing.name, missing.wanted_by) == ("unrelated 1", "slurm")
    assert lost.name in missing.reason
    assert [skipped.environment for skipped in first.manifest.skipped] == ["unrelated 1"]
    node = site.node()
    assert not apt.update(node)
    assert len(apt.resolve(node, ["mpi"], where="test")) == 3
    with pytest.raises(UserError, match="Unable to locate package unrelated"):
        apt.resolve(node, ["unrelated"], where="test")

    lost.write_bytes(content)
    second = site.make()
    assert second.fetched == (f"apt/{POOL}/{lost.name}",)
    assert (second.missing, second.manifest.skipped) == ((), ())
    assert not site.make().changed


def test_a_package_that_is_not_what_the_index_says_is_refused(site: Site) -> None:
    change_byte(site.folder / "archive" / POOL / "libmpi_4.1_amd64.deb")
    assert "libmpi" in fails(site)


def test_an_archive_with_a_wrong_signature_is_refused(site: Site) -> None:
    change_byte(site.folder / "archive/dists/tiny/InRelease", b"Origin")
    assert "could not be fetched and verified" in fails(site)


def test_an_archive_that_is_not_there_is_refused(site: Site) -> None:
    shutil.rmtree(site.folder / "archive/dists")
    assert "could not be fetched and verified" in fails(site)


def test_a_wheel_with_another_digest_is_refused(site: Site) -> None:
    (site.folder / "env.txt").write_text(f"tinynet==1.9 --hash=sha256:{'0' * 64}\n")
    message = fails(site)
    assert "env.txt" in message
    assert "DO NOT MATCH THE HASHES" in message


def test_a_wheel_that_no_index_has_is_named(site: Site) -> None:
    (site.folder / "env.txt").write_text(f"nosuch==1.0 --hash=sha256:{'0' * 64}\n")
    assert "No matching distribution found for nosuch==1.0" in fails(site)


def test_a_missing_lock_is_named(site: Site) -> None:
    (site.folder / "env.txt").unlink()
    assert "env.txt" in fails(site)


def test_two_runs_do_not_work_on_one_folder(site: Site) -> None:
    import fcntl

    site.mirror.mkdir()
    with (site.mirror / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another run" in fails(site)
    site.make()


def test_a_file_where_the_folder_should_be(site: Site) -> None:
    site.mirror.write_text("not a folder")
    assert "could not be written" in fails(site)
