"""The FAQ's "What does it leave on my servers?" names each file that roles and modules make.

Paths are read from the roles' defaults, variables, tasks and templates, and from the Python that
computes paths. One that the FAQ does not name, and a name of the FAQ that nothing makes, fail. What
nodes of a lab then have, links too, is compared with the FAQ in rehearsed.py."""

import re

from lab_under_test import PROJECT
from left_files import listed, names

PLACES = (
    *(f"roles/*/{folder}/*" for folder in ("defaults", "vars", "tasks", "handlers", "templates")),
    *("module_utils/*.py", "library/*.py", "dlperf_runner/provision/*.py"),
)
PATH = re.compile(r"""(?<=["' ])(?:/etc|/opt|/usr/(?:local|src)|/var)(?:/[\w.+@*{}%-]+)+""")
# What is only read, or belongs to a package or to the site.
READ = {
    "/etc/apt": "the folder, of which only the parts above change",
    "/etc/apt/keyrings": "apt's folder",
    "/etc/apt/preferences.d": "apt's folder",
    "/etc/apt/sources.list": "the site's sources",
    "/etc/apt/sources.list.d": "apt's folder",
    "/etc/apt/sources.list.d/cuda.list": "an example of the site's sources",
    "/etc/passwd": "the users of the node itself",
    "/etc/pki/rpm-gpg": "rpm's folder",
    "/etc/yum.repos.d": "dnf's folder",
    "/opt/rocm*": "files of ROCm's packages",
    "/opt/slurm/bin": "programs that are looked for",
    "/usr/local/nvidia/bin": "programs that are looked for",
    "/usr/local/slurm/bin": "programs that are looked for",
    "/etc/apt/trusted.gpg*": "the site's keys",
    "/etc/cdi": "the folder of nvidia.yaml",
    "/etc/environment": "a message names it",
    "/etc/mysql/debian.cnf": "MariaDB's package",
    "/etc/ssh/*.pub": "the node's own host keys",
    "/etc/ssh/ssh_host_*": "the node's own host keys",
    "/etc/subgid": "the user's lines are removed where podman cannot use them",
    "/usr/local/bin*": "programs that are looked for",
    "/usr/local/cuda*": "NVIDIA's packages",
    "/usr/local/sbin": "the folder, on a search path",
    "/var/cache/*": "the package manager's",
    "/var/lib/apt*": "the package manager's",
    "/var/lib/dkms/*": "dkms's",
    "/var/lib/dpkg*": "the package manager's",
    "/var/lib/mysql": "MariaDB's",
    "/var/log/*": "logs, which are read",
    "/var/tmp": "where images are unpacked while they are loaded",
}


def made() -> dict[str, str]:
    """Each path with the file that names it; what is computed in a path is a star."""
    found: dict[str, str] = {}
    for place in PLACES:
        for file in sorted(PROJECT.glob(place)):
            if file.is_relative_to(PROJECT / "roles/lab"):
                continue
            for path in PATH.findall(file.read_text()):
                name = re.sub(r"\{.*|%s.*", "*", path).rstrip(".}")
                found.setdefault(name, str(file.relative_to(PROJECT)))
    return found


def test_each_file_that_is_made_is_listed() -> None:
    known = [*listed(), *READ]
    missing = {
        path: file
        for path, file in made().items()
        if not any(names(pattern, path) for pattern in known)
    }
    assert missing == {}


def test_nothing_else_is_listed() -> None:
    paths = made()
    idle = [
        pattern for pattern in [*listed(), *READ] if not any(names(pattern, path) for path in paths)
    ]
    assert idle == []
