"""Index entries, and the reasons for packages."""

import hashlib

import pytest

from dlperf_runner.bundle import closure
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
    package = closure.parse(
        stanza("a", "b (>= 2), c:any | d.1, g++ [amd64], ", Pre_Depends="e", Provides="v (= 1)")
    )
    assert package.depends == (("e",), ("b",), ("c", "d.1"), ("g++",))
    assert package.provides == ("v",)
    assert not package.is_base
    assert closure.parse(stanza("a", Essential="yes")).is_base
    assert closure.parse(stanza("a", Priority="required")).is_base


@pytest.mark.parametrize("filename", ["/etc/x.deb", "pool/../../x.deb", "pool/x"])
def test_an_entry_cannot_leave_the_folder(filename: str) -> None:
    with pytest.raises(UserError, match="outside"):
        closure.parse(stanza("a", Filename=filename))


def test_reasons_are_the_shortest_way_from_a_role() -> None:
    packages = [
        closure.parse(text)
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
    found = closure.reasons(packages, {"openmpi": ["mpi"], "ssh": ["openssh-client"]})
    assert found["mpi"] == closure.Reason(("openmpi",), "mpi")
    assert found["openssh-client"].why == "mpi > plm > openssh-client"
    assert found["openssh-client"].wanted_by == ("openmpi", "ssh")
    assert found["libc"].why == "mpi > libmpi > hwloc > libc"
    assert found["libc"].wanted_by == ("openmpi", "ssh", "base system")
