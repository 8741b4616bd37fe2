"""Index entries, the reasons for packages, and the index that is made of them."""

import gzip
import hashlib
import lzma
from datetime import UTC, datetime

import pytest

from dlperf_runner.bundle.debian import index_entry, signed_index
from dlperf_runner.core.errors import UserError


def stanza(name: str, depends: str = "", **fields: str) -> str:
    lines = {
        "Package": name,
        "Version": "1",
        "Architecture": "all",
        "Depends": depends,
        "Description": "short\n long text\n .\n Depends: of the text",
        "Filename": f"pool/{name}_1_all.deb",
        "Size": "10",
        "SHA256": hashlib.sha256(name.encode()).hexdigest(),
        **{key.replace("_", "-"): value for key, value in fields.items()},
    }
    return "".join(f"{key}: {value}\n" for key, value in lines.items() if value)


def test_parse() -> None:
    package = index_entry.parse(
        stanza("a", "b (>= 2), c:any | d.1, g++ [amd64], ", Pre_Depends="e", Provides="v (= 1)")
    )
    assert package.depends == (("e",), ("b",), ("c", "d.1"), ("g++",))
    assert package.provides == ("v",)
    assert not package.base
    assert index_entry.parse(stanza("a", Essential="yes")).base
    assert index_entry.parse(stanza("a", Priority="required")).base


@pytest.mark.parametrize("filename", ["/etc/x.deb", "pool/../../x.deb", "pool/x"])
def test_an_entry_cannot_leave_the_folder(filename: str) -> None:
    with pytest.raises(UserError, match="outside"):
        index_entry.parse(stanza("a", Filename=filename))


def test_reasons_are_the_shortest_way_from_a_role() -> None:
    packages = [
        index_entry.parse(text)
        for text in (
            stanza("mpi", "libmpi, plm"),
            stanza("libmpi", "hwloc"),
            stanza("plm", "ssh-client"),
            stanza("openssh-client", "libc", Provides="ssh-client"),
            stanza("hwloc", "libc"),
            stanza("libc", Essential="yes"),
            stanza("loop", "mpi, loop"),
        )
    ]
    found = index_entry.reasons(packages, {"openmpi": ["mpi"], "ssh": ["openssh-client"]})
    assert found["mpi"] == index_entry.Reason(("openmpi",), "mpi")
    assert found["openssh-client"].why == "mpi > plm > openssh-client"
    assert found["openssh-client"].wanted_by == ("openmpi", "ssh")
    assert found["libc"].why == "mpi > libmpi > hwloc > libc"
    assert found["libc"].wanted_by == ("openmpi", "ssh", "base system")


def test_index_is_complete_and_its_release_says_so() -> None:
    packages = [index_entry.parse(stanza(name)) for name in ("b", "a")]
    files = signed_index.index_files(
        packages, "bookworm", "amd64", datetime(2026, 11, 21, 4, 5, 6, tzinfo=UTC)
    )
    folder = "dists/bookworm/main/binary-amd64"
    text = files[f"{folder}/Packages"]
    assert text.decode().split("\n\n") == [stanza("a").strip("\n"), stanza("b")]
    assert gzip.decompress(files[f"{folder}/Packages.gz"]) == text
    assert lzma.decompress(files[f"{folder}/Packages.xz"]) == text
    release = files["dists/bookworm/Release"].decode()
    assert "Date: Sat, 21 Nov 2026 04:05:06 UTC\n" in release
    digest = hashlib.sha256(text).hexdigest()
    assert f" {digest} {len(text)} main/binary-amd64/Packages\n" in release
