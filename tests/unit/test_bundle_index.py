"""Entries of an index, and the reasons for packages."""

import pytest
from debian.deb822 import Deb822

from dlperf_runner.bundle import closure
from dlperf_runner.core.errors import UserError


def entry(name: str, depends: str = "", **fields: str) -> Deb822:
    return Deb822({"Package": name, "Depends": depends, **fields})


@pytest.mark.parametrize("filename", ["/etc/x.deb", "pool/../../x.deb", "pool/x"])
def test_an_entry_cannot_leave_the_folder(filename: str) -> None:
    with pytest.raises(UserError, match="outside"):
        closure.path_of(entry("a", Filename=filename))
    assert closure.path_of(entry("a", Filename="./pool/a_1_all.deb")) == "apt/pool/a_1_all.deb"


def test_reasons_are_the_shortest_way_from_a_role() -> None:
    entries = [
        entry("mpi", "libmpi:any (>= 2) | other, plm [amd64], "),
        entry("libmpi", "", **{"Pre-Depends": "hwloc"}),
        entry("plm", "ssh-client"),
        entry("openssh-client", "libc", Provides="ssh-client (= 1)"),
        entry("hwloc", "libc"),
        entry("libc", Essential="yes"),
        entry("base-files", Priority="required"),
        entry("loop", "mpi, loop"),
    ]
    reasons = closure.reasons(entries, {"openmpi": ["mpi"], "ssh": ["openssh-client"]})
    assert reasons["mpi"] == closure.Reason(("openmpi",), "mpi")
    assert reasons["openssh-client"].why == "mpi > plm > openssh-client"
    assert reasons["openssh-client"].wanted_by == ("openmpi", "ssh")
    assert reasons["libc"].why == "mpi > libmpi > hwloc > libc"
    assert reasons["libc"].wanted_by == ("openmpi", "ssh", "base system")
    assert reasons["base-files"] == closure.Reason(("base system",), "base-files")
