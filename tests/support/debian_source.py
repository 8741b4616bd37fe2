"""The upstream source that Debian keeps of a package: what the vendor's own address would give."""

import gzip
import lzma
import os
import subprocess
from pathlib import Path

from dlperf_runner.bundle import apt
from dlperf_runner.bundle.archives import host_sources


def upstream_source(package: str, folder: Path, suite: str = "bookworm") -> Path:
    """As apt has verified it; of xz it is packed again, which the lab's mirrors lack."""
    root = apt.Root(folder / "apt", "amd64")
    # A mirror of the security updates can lack sources.
    apt.prepare(root, host_sources(suite)[:1])
    root.sources.write_text(root.sources.read_text().replace("Types: deb\n", "Types: deb-src\n"))
    assert not apt.update(root)
    subprocess.run(
        ["apt-get", "source", "-qq", "--download-only", package],
        cwd=folder,
        env={**os.environ, "APT_CONFIG": str(root.directory.resolve() / "apt.conf")},
        check=True,
    )
    (original,) = folder.glob(f"{package}_*.orig.tar.*")
    if original.suffix == ".gz":
        return original
    packed = original.with_suffix(".gz")
    with lzma.open(original) as source:
        packed.write_bytes(gzip.compress(source.read(), 1, mtime=0))
    return packed
