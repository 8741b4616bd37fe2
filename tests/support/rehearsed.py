"""A rehearsal of `dlperf provision`, and what then changes on the node."""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from lab_under_test import Lab
from left_files import listed as listed_in_faq
from left_files import names
from node_state import node_state

# What the scripts of listed packages write, and useradd
OF_SCRIPTS = (
    *("/etc/ca-certificates.conf", "/etc/ssl/certs", "/usr/local/share/ca-certificates"),
    "/etc/alternatives",
    *(f"/etc/{name}" for name in ("passwd", "group", "shadow", "gshadow", "subuid", "subgid")),
    *("/home/dlperf", "/etc/networks", "/etc/systemd/user/sockets.target.wants"),
    *(f"/etc/systemd/system/{name}.target.wants" for name in ("default", "sockets", "timers")),
)


# Services that the stand-in of systemctl has started, restarted or stopped, daemons, and the boot.
OBSERVED = r"""
import glob, pathlib
log = pathlib.Path("/srv/services")
for line in log.read_text().splitlines() if log.exists() else []:
    print("service", line.split()[1])
for path in glob.glob("/proc/[0-9]*/stat"):
    name, _, rest = pathlib.Path(path).read_text().partition("(")[2].rpartition(")")
    if rest.split()[1] == "1":
        print("service", name)
print("boot", pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip())
"""


def observed(lab: Lab, node: str) -> list[str]:
    return sorted(lab.said(node, f"python3 - <<'EOF'\n{OBSERVED}\nEOF").splitlines())


def entries(output: str, kind: str) -> set[str]:
    """The list's entries of a kind, without what follows the name."""
    lines = output.partition(f"  {kind}:\n")[2].splitlines()
    names = [line for line in lines if line.startswith("    ")]
    end = next((at for at, line in enumerate(lines) if not line.startswith("    ")), len(lines))
    return {line.split()[0] for line in names[:end]}


def changes(before: list[str], after: list[str]) -> tuple[set[str], set[str]]:
    """Names of packages, and paths, that differ between two states."""
    lines = set(before) ^ set(after)
    paths = {match.group() for line in lines if (match := re.search(r" (/\S+)", line))}
    packages = {line.split()[0].partition(":")[0] for line in lines if line.endswith("installed")}
    return packages, {path.strip() for path in paths}


def untold(paths: Iterable[str]) -> list[str]:
    """Those that the FAQ does not name, of paths that no package has."""
    known = [*listed_in_faq(), *OF_SCRIPTS, *(f"{place}/*" for place in OF_SCRIPTS)]
    return sorted(path for path in paths if not any(names(each, path) for each in known))


def rehearsed_and_done(lab: Lab, node: str, options: Sequence[str]) -> str:
    """What `dlperf provision` lists for the node without changing it. Provisioning then changes
    nothing else, and a second rehearsal lists nothing."""
    before, ran = node_state(lab, node), observed(lab, node)
    done = lab.command(sys.executable, "-m", "dlperf_runner", "provision", *options)
    assert done.returncode == 2, done.stdout
    assert "there is no terminal to ask on" in done.stdout, done.stdout
    assert "--yes" in done.stdout
    assert node_state(lab, node) == before
    assert observed(lab, node) == ran
    lab.play("provision.yml", *options)
    now = observed(lab, node)
    services = {line.split()[1] for line in Counter(now) - Counter(ran) if "service" in line}
    of_list = tuple(name.rstrip(":") for name in entries(done.stdout, "services"))
    assert all(name.startswith(of_list) for name in services), (services, of_list)
    assert bool(entries(done.stdout, "reboots")) == (now[0] != ran[0]), done.stdout
    packages, paths = changes(before, node_state(lab, node))
    listed = entries(done.stdout, "packages")
    assert packages <= listed | entries(done.stdout, "holds"), packages - listed
    named = {
        *(entries(done.stdout, "files") | entries(done.stdout, "package sources")),
        *("/var/lib/dlperf", "/opt/dlperf/stamps", *OF_SCRIPTS),
    }
    owned = set(lab.said(node, "cat /var/lib/dpkg/info/*.list").splitlines())
    strange = {
        path
        for path in paths - owned
        if not any(path == place or path.startswith(f"{place}/") for place in named)
    }
    assert not strange, sorted(strange)
    assert not untold(paths - owned)
    again = lab.play("provision.yml", *options, "--check")
    assert f"{node}: nothing would change" in again, again
    return done.stdout
