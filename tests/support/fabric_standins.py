"""Stand-ins of what the roles openmpi, infiniband and node_tuning install and ask.

None of it is the vendors': the tar of OpenMPI is a small autotools-like project whose mpirun hands
on to the distribution's, MLNX_OFED's installer puts two stand-in packages on, and nvidia-smi keeps
what it is told.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from standin_repository import Standin

FIXTURES = Path(__file__).parents[1] / "fixtures"
OPENMPI = "vendor/download.open-mpi.org/release/open-mpi/v4.0/openmpi-4.0.0.tar.gz"
OPENMPI_5 = "vendor/download.open-mpi.org/release/open-mpi/v5.0/openmpi-5.0.8.tar.bz2"
OFED_VERSION = "5.0-2.1.8.0"
OFED = (
    f"vendor/content.mellanox.com/ofed/MLNX_OFED-{OFED_VERSION}/"
    f"MLNX_OFED_LINUX-{OFED_VERSION}-ubuntu18.04-x86_64.tgz"
)
CONFIGURE = r"""#!/bin/sh
# stand-in
for option; do case $option in --prefix=*) prefix=${option#*=} ;; esac; done
cat > Makefile <<END
all: ompi_info
ompi_info: ompi_info.c
	cc -DOPTIONS='"$*"' -o ompi_info ompi_info.c
install: all
	mkdir -p \$(DESTDIR)$prefix/bin
	cp ompi_info mpirun \$(DESTDIR)$prefix/bin
END
"""
# With the library that mpi4py loads, which is the distribution's, too.
CONFIGURE_WITH_LIBRARY = CONFIGURE.removesuffix("END\n") + (
    "\tmkdir -p \\$(DESTDIR)$prefix/lib\n"
    "\tcp /usr/lib/x86_64-linux-gnu/libmpi.so.40 \\$(DESTDIR)$prefix/lib/libmpi.so\nEND\n"
)
OMPI_INFO = r"""
#include <stdio.h>
#include <string.h>
int main(void) {
  puts("stand-in " OPTIONS);
  const char *cuda = strstr(OPTIONS, "--with-cuda=") ? "true" : "false";
  printf("opal_built_with_cuda_support:value:%s\n", cuda);
}
"""
MPIRUN = """#!/bin/sh
# stand-in
test "$1" = --version && exec echo "mpirun (Open MPI) 4.0.0"
exec /usr/bin/mpirun "$@"
"""
# It also removes a package of the distribution, as the vendor's removes what is in its way.
INSTALLER = """#!/bin/sh
# stand-in
echo "$*" >> /var/log/standin-ofed.log
dpkg --purge libyajl2
dpkg --install DEBS/*.deb && test ! -e /root/ofed-fails && echo Installation passed successfully
"""
# Keeps the address as netplan would: it reads its own folder.
NETPLAN = r"""#!/bin/sh
# stand-in
for file in /etc/netplan/*.yaml; do
  name=$(sed -n 's/^    \(.*\):$/\1/p' $file)
  ip addr replace $(sed -n 's/.*addresses: \[\(.*\)\]/\1/p' $file) dev $name && ip link set $name up
done
"""
# Two GPUs; what was set lies in /srv/smi, a file per GPU and setting, and what it was told.
NVIDIA_SMI = r"""#!/bin/sh
# stand-in
echo "$*" >> /srv/smi/argv
answer() { for gpu in 0 1; do echo "$gpu, $(cat /srv/smi/$1.$gpu)"; done; }
case "$*" in
  --query-gpu=index,persistence_mode*) answer pm ;;
  --query-gpu=index,clocks.applications.memory*) answer ac ;;
  --query-gpu=index,uuid*) answer uuid ;;
  "-i "*" -lgc "* | "-i "*" -rgc") ;;
  "-i "*" -pm 1") echo Enabled > /srv/smi/pm.$2 ;;
  "-i "*" -pm 0") echo Disabled > /srv/smi/pm.$2 ;;
  "-i "*" -ac "*) echo "$4" | sed 's/,/, /' > /srv/smi/ac.$2 ;;
  *) exit 16 ;;
esac
"""


def tar_of(path: Path, top: str, files: Mapping[str, str | bytes]) -> str:
    """A compressed tar with everything below one folder; returns its checksum."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def openmpi(path: Path, configure: str = CONFIGURE) -> str:
    files = {"configure": configure, "ompi_info.c": OMPI_INFO, "mpirun": MPIRUN}
    return tar_of(path, "openmpi-4.0.0", files)


def ofed(path: Path, scratch: Path) -> str:
    said = f"#!/bin/sh\necho MLNX_OFED_LINUX-{OFED_VERSION}:\n"
    program = "/usr/bin/ofed_info"
    executables = frozenset({program})
    packages = [
        Standin("ofed-scripts", "5.0-OFED", files={program: said}, executables=executables),
        Standin("mlnx-ofed-kernel-utils", "5.0-OFED", "ofed-scripts"),
    ]
    debs = {f"DEBS/{p.filename}": p.build(scratch).read_bytes() for p in packages}
    return tar_of(path, f"MLNX_OFED_LINUX-{OFED_VERSION}", {"mlnxofedinstall": INSTALLER, **debs})


def recorded_card(card: str = "connectx4") -> dict[str, str]:
    """The tree of a card below /srv/fabric."""
    tree: dict[str, Any] = json.loads((FIXTURES / f"fabric/{card}.json").read_text())
    return {f"/srv/fabric/{name}": str(content) for name, content in tree.items()}


def untuned() -> dict[str, str]:
    cpu = "/srv/tuning/sys/devices/system/cpu"
    governors = {f"{cpu}/cpu{n}/cpufreq/scaling_governor": "powersave" for n in range(2)}
    gpus = {f"/srv/smi/pm.{n}": "Disabled" for n in range(2)}
    clocks = {f"/srv/smi/ac.{n}": "877, 1290" for n in range(2)}
    return {**governors, "/srv/tuning/proc/sys/kernel/numa_balancing": "1", **gpus, **clocks}
