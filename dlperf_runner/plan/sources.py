"""Makes one reproducible tar of a workload's source on the controller.

`builtin` sources are files of this repository. An `upstream` source is a part of another
repository at a fixed commit, with the declared patches. The result is
`.cache/sources/<workload>-<source>-<digest>.tar`. The digest covers everything that goes into the
tar. Each tar is therefore made only once and needs no network afterwards. Only git uses the
network.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..catalog.reader import Catalog, folder_of
from ..catalog.source import Patch, Source, UpstreamSource
from ..catalog.types import fill
from ..core import paths
from ..core.errors import UserError
from ..core.files import read_bytes, read_text, write_whole
from ..core.node import ENVIRONMENTS, SOURCES

# Git hooks set these variables. They would make git use the repository of the hook.
_OTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
PLAIN, EXECUTABLE, SYMLINK, SUBMODULE = "100644", "100755", "120000", "160000"


@dataclass(frozen=True)
class File:
    """One file of a source. `mode` is the file mode in git."""

    path: str
    content: bytes
    mode: str = PLAIN


def _repository(source: UpstreamSource, mirror: str, cache: Path) -> Path:
    """A git repository on this machine that contains the commit."""
    if "://" in mirror or re.match(r"[^/]+@[^/]+:", mirror):
        return _fetched(source, f"{mirror.rstrip('/')}/{source.repository}", cache)
    return _mirrored(source, Path(mirror))


def _files(path: Path, source: UpstreamSource) -> list[File]:
    """All files that the source takes from a repository. Reads only their objects, because a
    partial clone may lack others."""
    listing = git(path, "ls-tree", "-rz", "--full-tree", source.commit, "--", *source.taken)
    if listing.returncode != 0:
        problem = f"git cannot read {source.repository} at {source.commit[:12]}"
        raise UserError(f"{problem}: {reason_of(listing.stderr)}", where=str(path))
    entries = []
    for line in listing.stdout.split(b"\0"):
        if line:
            description, _, place = line.partition(b"\t")
            mode, _, name = description.decode().split(" ")
            entries.append((os.fsdecode(place), mode, name))
    for directory in source.taken:
        if not any(PurePosixPath(p).is_relative_to(directory) for p, _, _ in entries):
            problem = f"{source.repository} does not have this directory at {source.commit[:12]}"
            raise UserError(problem, found=directory)
    entries = [entry for entry in entries if entry[1] != SUBMODULE]
    contents = _contents(path, source, entries)
    return [File(p, text, mode) for (p, mode, _), text in zip(entries, contents, strict=True)]


def _contents(
    repository: Path, source: UpstreamSource, entries: Sequence[tuple[str, str, str]]
) -> list[bytes]:
    names = "".join(f"{name}\n" for _, _, name in entries).encode()
    batch = git(repository, "cat-file", "--batch", stdin=names)
    stream, contents = io.BytesIO(batch.stdout), []
    for path, _, name in entries:
        header = stream.readline().split()
        if len(header) != 3 or header[1] != b"blob":
            raise UserError(
                f"the copy of {source.repository} lacks {path} at {source.commit[:12]}",
                where=str(repository),
                expected=f"the object {name}",
                found=reason_of(batch.stderr) or "a partial clone",
                hint="create the mirror with a full `git clone --mirror`",
            )
        contents.append(stream.read(int(header[2])))
        stream.readline()
    return contents


def _mirrored(source: UpstreamSource, mirror: Path) -> Path:
    owner, name = source.repository.split("/")
    candidates = [
        mirror / owner / name,
        mirror / owner / f"{name}.git",
        mirror / f"{owner}+{name}" / "repo",
    ]
    for path in candidates:
        if path.is_dir():
            if not _has_commit(path, source.commit):
                raise UserError(
                    f"the mirror lacks the required commit of {source.repository}",
                    where=str(path),
                    expected=source.commit,
                )
            return path
    raise UserError(
        f"{source.repository} not found in the source mirror",
        where=f"--mirror {mirror}",
        expected=f"one of {', '.join(str(path.relative_to(mirror)) for path in candidates)}",
        found="none of them" if mirror.is_dir() else "the directory does not exist",
    )


def _fetched(source: UpstreamSource, url: str, cache: Path) -> Path:
    """A bare repository in the cache that contains the commit. Fetches the commit if needed."""
    path = cache / "git" / source.repository.replace("/", "+")
    if path.is_dir() and _has_commit(path, source.commit):
        return path
    path.mkdir(parents=True, exist_ok=True)
    fetch = ("fetch", "--quiet", "--no-tags", "--depth=1")
    steps = (
        ("init", "--quiet", "--bare"),
        ("config", "remote.origin.url", url),
        # Git fetches files when they are read, because only one directory is usually needed.
        ("config", "remote.origin.promisor", "true"),
        (*fetch, "--filter=blob:none", "origin", source.commit),
    )
    for step in steps:
        done = git(path, *step)
        if done.returncode != 0:
            break
    if done.returncode != 0 and step[0] == "fetch":
        # Some servers do not support fetching a single commit or a filter. Fetch all refs instead.
        done = git(path, "fetch", "--quiet", "origin", "+refs/*:refs/*")
    if done.returncode != 0 or not _has_commit(path, source.commit):
        raise UserError(
            f"git cannot fetch {source.repository}: {reason_of(done.stderr) or 'commit not found'}",
            where=url,
            expected=f"the commit {source.commit}",
            hint="at an air-gapped site, set a directory of git mirrors: --mirror DIR, "
            "or dlperf_source_mirror in the inventory",
        )
    return path


def _has_commit(path: Path, commit: str) -> bool:
    return git(path, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def git(path: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run git on a repository. It never asks for a password. Repositories of other users, such as
    shared mirrors, are safe: it reads only objects and runs no hooks and no configured commands."""
    environment = {
        **{name: value for name, value in os.environ.items() if name not in _OTHER_REPOSITORY},
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C",
    }
    real = path.resolve()
    safe = [f"safe.directory={place}" for place in (real, real / ".git")]
    argv = ["git", "-c", safe[0], "-c", safe[1], "-C", str(real), *arguments]
    try:
        return subprocess.run(argv, input=stdin, env=environment, capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError("git is not installed", hint="apt-get install git") from None


def reason_of(stderr: bytes) -> str:
    """The line of git's output with the cause: the first fatal line, or else the last line."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    return next((line for line in lines if line.startswith("fatal:")), lines[-1] if lines else "")


DEFAULT_MIRROR = "https://github.com"

# Part of every digest. Increase it when the way tars are made changes, to ignore old tars.
_FORMAT = "1"


@dataclass(frozen=True)
class PreparedCommand:
    """A command that runs on a node unless the path `creates` exists."""

    argv: tuple[str, ...]
    creates: str


@dataclass(frozen=True)
class PreparedSource:
    """A source that is ready to be copied to nodes. `sha256`: the checksum of the tar. `digest`:
    the first digits of the checksum of its inputs. `directory`: where the nodes unpack it.
    `prepare`: commands that each node then runs once."""

    workload: str
    source: str
    path: Path
    sha256: str
    digest: str
    directory: str
    prepare: tuple[PreparedCommand, ...] = ()


def prepare_source(
    catalog: Catalog,
    workload: str,
    source: str,
    mirror: str | None = None,
    cache: Path | None = None,
    environment: str | None = None,
) -> PreparedSource:
    """Make the tar in `cache` (default: `sources` in the project's cache) if it does not exist.

    `environment`: that of the runs (default: the framework's own), whose Python runs the
    preparation commands on the nodes. `mirror`: a URL with repositories at `<owner>/<repo>`, or a
    directory of them (see _mirrored).
    """
    cache = cache or paths.cache() / "sources"
    entry = catalog.workload(workload, "--workload")
    declared = entry.sources.named(source)
    if declared is None:
        raise UserError(
            f"{workload} has no source {source!r}",
            where="--source",
            expected=f"one of {', '.join(name for name, _ in entry.sources.items())}",
        )
    files = _own_files(workload, source, declared)
    digest = _digest(declared, files)
    path = cache / f"{workload}-{source}-{digest}.tar"
    sha256 = _cached(path)
    if sha256 is None:
        if isinstance(declared, UpstreamSource):
            files = _upstream_files(workload, declared, files, mirror or DEFAULT_MIRROR, cache)
        sha256 = _write_tar(path, files)
    directory = f"{SOURCES}/{workload}-{source}"
    prepare = _prepare(declared, environment or entry.framework, directory)
    return PreparedSource(workload, source, path, sha256, digest, directory, prepare)


def _prepare(source: Source, environment: str, directory: str) -> tuple[PreparedCommand, ...]:
    place = str(PurePosixPath(directory, getattr(source, "directory", "")))
    values = {"python": f"{ENVIRONMENTS}/{environment}/bin/python", "directory": place}
    return tuple(PreparedCommand(fill(each.argv, values), each.creates) for each in source.prepare)


# ---- files of this repository


def _own_files(workload: str, source: str, declared: Source) -> list[File]:
    """The files, all in one directory, regardless of their own directories."""
    files = []
    for name in declared.files:
        folder = folder_of(workload)
        path = folder / name
        if not path.is_file():
            raise UserError(
                "file not found", where=f"workload {workload}: sources.{source}.files", found=name
            )
        mode = EXECUTABLE if os.access(path, os.X_OK) else PLAIN
        place = PurePosixPath(getattr(declared, "directory", ""), path.name)
        # A link in the user's catalogue could bring any file of this machine to the nodes.
        content = read_bytes(path, inside=folder if folder != paths.PACKAGE.parent else None)
        files.append(File(str(place), content, mode))
    return files


# ---- upstream


def _upstream_files(
    workload: str, source: UpstreamSource, added_beside: Sequence[File], mirror: str, cache: Path
) -> list[File]:
    repository = _repository(source, mirror, cache)
    files = {file.path: file for file in _files(repository, source)}
    for patch in source.patches:
        if patch.file not in files:
            raise UserError(
                "the file to patch does not exist",
                where=f"workload {workload}: sources.upstream.patches",
                expected=f"a file in {', '.join(source.taken)} at {source.commit[:12]}",
                found=patch.file,
            )
        files[patch.file] = _patched(workload, source, files[patch.file], patch)
    added = [File(file.file, file.content.encode()) for file in source.added_files]
    for key, extra in (("added_files", added), ("files", added_beside)):
        for file in extra:
            if file.path in files:
                raise UserError(
                    "the file already exists; use a patch instead",
                    where=f"workload {workload}: sources.upstream.{key}",
                    found=file.path,
                )
            files[file.path] = file
    return list(files.values())


def _patched(workload: str, source: UpstreamSource, file: File, patch: Patch) -> File:
    where = f"workload {workload}: patch of {patch.file} ({patch.reason})"
    # surrogateescape preserves bytes that are not valid UTF-8.
    text = file.content.decode(errors="surrogateescape")
    try:
        text, count = re.subn(patch.pattern, patch.replacement, text, flags=re.MULTILINE)
    except (re.error, IndexError) as error:
        raise UserError(f"invalid patch: {error}", where=where) from None
    if count != patch.count:
        raise UserError(
            f"the pattern does not match {source.repository} at {source.commit[:12]}",
            where=where,
            expected=f"{patch.count} matches of {patch.pattern!r}",
            found=str(count),
        )
    return File(file.path, text.encode(errors="surrogateescape"), file.mode)


# ---- the tar


def _digest(source: Source, files: Sequence[File]) -> str:
    ingredients: list[object] = [[file.path, file.mode, _sha256(file.content)] for file in files]
    if isinstance(source, UpstreamSource):
        ingredients = [
            source.repository,
            source.commit,
            list(source.taken),
            [[p.file, p.pattern, p.replacement, p.count] for p in source.patches],
            [[added.file, added.content] for added in source.added_files],
            ingredients,
        ]
    return _sha256(json.dumps([_FORMAT, ingredients], sort_keys=True).encode())[:12]


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _cached(path: Path) -> str | None:
    try:
        recorded = read_text(path.with_suffix(".sha256")).strip()
        return recorded if _sha256(read_bytes(path)) == recorded else None
    except FileNotFoundError:
        return None


def _write_tar(path: Path, files: Sequence[File]) -> str:
    content = make_tar(files)
    sha256 = _sha256(content)
    write_whole(path, content)
    write_whole(path.with_suffix(".sha256"), f"{sha256}\n")
    return sha256


def make_tar(files: Sequence[File]) -> bytes:
    """Make a tar. The same files always give the same bytes: sorted, without times and owners."""
    buffer = io.BytesIO()
    directories = {
        str(parent)
        for file in files
        for parent in PurePosixPath(file.path).parents
        if str(parent) != "."
    }
    if not files:
        directories = {"."}  # Ansible's unarchive refuses an archive without members
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for directory in sorted(directories):
            member = tarfile.TarInfo(directory)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(member)
        for file in sorted(files, key=lambda file: file.path):
            member = tarfile.TarInfo(file.path)
            if file.mode == SYMLINK:
                member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(file.content)
                tar.addfile(member)
            else:
                member.mode = 0o755 if file.mode == EXECUTABLE else 0o644
                member.size = len(file.content)
                tar.addfile(member, io.BytesIO(file.content))
    return buffer.getvalue()
