"""The module apt_family: keys, records, what dpkg says, and files that come and go."""

import base64
import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import standins
from ansible.module_utils import deb_family, deb_undo, openpgp_key
from hypothesis import given, settings
from hypothesis import strategies as st
from standins import ansible_standin, computed, needed

# Of a node without packages
NOTHING = SimpleNamespace(snapshot=dict, holds=list, autos=list)
SNAPSHOTS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["1", "2", "3"]))


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Two keys as gpg makes and exports them, and their fingerprints as gpg says them."""
    home = tmp_path_factory.mktemp("g")
    gpg = partial(standins.gpg, home)
    for name in ("one", "two"):
        gpg("--quick-generate-key", name, "ed25519", "sign", "never")
    listing = gpg("--with-colons", "--list-keys").decode()
    found = {
        "fingerprints": [line.split(":")[9] for line in listing.splitlines() if line[:4] == "fpr:"],
        "one": gpg("--export", "one"),
        "both": gpg("--export"),
        "armoured": gpg("--armor", "--export", "one"),
        "secret": gpg("--export-secret-keys", "one"),
    }
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
    return found


def test_fingerprints_are_those_that_gpg_says_of_every_key(keys: dict[str, Any]) -> None:
    assert openpgp_key.fingerprints(keys["one"]) == keys["fingerprints"][:1]
    assert sorted(openpgp_key.fingerprints(keys["both"])) == sorted(keys["fingerprints"])
    with pytest.raises(ValueError, match="secret key"):
        openpgp_key.fingerprints(keys["secret"])


def test_a_key_beside_the_right_one_is_refused(keys: dict[str, Any]) -> None:
    one, two = keys["fingerprints"]
    assert openpgp_key.key_problem(keys["armoured"], [one.lower()]) is None
    assert openpgp_key.key_problem(keys["both"], [one, two]) is None
    problem = openpgp_key.key_problem(keys["both"], [one])
    assert problem.startswith(f"expected fingerprint {one}, found ")
    assert two in problem


@settings(deadline=None)
@given(st.lists(SNAPSHOTS, min_size=1, max_size=5))
def test_many_changes_are_recorded_as_the_one_that_they_are(
    snapshots: list[dict[str, str]],
) -> None:
    record: dict[str, Any] = {}
    for before, now in pairwise(snapshots):
        record = deb_family.merged(record, before, now)
    first, last = snapshots[0], snapshots[-1]
    ours = record.get("installed", {})
    assert ours == {name: last[name] for name in last if name not in first}
    changed = {n: first[n] for n in first if n in last and first[n] != last[n]}
    assert record.get("changed", {}) == changed
    assert record.get("removed", {}) == {n: first[n] for n in first if n not in last}


def test_what_the_new_definition_has_no_use_for_goes() -> None:
    record = {
        "definition": {
            "packages": {"cuda-toolkit-10-2": "10.2.89-1", "libcublas10": "10.2.2.89-1"},
            "pins": [{"packages": ["cuda-*-10-2"], "version": "10.2.89-*"}],
        },
        "installed": dict.fromkeys(
            ("cuda-toolkit-10-2", "cuda-nvcc-10-2", "libcublas10", "gcc"), "1"
        ),
    }
    new = {"cuda-toolkit-12-9": "12.9.1-1"}
    gone = ["cuda-nvcc-10-2", "cuda-toolkit-10-2", "libcublas10"]
    assert deb_family.obsolete(record, new, []) == gone
    assert deb_family.obsolete(record, record["definition"]["packages"], []) == gone[:1]


def test_a_file_that_two_families_share_goes_with_the_last(tmp_path: Path) -> None:
    path, folder = tmp_path / "nvidia.sources", tmp_path / "undo"
    families = [deb_undo.Undo(str(folder), name) for name in ("cuda", "cudnn")]
    for undo in families:
        undo.begin({}, NOTHING)
        undo.write(str(path), b"URIs: https://vendor.example/\n")
    families[0].give_back_all()
    families[0].forget()
    assert path.exists()
    families[1].give_back_all()
    families[1].forget()
    assert not path.exists()
    assert not folder.exists()


def test_a_file_of_somebody_else_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "site.pref"
    path.write_text("theirs")
    path.chmod(0o640)
    undo = deb_undo.Undo(str(tmp_path / "undo"), "cuda")
    undo.begin({}, NOTHING)
    undo.write(str(path), b"ours")
    again = deb_undo.Undo(str(tmp_path / "undo"), "cuda")
    again.give_back_all()
    assert path.read_text() == "theirs"
    assert path.stat().st_mode & 0o777 == 0o640


OUTPUT = (
    "libnccl2\t2.7.3-1+cuda10.2\thold ok installed\n"
    "libnvidia-gl-440:amd64\t440.118.02-0ubuntu1\tinstall ok installed\n"
    "libcudnn7\t7.6.5.32-1+cuda10.2\tinstall ok unpacked\n"
    "old\t1\tdeinstall ok config-files\n"
)


def test_only_what_is_whole_is_installed() -> None:
    assert deb_family.installed(OUTPUT) == {
        "libnccl2": ("2.7.3-1+cuda10.2", True),
        "libnvidia-gl-440:amd64": ("440.118.02-0ubuntu1", False),
    }
    assert deb_family.interrupted(OUTPUT) == ["libcudnn7"]


def test_a_member_that_only_a_glob_names_is_held_to_its_version_too() -> None:
    there = deb_family.installed(OUTPUT)
    pins = [{"packages": ["libnvidia-*-440"], "version": "440.33.01-*"}]
    wrong = deb_family.wrong_versions(there, {"libnccl2": "2.7.3-1+cuda10.2"}, pins)
    assert wrong == {"libnvidia-gl-440": None}


def test_a_simulation_is_read() -> None:
    said = (
        "Remv nvidia-driver-440 [440.33.01-0ubuntu1]\n"
        "Inst libnccl2 [2.29.7-1+cuda12.9] (2.7.3-1+cuda10.2 stand-in [amd64])\n"
        "Inst libnccl-dev (2.7.3-1+cuda10.2 stand-in [amd64])\n"
        "Conf libnccl2 (2.7.3-1+cuda10.2 stand-in [amd64])\n"
    )
    installs, removes = deb_family.simulated(said)
    assert installs == dict.fromkeys(("libnccl2", "libnccl-dev"), "2.7.3-1+cuda10.2")
    assert removes == {"nvidia-driver-440": "440.33.01-0ubuntu1"}


SQV = "Sub-process /usr/bin/sqv returned an error code (1), error message is:"


# apt's own words, of apt 2.6, and of apt 3.0 with sqv (NVIDIA/cuda-repo-management#39)
@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("E: You don't have enough free space in /var/cache/apt/archives/.", "disk is full"),
        (
            "W: GPG error: http://x InRelease: The following signatures couldn't be verified"
            " because the public key is not available: NO_PUBKEY 1112223334445556",
            "signed with another key",
        ),
        (f"W: {SQV} Missing key F73E2A, which is needed to verify signature.", "another key"),
        (f"W: {SQV} Verifying signature:  Message has been manipulated", "signature is invalid"),
        (
            f"W: {SQV} Signing key on EB693B is not bound: No binding signature at time 2026-01-29"
            " because: SHA1 is not considered secure since 2026-02-01T00:00:00Z",
            "SHA-1",
        ),
        ("E: Failed to fetch http://x/y.deb  404  Not Found [IP: 1.2.3.4 80]", "(404)"),
        (
            "E: Failed to fetch http://x/y.deb  File has unexpected size (3 != 5)."
            " Mirror sync in progress?",
            "download was incomplete",
        ),
        ("E: Version '9' for 'libnccl2' was not found", "does not have this version"),
        ("W: Failed to fetch http://x/InRelease  Could not resolve 'x'", "cannot reach"),
    ],
)
def test_what_apt_says_is_explained(said: str, meaning: str) -> None:
    explained = deb_family.explanation(f"Reading package lists...\n{said}\n")
    assert explained is not None
    assert meaning in explained[0]
    assert said in explained[0]
    assert deb_family.explanation("E: something new") is None


def test_a_glob_lets_no_other_version_of_a_named_package_in() -> None:
    """12.9.* is 12.9.2 too, which is not the toolkit that was asked for."""
    pins = [{"packages": ["cuda-*-12-9"], "version": "12.9.*"}]
    text = deb_family.preferences_text({"cuda-toolkit-12-9": "12.9.1-1"}, pins)
    records = [block.splitlines()[-3:] for block in text.split("\n\n")]
    assert records == [
        ["Package: cuda-toolkit-12-9", "Pin: version 12.9.1-1", "Pin-Priority: 1001"],
        ["Package: cuda-toolkit-12-9", "Pin: version *", "Pin-Priority: -1"],
        ["Package: cuda-*-12-9", "Pin: version 12.9.*", "Pin-Priority: 1001"],
    ]


# What the nodes' interpreters make of it: everything that is computed, and files that come and go.
COMPUTE = """
import base64, json, os, sys
from ansible.module_utils import deb_family, deb_undo, dpkg_locks, openpgp_key
given = json.load(sys.stdin)
folder = sys.argv[1]
undo = deb_undo.Undo(os.path.join(folder, "dlperf", "undo"), "cuda")
class Packages(object):
    holds = autos = list
    snapshot = staticmethod(lambda: {"a": "1", "b": "1"})
