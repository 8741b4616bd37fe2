"""The path of the playbooks and roles: the clone, or a copy unpacked from the installed package.

Roles store caches in their project directory and Ansible follows links. Therefore an installed
package is unpacked into a directory of the user, once per version.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
_CLONE = PACKAGE.parent
# The wheel contains playbooks, roles, inventories and locked requirements here.
_SHIPPED = PACKAGE / "project"
OWN_CATALOG = "DLPERF_CATALOG"
CACHE = "DLPERF_CACHE"
_STAMP = ".unpacked"


def is_clone() -> bool:
    """Return whether this package runs from a clone of the project."""
    return not _SHIPPED.is_dir()


@functools.cache
def project() -> Path:
    """The directory with provision.yml, bench.yml, roles/ and requirements/."""
    return _CLONE if is_clone() else _unpacked(home())


def cache() -> Path:
    """The user's directory for downloads and builds: DLPERF_CACHE; or .cache in a clone, if the
    user can write there; or .cache in the user's data directory. Everything in it can be created
    again."""
    if given := os.environ.get(CACHE):
        return Path(given).absolute()
    own = _CLONE / ".cache"
    can_write = is_clone() and os.access(own if own.exists() else _CLONE, os.W_OK)
    return own if can_write else home() / ".cache"


def of_ansible() -> dict[str, str]:
    """The environment in which Ansible takes this project's configuration and the user's cache."""
    return {
        "ANSIBLE_CONFIG": str(project() / "ansible.cfg"),
        "ANSIBLE_LOCAL_TEMP": str(cache() / "ansible/tmp"),
        CACHE: str(cache()),
    }


def home() -> Path:
    """The directory for an unpacked package: DLPERF_HOME, or the user's data directory."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    return Path(os.environ.get("DLPERF_HOME") or Path(data) / "dlperf_runner").absolute()


def own_catalog() -> Path | None:
    """The user's own folder of the catalogue (`--catalog`, DLPERF_CATALOG), if there is one."""
    folder = os.environ.get(OWN_CATALOG)
    return Path(folder).absolute() if folder else None


def _unpacked(target: Path) -> Path:
    """Copy the shipped files to `target`, unless it already has the same files."""
    stamp = _stamp()
    marker = target / _STAMP
    if marker.is_file() and marker.read_text() == stamp:
        return target
    target.mkdir(parents=True, exist_ok=True)
    marker.unlink(missing_ok=True)
    for source in sorted(_SHIPPED.iterdir()):
        place = target / source.name
        if source.is_dir():
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(source, place)
        else:
            shutil.copy2(source, place)
    # Playbooks read the catalogue and the workloads as files in the project directory.
    package = target / PACKAGE.name
    package.unlink(missing_ok=True)
    package.symlink_to(PACKAGE)
    marker.write_text(stamp)
    return target


def _stamp() -> str:
    """A digest of the package's path and of the shipped files' names, sizes and times."""
    digest = hashlib.sha256(str(PACKAGE).encode())
    for path in sorted(_SHIPPED.rglob("*")):
        if path.is_file():
            status = path.stat()
            name = path.relative_to(_SHIPPED)
            digest.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
