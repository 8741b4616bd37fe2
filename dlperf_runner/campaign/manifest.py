"""The manifest of a campaign: the SHA-256 of every file that this project wrote, in one chain.

manifest.jsonl has a line for each event: the plan was made, a run ended, results were written.

    {"number": 3, "time": "...", "subject": "runs/<case>/r1", "previous": "<SHA-256 of line 2>",
     "files": {"runs/<case>/r1/run.json": "<SHA-256>", ...}}

Lines are only appended. A later line of the same subject replaces the earlier one. Whoever can
write all files can also write a new manifest; only a signature shows that.

OpenSSH makes and checks signatures. They cover the manifest as it is when it is signed. By hand:

    ssh-keygen -Y verify -n dlperf_runner -f ALLOWED -I WHO -s manifest.jsonl.sig < manifest.jsonl
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import subprocess
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from pathlib import Path
from typing import Any

from ..core.errors import UserError, as_user_error
from ..core.files import is_campaign, open_append, open_stored, read_bytes, stored, write_result

FILE = "manifest.jsonl"
SIGNATURE = f"{FILE}.sig"
PLAN, FOUND, HISTORY = "plan", "found", "history"
# The only entries of a campaign that no manifest records: itself, the files of the controller, and
# what a scheduler's jobs execute.
LOCK, GUARD, CONTROLLER_LOG = ".controller.json", ".controller.lock", ".controller.log"
JOB_FOLDERS = (".sources", ".lib", ".images")
_UNRECORDED = (FILE, SIGNATURE, LOCK, GUARD, CONTROLLER_LOG, *JOB_FOLDERS)
# Written while a run is under way, and removed at its end.
_PASSING = ("progress.json", ".part", ".tmp")


@dataclass(frozen=True)
class Sealed:
    """A recorded digest, and the number of the line that recorded it."""

    digest: str
    subject: str
    number: int


@dataclass(frozen=True)
class Manifest:
    """`files`: the last recorded digest of each file. `broken`: where the chain is not intact.
    `notes`: lines that are no reason for doubt. `lines`: the file's lines with their ends.
    `began`: the subject of the first line."""

    files: dict[str, Sealed]
    broken: list[str]
    notes: list[str]
    lines: list[bytes]
    began: str | None


def home(directory: Path) -> Path:
    """The campaign that a directory of results belongs to; without a campaign, the directory."""
    directory = directory.resolve()
    for place in (directory, *directory.parents):
        if (place / "campaign.json").is_file():
            return place
    return directory


# ---- writing


def seal(directory: Path, subject: str, paths: Iterable[Path]) -> None:
    """Record the present content of the files in the manifest of their campaign. If it is the first
    line of an existing campaign, the other files are recorded before it, as found. Raises UserError
    if a file cannot be read or the manifest not be written."""
    place = home(directory)
    name = os.path.relpath(directory.resolve(), place)
    files = {os.path.relpath(path.resolve(), place): path for path in paths}
    if is_campaign(place) and not (place / FILE).exists():
        others = {name: path for name, path in _recordable(place) if name not in files}
        append(place, FOUND, {name: digest(path) for name, path in others.items()})
    whose = subject if name == "." else f"{subject} {name}"
    append(place, whose, {name: digest(path) for name, path in files.items()})


def run_directory(campaign: Path, run: str) -> Path:
    """The directory of a run. Raises UserError if the campaign has no such run."""
    place = campaign.resolve() / "runs" / run
    if not (place / "run.json").is_file() or home(place) != campaign.resolve():
        raise UserError("no such run", where=str(place), expected="the run.json of a campaign")
    return place


def seal_run(campaign: Path, run: str) -> None:
    """Record all files of a run that has ended. Raises UserError if there is no such run."""
    place = run_directory(campaign, run)
    seal(campaign, f"runs/{run}", [path for _, path in _recordable(campaign.resolve(), place)])


def append(place: Path, subject: str, digests: Mapping[str, str]) -> None:
    """Append a line, unless the last one of this subject says the same. Several processes may
    append at once. After an interrupted write, the incomplete line stays, and the new one follows
    it."""
    path = place / FILE
    with as_user_error("cannot write the manifest", path), open_append(path, inside=place) as file:
        wait_for_lock(file.fileno())
        file.seek(0)
        content = file.read()
        last = parse(content)
        if {n: s.digest for n, s in last.files.items() if s.subject == subject} == digests:
            return
        entry = {
            "number": len(last.lines) + 1,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "subject": subject,
            "previous": _of_line(last.lines[-1]) if last.lines else None,
            "files": dict(sorted(digests.items())),
        }
        torn = b"\n" if content and not content.endswith(b"\n") else b""
        # Escaped, because names of files need not be UTF-8.
        file.write(torn + json.dumps(entry).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def wait_for_lock(descriptor: int) -> None:
    """Wait for other processes with a lock on the file. Closing it releases the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        # Lustre may be mounted without locks.
        if error.errno not in (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK):
            raise


