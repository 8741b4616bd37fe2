"""A mirror made by the real apt, gpg and pip out of a tiny archive and a tiny index of this test,
and what apt itself makes of the mirror: signatures hold, a changed byte does not.

The payload (packages and wheels) is a stand-in of a few bytes; tools, signatures, digests and
errors are real. Nothing here uses the network.
"""

from __future__ import annotations

import dataclasses
import fcntl
import shutil
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path
from queue import Queue

import pytest
from mirror_site import PACKAGES, POOL, Site, lost, publish, site_in
from refusals import refusal
from standin_repository import Standin, needs_apt
from tiny_index import only_this_index, wheel

from dlperf_runner.bundle import apt, archives
from dlperf_runner.bundle import manifest as manifests
from dlperf_runner.bundle.manifest import digest
from dlperf_runner.bundle.mirror import make
from dlperf_runner.bundle.wheels import RequirementsFile

pytestmark = needs_apt
SSH = f"apt/{POOL}/ssh_1%3a9.2_amd64.deb"
MPI = f"apt/{POOL}/mpi_4.1_amd64.deb"
DISTS = "apt/dists/bookworm"


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`work/` with an archive, an index and locks; and the same with a mirror made of them, as
    copies that each test starts from: making keys and mirrors takes seconds."""
    folder = tmp_path_factory.mktemp("bundle")
    work = folder / "work"
    index = work / "index"
    index.mkdir(parents=True)
    publish(work, *PACKAGES)
    # One key for both.
    shutil.copytree(work / "archive-key", work / "cache/mirror-key")
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
    """The mirror is whole."""
    yield from start(upstream, "made", monkeypatch)


def change_byte(path: Path, find: bytes | None = None) -> None:
    content = bytearray(path.read_bytes())
    content[content.index(find) if find else len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def test_made_whole_then_left_alone_and_its_key_is_private(site: Site) -> None:
    key = site.settings.cache / "mirror-key"
    shutil.rmtree(key)
    first = site.make()
    debs = [p.relative_to(site.mirror).as_posix() for p in site.mirror.rglob("*.deb")]
    assert sorted(debs) == [f"apt/{POOL}/libmpi_4.1_amd64.deb", MPI, SSH]
    by_name = {entry.name: entry for entry in first.manifest.files}
    assert by_name["ssh"].version == "1:9.2"
    assert by_name["ssh"].why == "mpi > ssh"
    assert by_name["tinynet"].why == "tinynet==1.9 in env.txt"
    assert {entry.path for entry in first.manifest.files} | {"manifest.json"} == set(site.files())
    assert (key / "secret.asc").stat().st_mode & 0o777 == 0o600
    assert key.stat().st_mode & 0o777 == 0o700
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in site.mirror.rglob("*.asc"))

    before = site.files()
    assert not site.make().changed
    assert site.files() == before
    again = site.make(refresh=True).manifest
    assert again.key_fingerprint == first.manifest.key_fingerprint
    release = (site.mirror / f"{DISTS}/Release").read_text()
    listed = {line.split()[-1] for line in release.splitlines() if line.startswith(" ")}
    assert listed == {f"main/binary-amd64/Packages{suffix}" for suffix in ("", ".gz", ".xz")}
    assert "Suite: bookworm\n" in release


# ---- what a node makes of it


def test_a_node_verifies_the_signature_and_installs_the_closure(made: Site) -> None:
    node = made.node()
    assert not apt.update(node)
    chosen = apt.resolve(node, ["mpi"], where="test")
    assert {choice.name for choice in chosen} == {"mpi", "libmpi", "ssh"}
    assert not lost(node, chosen, made.folder / "node")
    for choice in chosen:
        (made.folder / "node" / choice.filename).unlink()
    change_byte(made.mirror / MPI)
    (damaged,) = lost(node, chosen, made.folder / "node").items()
    assert damaged[0] == "mpi" and "is another file" in damaged[1]
    # Then apt takes Release with Release.gpg.
    (made.mirror / f"{DISTS}/InRelease").unlink()
    assert not apt.update(made.node())


def in_inline_release(site: Site) -> None:
    change_byte(site.mirror / f"{DISTS}/InRelease", b"Origin")


def in_every_packages_file(site: Site) -> None:
    for path in (site.mirror / f"{DISTS}/main/binary-amd64").iterdir():
        change_byte(path)


def signed_by_another_key(site: Site) -> None:
    release = (site.mirror / f"{DISTS}/Release").read_bytes()
    signed = archives.sign(release, site.folder / "another-key")
    (site.mirror / f"{DISTS}/InRelease").write_bytes(signed.inline)


def not_signed(site: Site) -> None:
    for name in ("InRelease", "Release.gpg"):
        (site.mirror / DISTS / name).unlink()


@pytest.mark.parametrize(
    "tamper", [in_inline_release, in_every_packages_file, signed_by_another_key, not_signed]
)
def test_a_node_refuses_a_tampered_index_until_it_is_made_anew(
    made: Site, tamper: Callable[[Site], None]
) -> None:
    tamper(made)
    assert apt.update(made.node())
    made.make()
    assert not apt.update(made.node())


# ---- repaired, completed, changed


def test_damage_is_repaired_and_nothing_else_is_fetched(made: Site) -> None:
    (made.mirror / MPI).write_bytes((made.mirror / MPI).read_bytes()[:-10])
    (altered,) = (made.mirror / "wheels").glob("tinynet-*.whl")
    change_byte(altered)
    (made.mirror / f"apt/{POOL}/stray.deb").write_text("not ours")
    outcome = made.make()
    assert sorted(outcome.fetched) == [MPI, f"wheels/{altered.name}"]
    assert sorted(outcome.repaired) == sorted(outcome.fetched)
    assert outcome.removed == (f"apt/{POOL}/stray.deb",)
    assert not made.make().changed


@pytest.mark.parametrize("manifest", [None, "", '{"format": 1}'])
def test_a_run_that_was_cut_off_is_completed(made: Site, manifest: str | None) -> None:
    (made.mirror / "manifest.json").unlink()
    if manifest is not None:
        (made.mirror / "manifest.json").write_text(manifest)
    (made.mirror / f"{DISTS}/InRelease").unlink()
    (made.mirror / SSH).write_text("half")
    assert made.make().fetched == (SSH,)
    assert not made.make().changed


def test_what_is_needed_no_longer_or_newly_is_noticed(made: Site) -> None:
    publish(made.folder, *PACKAGES, Standin("ssh", "1:9.3"))
    assert not made.make().changed
    outcome = made.make(refresh=True)
    assert outcome.fetched == (SSH.replace("9.2", "9.3"),)
    assert outcome.removed == (SSH,)

    def releases(paths: tuple[str, ...]) -> list[str]:
        return [Path(path).name.split("-")[1] for path in paths]

    (made.folder / "env.txt").write_text(wheel(made.folder / "index", "tinynet", "2.0"))
    outcome = made.make()
    assert (releases(outcome.fetched), releases(outcome.removed)) == (["2.0"], ["1.9"])

    fewer = made.needs.requirements[:1]
    made.needs = dataclasses.replace(made.needs, packages={"ssh": ("ssh",)}, requirements=fewer)
    outcome = made.make()
    names = [Path(path).name.split("_")[0].split("-")[0] for path in outcome.removed]
    assert (outcome.fetched, names) == ((), ["libmpi", "mpi", "tinynet"])


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
    wanted = RequirementsFile("sdist.txt", "tinyvod", "sdist")
    site.needs = dataclasses.replace(site.needs, requirements=(wanted,))
    assert "wheels/tinyvod-0.28.tar.gz" in site.make().fetched
    assert (site.mirror / "wheels/tinyvod-0.28.tar.gz").read_bytes() == path.read_bytes()


def test_what_only_slurm_needs_is_left_out_while_the_archive_lacks_it(site: Site) -> None:
    packages = {"openmpi": ("mpi",), "slurm": ("mpi", "unrelated")}
    site.needs = dataclasses.replace(site.needs, packages=packages)
    file = site.folder / "archive" / POOL / "unrelated_1_amd64.deb"
    content = file.read_bytes()
    file.unlink()
    first = site.make()
    (missing,) = first.missing
    assert (missing.name, missing.wanted_by) == ("unrelated 1", "slurm")
    assert file.name in missing.reason
    assert [skipped.environment for skipped in first.manifest.skipped] == ["unrelated 1"]
    node = site.node()
    assert not apt.update(node)
    assert set(apt.names(node)) == {"mpi", "libmpi", "ssh"}

    file.write_bytes(content)
    second = site.make()
    assert second.fetched == (f"apt/{POOL}/{file.name}",)
    assert (second.missing, second.manifest.skipped) == ((), ())
    assert not site.make().changed


# ---- refused


def an_unknown_package(site: Site) -> None:
    site.needs = dataclasses.replace(site.needs, packages={"openmpi": ("mpi", "nompi")})


def a_package_that_the_archive_lost(site: Site) -> None:
    (site.folder / "archive" / POOL / "libmpi_4.1_amd64.deb").unlink()


def a_package_that_is_not_what_the_index_says(site: Site) -> None:
    change_byte(site.folder / "archive" / POOL / "libmpi_4.1_amd64.deb")


def an_archive_with_a_wrong_signature(site: Site) -> None:
    change_byte(site.folder / "archive/dists/tiny/InRelease", b"Origin")


def an_archive_that_does_not_answer(site: Site) -> None:
    shutil.rmtree(site.folder / "archive/dists")


def a_wheel_with_another_digest(site: Site) -> None:
    (site.folder / "env.txt").write_text(f"tinynet==1.9 --hash=sha256:{'0' * 64}\n")


def a_wheel_that_no_index_has(site: Site) -> None:
    (site.folder / "env.txt").write_text(f"nosuch==1.0 --hash=sha256:{'0' * 64}\n")


def a_lock_that_does_not_exist(site: Site) -> None:
    (site.folder / "env.txt").unlink()


def a_file_instead_of_the_folder(site: Site) -> None:
    site.mirror.write_text("not a folder")


@pytest.mark.parametrize(
    ("spoil", "messages"),
    [
        (an_unknown_package, ["stack cpu, apt_packages", "Unable to locate package nompi"]),
        (
            a_package_that_the_archive_lost,
            ["could not be fetched: libmpi 4.1, for openmpi (found is not at", "libmpi_4.1_"],
        ),
        (a_package_that_is_not_what_the_index_says, ["libmpi_4.1_", "is another file"]),
        (an_archive_with_a_wrong_signature, ["could not be fetched and verified"]),
        (an_archive_that_does_not_answer, ["could not be fetched and verified"]),
        (a_wheel_with_another_digest, ["env.txt", "DO NOT MATCH THE HASHES"]),
        (a_wheel_that_no_index_has, ["No matching distribution found for nosuch==1.0"]),
        (a_lock_that_does_not_exist, ["env.txt"]),
        (a_file_instead_of_the_folder, ["could not be written"]),
    ],
)
def test_an_error_names_what_failed(
    site: Site, spoil: Callable[[Site], None], messages: list[str]
) -> None:
    spoil(site)
    text = refusal(site.make)
    assert all(message in text for message in messages), text
    assert manifests.read(site.mirror) is None


def test_two_runs_do_not_work_on_one_folder(site: Site) -> None:
    site.mirror.mkdir()
    with (site.mirror / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another run" in refusal(site.make)
    site.make()


def test_a_run_for_another_folder_waits_for_the_package_lists(site: Site) -> None:
    """apt would refuse to read them: two folders of a release share a directory of lists."""
    lines: Queue[str] = Queue()
    with (site.settings.cache / ".lock").open("w") as lock, ThreadPoolExecutor(1) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = pool.submit(make, site.needs, site.settings, lines.put)
        try:
            while "waiting for another run" not in lines.get(timeout=60):
                pass
            assert not run.done()
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)
        assert run.result().changed
