"""The path of the playbooks and roles: the clone, or a copy unpacked from the installed package.

Roles store caches in their project directory and Ansible follows links. Therefore an installed
package is unpacked into a directory of the user when Ansible is to run: one for each version and
content, which is made whole and then never changed, because a playbook may run from it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from .. import __version__
from .errors import UserError, as_user_error
from .files import read_bytes, write_link, write_whole

PACKAGE = Path(__file__).resolve().parents[1]
_CLONE = PACKAGE.parent
# The wheel contains playbooks, roles, inventories and locked requirements here.
_SHIPPED = PACKAGE / "project"
OWN_CATALOG = "DLPERF_CATALOG"
CACHE = "DLPERF_CACHE"
# What all unpacked versions share: caches, and the state of the lab.
_SHARED = (".cache", ".lab")


def is_clone() -> bool:
    """Return whether this package runs from a clone of the project."""
    return not _SHIPPED.is_dir()


def shipped() -> Path:
    """The directory with inventory/, roles/ and requirements/, for reading."""
    return _CLONE if is_clone() else _SHIPPED


def copy_shipped(name: str, directory: Path, hint: str) -> None:
    """Copy a shipped directory to a new one. Raises UserError if that exists."""
    if directory.exists():
        raise UserError(
            "the directory already exists",
            where=str(directory),
            expected="a new directory",
            hint=f"choose another: {hint}",
        )
    shutil.copytree(shipped() / name, directory)


@functools.cache
def project() -> Path:
    """The directory with provision.yml, bench.yml, roles/ and requirements/, for Ansible. Unpacks
    an installed package."""
    return _CLONE if is_clone() else _unpacked(home())


def cache() -> Path:
    """The user's directory for downloads and builds: DLPERF_CACHE; or .cache in a clone, if the
    user can write there; or .cache in the user's data directory. Everything in it can be created
    again."""
    if given := os.environ.get(CACHE):
        return Path(given).absolute()
    folder = _CLONE / ".cache"
    can_write = is_clone() and os.access(folder if folder.exists() else _CLONE, os.W_OK)
    return folder if can_write else home() / ".cache"


def of_ansible() -> dict[str, str]:
    """The environment in which Ansible takes this project's configuration and the user's cache. Its
    programs are in the interpreter's directory, even without activation."""
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "ANSIBLE_CONFIG": str(project() / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(cache() / "ansible/tmp"),
        CACHE: str(cache()),
    }


def home() -> Path:
    """The directory for unpacked packages: DLPERF_HOME, or the user's data directory."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(os.environ.get("DLPERF_HOME") or Path(data) / "dlperf_runner").absolute()


def own_catalog() -> Path | None:
    """The user's own folder of the catalogue (`--catalog`, DLPERF_CATALOG), if there is one."""
    folder = os.environ.get(OWN_CATALOG)
    return Path(folder).absolute() if folder else None


def _unpacked(place: Path) -> Path:
    """The directory in `place` with the shipped files, which is made if it does not exist."""
    hint = "name another directory: DLPERF_HOME=DIR"
    with as_user_error("cannot unpack the playbooks", place, hint):
        for name in _SHARED:
            (place / name).mkdir(parents=True, exist_ok=True)
        target = place / f"{__version__}-{_digest()}"
        if not target.is_dir():
            _unpack(target)
    return target


def _unpack(target: Path) -> None:
    """Make the directory whole beside its place, then rename it. Another process may do the same
    at the same time: the first one counts."""
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        for path in _files():
            mode = path.stat().st_mode & 0o777
            write_whole(temporary / path.relative_to(_SHIPPED), read_bytes(path), mode)
        # Playbooks read the catalogue and the workloads as files in the project directory.
        write_link(temporary / PACKAGE.name, str(PACKAGE))
        for name in _SHARED:
            write_link(temporary / name, f"../{name}")
        temporary.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _files() -> Iterator[Path]:
    """The shipped files, without those that an installer compiled."""
    for path in sorted(_SHIPPED.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path


def _digest() -> str:
    """A digest of the package's path and of the names, modes and contents of the shipped files."""
    digest = hashlib.sha256(str(PACKAGE).encode())
    for path in _files():
        content = hashlib.sha256(read_bytes(path)).hexdigest()
        digest.update(f"\0{path.relative_to(_SHIPPED)}\0{path.stat().st_mode}{content}".encode())
    return digest.hexdigest()[:12]