def digest(path: Path) -> str:
    """The SHA-256 of a file, before it was compressed. Raises UserError if it cannot be read."""
    try:
        with open_stored(path) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError("cannot read the file", where=str(path), found=reason) from None


def _of_line(line: bytes) -> str:
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


# ---- reading


def read(place: Path) -> Manifest | None:
    """The manifest of a directory; None if it has none."""
    path = place / FILE
    with (
        as_user_error("cannot read the file", path),
        suppress(FileNotFoundError, NotADirectoryError),
    ):
        return parse(read_bytes(path, inside=place))
    return None


def parse(content: bytes) -> Manifest:
    """Read a manifest and follow its chain."""
    lines = content.splitlines(keepends=True)
    files: dict[str, Sealed] = {}
    broken, notes, incomplete, began = [], [], 0, None
    for number, line in enumerate(lines, start=1):
        entry = _entry(line)
        if entry is None:
            incomplete = number
            continue
        began = entry["subject"] if number == 1 else began
        before = _of_line(lines[number - 2]) if number > 1 else None
        if entry["number"] != number or entry["previous"] != before:
            broken.append(
                f"{FILE}:{number}: the chain is broken: an earlier line was changed, deleted or"
                " added"
            )
        elif incomplete:
            # This line was appended after the incomplete one, as its number and digest say.
            notes.append(f"{FILE}:{incomplete}: an incomplete line, from an interrupted write")
        incomplete = 0
        files = {name: s for name, s in files.items() if s.subject != entry["subject"]}
        for name, value in entry["files"].items():
            files[name] = Sealed(value, entry["subject"], number)
    if incomplete:
        broken.append(f"{FILE}:{incomplete}: the last line is incomplete")
    return Manifest(files, broken, notes, lines, began)