undo.begin({"packages": {}}, Packages())
undo.directory(os.path.join(folder, "etc"))
path = os.path.join(folder, "etc", "x.pref")
undo.write(path, deb_family.preferences_text(given["packages"], given["pins"]).encode("utf-8"))
undo.finish({"a": "2", "c": "1"})
record = undo.record
again = deb_undo.Undo(os.path.join(folder, "dlperf", "undo"), "cuda")
with open(path) as stream:
    text = stream.read()
again.give_back_all()
again.forget()
key = base64.b64decode(given["key"])
there = deb_family.installed(given["dpkg"])
print(json.dumps({
    "text": text,
    "record": [record[name] for name in ("installed", "changed", "removed")],
    "left": sorted(os.listdir(folder)),
    "fingerprints": openpgp_key.fingerprints(openpgp_key.dearmored(key)),
    "installed": there,
    "wrong": deb_family.wrong_versions(there, given["packages"], given["pins"]),
    "locked": [dpkg_locks.holder(path) for path in (folder + "/no-lock", sys.executable)],
}, sort_keys=True))
"""


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.12"])
def test_old_and_new_interpreters_compute_the_same(
    keys: dict[str, Any], tmp_path: Path, version: str
) -> None:
    python = needed(version)
    ansible_standin(tmp_path / "path")
    given = {
        "key": base64.b64encode(keys["armoured"]).decode(),
        "packages": {"libnccl2": "2.7.3-1+cuda10.2"},
        "pins": [{"packages": ["libnvidia-*-440"], "version": "440.33.01-*"}],
        "dpkg": OUTPUT,
    }
    told = []
    for number, each in enumerate((python, sys.executable)):
        (folder := tmp_path / str(number)).mkdir()
        told.append(computed(each, COMPUTE, given, tmp_path / "path", folder))
    assert told[0] == told[1]
    assert told[0]["fingerprints"] == keys["fingerprints"][:1]
    assert told[0]["record"] == [{"c": "1"}, {"a": "1"}, {"b": "1"}]
    assert told[0]["left"] == []
