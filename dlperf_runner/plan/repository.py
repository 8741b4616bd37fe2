"""Reads files from a git repository at a fixed commit: from a mirror, or fetched into the cache."""

from __future__ import annotations

import io
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..catalog.source import UpstreamSource
from ..core.errors import UserError

# Git hooks set these variables. They would make git use the repository of the hook.
_OTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY")
PLAIN, EXECUTABLE, SYMLINK, SUBMODULE = "100644", "100755", "120000", "160000"


@dataclass(frozen=True)
class File:
    """One file of a source. `mode` is the file mode in git."""

    path: str
    content: bytes
    mode: str = PLAIN


@dataclass(frozen=True)
class Repository:
    """A git repository on this machine that contains the commit."""

    path: Path
    name: str
    commit: str

    @classmethod
    def open(cls, source: UpstreamSource, mirror: str, cache: Path) -> Repository:
        if "://" in mirror or re.match(r"[^/]+@[^/]+:", mirror):
            path = _fetched(source, f"{mirror.rstrip('/')}/{source.repository}", cache)
        else:
            path = _mirrored(source, Path(mirror))
        return cls(path, source.repository, source.commit)

    def files(self, directories: Sequence[str]) -> list[File]:
        """All files in the directories. Reads only their objects, because a partial clone may lack
        others."""
        listing = _git(self.path, "ls-tree", "-rz", "--full-tree", self.commit, "--", *directories)
        if listing.returncode != 0:
            raise UserError(
                f"git cannot read {self.name} at {self.commit[:12]}: {_reason(listing.stderr)}",
                where=str(self.path),
            )
        entries = []
        for line in listing.stdout.split(b"\0"):
            if line:
                description, _, path = line.partition(b"\t")
                mode, _, name = description.decode().split(" ")
                entries.append((os.fsdecode(path), mode, name))
        for directory in directories:
            if not any(PurePosixPath(p).is_relative_to(directory) for p, _, _ in entries):
                raise UserError(
                    f"{self.name} does not have this directory at {self.commit[:12]}",
                    found=directory,
                )
        entries = [entry for entry in entries if entry[1] != SUBMODULE]
        return [
            File(path, content, mode)
            for (path, mode, _), content in zip(entries, self._contents(entries), strict=True)
        ]

    def _contents(self, entries: Sequence[tuple[str, str, str]]) -> list[bytes]:
        names = "".join(f"{name}\n" for _, _, name in entries).encode()
        batch = _git(self.path, "cat-file", "--batch", stdin=names)
        stream, contents = io.BytesIO(batch.stdout), []
        for path, _, name in entries:
            header = stream.readline().split()
            if len(header) != 3 or header[1] != b"blob":
                raise UserError(
                    f"the copy of {self.name} lacks {path} at {self.commit[:12]}",
                    where=str(self.path),
                    expected=f"the object {name}",
                    found=_reason(batch.stderr) or "a partial clone",
                    hint="create the mirror with a full `git clone --mirror`",
                )
            contents.append(stream.read(int(header[2])))
            stream.readline()
        return contents


def _mirrored(source: UpstreamSource, mirror: Path) -> Path:
    """The repository in a directory of mirrors."""
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
        done = _git(path, *step)
        if done.returncode != 0:
            break
    if done.returncode != 0 and step[0] == "fetch":
        # Some servers do not support fetching a single commit or a filter. Fetch all refs instead.
        done = _git(path, "fetch", "--quiet", "origin", "+refs/*:refs/*")
    if done.returncode != 0 or not _has_commit(path, source.commit):
        raise UserError(
            f"git cannot fetch {source.repository}: {_reason(done.stderr) or 'commit not found'}",
            where=url,
            expected=f"the commit {source.commit}",
            hint="at an air-gapped site, set a directory of git mirrors: --mirror DIR, "
            "or dlperf_source_mirror in the inventory",
        )
    return path


def _has_commit(path: Path, commit: str) -> bool:
    return _git(path, "cat-file", "-e", f"{commit}^{{commit}}").returncode == 0


def _git(path: Path, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run git on a repository. It never asks for a password.

    It also reads repositories of other users, such as shared mirrors. This is safe, because it
    reads only objects and runs no hooks and no configured commands.
    """
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


def _reason(stderr: bytes) -> str:
    """The line of git's output with the cause: the first fatal line, or else the last line."""
    lines = stderr.decode(errors="replace").strip().splitlines()
    return next((line for line in lines if line.startswith("fatal:")), lines[-1] if lines else "")