def _entry(line: bytes) -> dict[str, Any] | None:
    """A line of the manifest; None if it is incomplete."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    texts = {"subject": str, "files": dict, "number": int, "previous": str | None}
    if not isinstance(entry, dict) or any(
        name not in entry or not isinstance(entry[name], kind) for name, kind in texts.items()
    ):
        return None
    return entry if all(isinstance(value, str) for value in entry["files"].values()) else None


def changes(place: Path, manifest: Manifest) -> Iterator[str]:
    """A sentence for each file that was changed, deleted or, in a campaign, added after it was
    recorded. Raises UserError if a directory or file cannot be read."""
    yield from manifest.broken
    if is_campaign(place):
        # Of records without a campaign, the reports beside them have manifests of their own.
        below = place if (place / "campaign.json").exists() else place / "runs"
        yield from _added(place, below, recorded_files(manifest))
    for name, sealed in manifest.files.items():
        path = place / name
        if sealed.subject == HISTORY:
            continue  # no file, but a campaign's rows
        if Path(name).is_absolute() or ".." in Path(name).parts:
            yield f"{name}: not in this directory, although {FILE}:{sealed.number} records it"
        elif not stored(path).is_file():
            yield f"{name}: deleted since {FILE}:{sealed.number} recorded it"
        elif not is_digest(path, sealed.digest):
            yield f"{name}: changed since {FILE}:{sealed.number} recorded it"


def recorded_files(manifest: Manifest) -> frozenset[str]:
    """The names of the files whose digests are recorded."""
    return frozenset(name for name, s in manifest.files.items() if s.subject != HISTORY)


def _added(place: Path, below: Path, recorded: Collection[str]) -> Iterator[str]:
    for entry in _entries(place, below):
        name = os.path.relpath(entry.path, place)
        path = Path(entry.path)
        original = path.with_name(path.name.removesuffix(".gz"))
        stands_for = name.removesuffix(".gz") if stored(original) == path else name
        if entry.is_symlink():
            yield f"{name}: added: a link, and {FILE} records only files"
        elif not entry.is_file(follow_symlinks=False):
            yield f"{name}: added: neither a file nor a directory"
        elif stands_for not in recorded:
            yield f"{name}: added: {FILE} does not record it"


def is_digest(path: Path, expected: str) -> bool:
    """True if a file has this SHA-256. Raises UserError if it cannot be read."""
    try:
        return digest(path) == expected
    except UserError:
        if stored(path) == path:
            raise
        return False  # a damaged archive


def _recordable(place: Path, below: Path | None = None) -> Iterator[tuple[str, Path]]:
    """The files of a campaign that its manifest records: not hidden ones, nor those of an active
    run."""
    for entry in _entries(place, below):
        name = os.path.relpath(entry.path, place)
        is_hidden = any(part.startswith(".") for part in Path(name).parts)
        if entry.is_file(follow_symlinks=False) and not is_hidden and not name.endswith(_PASSING):
            yield name, Path(entry.path)


def _entries(place: Path, below: Path | None = None) -> Iterator[os.DirEntry[str]]:
    """All entries of a campaign that are no directories, links included, in a stable order."""
    folder = below or place
    with as_user_error("cannot read the directory", folder):
        entries = sorted(os.scandir(folder), key=attrgetter("name"))
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if folder != place or entry.name not in JOB_FOLDERS:
                yield from _entries(place, Path(entry.path))
        elif folder != place or entry.name not in _UNRECORDED or entry.is_symlink():
            yield entry


NAMESPACE = "dlperf_runner"


def sign(place: Path, key: Path) -> Path:
    """Sign the manifest with a private key, or with the agent's key of this public one; ssh-keygen
    asks for a passphrase on the terminal. Raises UserError if it fails."""
    content = _read(place / FILE)
    done = _ssh_keygen("sign", "-f", str(key), content=content)
    if done.returncode != 0:
        printed = done.stderr.decode(errors="replace")
        raise UserError(
            "cannot sign the manifest",
            where=str(key),
            found=[f"exit status {done.returncode}", *printed.strip().splitlines()][-1],
            expected="a private SSH key, or a public one whose private key ssh-agent holds",
        )
    return write_result(place / SIGNATURE, done.stdout, inside=place)


def check(place: Path, manifest: Manifest, allowed: Path | None) -> Iterator[tuple[bool, str]]:
    """Sentences about the signature; True before those that are differences. `allowed` is a file of
    allowed signers (ssh-keygen(1)). Without it, anybody may have made the signature."""
    signature = place / SIGNATURE
    if not signature.is_file():
        yield allowed is not None, f"{SIGNATURE}: the manifest is not signed"
        return
    read_bytes(signature, inside=place)  # refuses a link
    if allowed is None:
        options: Sequence[str] = ["check-novalidate", "-s", str(signature)]
    else:
        _read(allowed)  # for a clear message
        name = _signer(signature, allowed)
        if name is None:
            yield True, f"{SIGNATURE}: bad signature: its key is not in {allowed}"
            return
        options = ["verify", "-s", str(signature), "-f", str(allowed), "-I", name]
    lines = manifest.lines
    for count in range(len(lines), 0, -1):
        done = _ssh_keygen(*options, content=b"".join(lines[:count]))
        if done.returncode == 0:
            if count < len(lines):
                yield True, f"{SIGNATURE}: signs only the first {count} of {len(lines)} lines"
            # Good "dlperf_runner" signature for alice with ED25519 key SHA256:...
            verified = done.stdout.decode().strip()
            hint = "" if allowed else "; --allowed-signers FILE checks whose key this is"
            yield False, f"{SIGNATURE}: {verified}{hint}"
            return
    yield True, f"{SIGNATURE}: bad signature: it does not fit the manifest"


def _signer(signature: Path, allowed: Path) -> str | None:
    """The first principal whose key made the signature; None if none is allowed."""
    options = ("find-principals", "-s", str(signature), "-f", str(allowed))
    done = _ssh_keygen(*options, content=b"")
    return done.stdout.decode().splitlines()[0] if done.returncode == 0 else None


def _ssh_keygen(action: str, *options: str, content: bytes) -> subprocess.CompletedProcess[bytes]:
    argv = ["ssh-keygen", "-Y", action, "-n", NAMESPACE, *options]
    try:
        return subprocess.run(argv, input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError(
            "ssh-keygen is not installed", expected="OpenSSH 8.2 or newer, for signatures"
        ) from None


def _read(path: Path) -> bytes:
    with as_user_error("cannot read the file", path):
        return read_bytes(path)
