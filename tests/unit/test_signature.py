"""Signed manifests: ssh-keygen shows one that was written anew."""

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from captured import captured
from command_line import call, output
from make_logs import ROOT, gluoncv, write
from recorded_campaign import LOG, RUN, replace

from dlperf_runner.campaign.manifest import FILE, append, changes, read, recorded_files, seal, sign
from dlperf_runner.commands.report import make_report
from dlperf_runner.results.load import load_results


def new_key(path: Path, passphrase: str = "") -> Path:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-f", path]
    subprocess.run(argv, check=True)
    return path


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of alice and mallory, and a file that allows only alice."""
    place = tmp_path_factory.mktemp("keys")
    for name in ("alice", "mallory"):
        new_key(place / name)
    public = (place / "alice.pub").read_text()
    (place / "allowed").write_text(f'alice@example.org namespaces="dlperf_runner" {public}')
    return place


GOOD = 'Good "dlperf_runner" signature for alice@example.org'


def verify(keys: Path) -> tuple[object, ...]:
    return ("--verify", "--allowed-signers", keys / "allowed")


def test_a_signature_shows_a_manifest_that_was_written_anew(campaign: Path, keys: Path) -> None:
    verified = ("summarize", campaign, *verify(keys))
    assert "manifest.jsonl.sig: the manifest is not signed" in output(*verified, status=1)
    output("summarize", campaign, "--sign", keys / "alice")
    assert GOOD in output(*verified)
    assert "--allowed-signers FILE checks whose key" in output("summarize", "--verify", campaign)

    make_report([campaign], language="zh")
    assert "signs only the first 9 of 10 lines" in output(*verified, status=1)
    output("summarize", campaign, "--sign", keys / "alice")
    output(*verified)

    # Somebody changes a run, and makes a chain in which that is right.
    replace(f"{RUN}/telemetry-node1.csv", "512", "64")(campaign)
    entries = [json.loads(line) for line in (campaign / FILE).read_text().splitlines()]
    (campaign / FILE).unlink()
    for entry in entries:
        digests = entry["files"]
        for name in digests:
            if (campaign / name).is_file() and "sqlite" not in name:
                digests[name] = hashlib.sha256((campaign / name).read_bytes()).hexdigest()
        append(campaign, entry["subject"], digests)
    printed = output(*verified, status=1)
    assert "signs only the first 1 of" in printed or "bad signature" in printed
    output("summarize", campaign, "--sign", keys / "mallory")
    assert "bad signature: its key is not in" in output(*verified, status=1)
    (campaign / "manifest.jsonl.sig").unlink()
    assert "the manifest is not signed" in output(*verified, status=1)
    # Without a signature it passes: docs/history.md says so.
    output("summarize", "--verify", campaign)


def test_a_signature_needs_a_key(campaign: Path, keys: Path, tmp_path: Path) -> None:
    message = output("summarize", campaign, "--sign", tmp_path / "none", status=2)
    assert "cannot sign the manifest" in message
    printed = output("summarize", "--verify", campaign, "--allowed-signers", "/none", status=1)
    assert "the manifest is not signed" in printed
    output("summarize", campaign, "--sign", keys / "alice")
    assert "cannot read" in output(
        "summarize", "--verify", campaign, "--allowed-signers", "/none", status=2
    )
    for arguments in (["--verify", "--sign", "x"], ["--allowed-signers", "x"]):
        assert "--verify" in output("summarize", campaign, *arguments, status=2)


def test_a_passphrase_is_asked_on_the_terminal_only(campaign: Path, tmp_path: Path) -> None:
    """Without a terminal and an agent, a key with a passphrase signs nothing."""
    key = new_key(tmp_path / "key", "a passphrase")
    done = captured(
        *(sys.executable, "-m", "dlperf_runner", "summarize", campaign, "--sign", key),
        cwd=ROOT, start_new_session=True, stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot sign the manifest" in done.stderr
    assert not (campaign / "manifest.jsonl.sig").exists()


# ---- forged campaigns inside of signed ones


FORGED = "99.0"


@pytest.fixture(scope="module")
def signed_once(finished: Path, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `signed` with a campaign of alice, and `forged`, a copy with other rates."""
    bundle = tmp_path_factory.mktemp("bundle")
    shutil.copytree(finished / "one", bundle / "signed")
    output("summarize", bundle / "signed", "--no-history", "--sign", keys / "alice")
    shutil.copytree(bundle / "signed", bundle / "forged")
    for log in (bundle / "forged").glob("runs/*/*/*.log"):
        log.write_text(re.sub(r"Speed: 1\d\.\d+", f"Speed: {FORGED}", log.read_text()))
        record = json.loads((log.parent / "run.json").read_text())
        record["outcome"]["log_sha256"] = hashlib.sha256(log.read_bytes()).hexdigest()
        (log.parent / "run.json").write_text(json.dumps(record))
    for name in (FILE, f"{FILE}.sig", "campaign.json", "plan.json"):
        (bundle / "forged" / name).unlink()
    shutil.rmtree(bundle / "forged/report")
    output("summarize", bundle / "forged", "--no-history")
    (bundle / "forged" / FILE).unlink()
    return bundle


@pytest.fixture
def bundle(signed_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(signed_once, tmp_path / "bundle", symlinks=True)
    return tmp_path / "bundle"


def moved(bundle: Path, where: str) -> Path:
    """The forged campaign at this place in the bundle."""
    (bundle / where).parent.mkdir(parents=True, exist_ok=True)
    return (bundle / "forged").rename(bundle / where)


def linked(bundle: Path) -> Path:
    (bundle / "campaign").symlink_to(moved(bundle, "signed/.data").relative_to(bundle))
    return bundle / "campaign"


def with_campaign_file(bundle: Path) -> Path:
    place = moved(bundle, "signed/nested")
    shutil.copy(bundle / "signed/campaign.json", place)
    return place


def with_copied_manifest(bundle: Path) -> Path:
    """The forged campaign with the manifest and the signature of the signed one."""
    for name in (FILE, f"{FILE}.sig"):
        shutil.copy(bundle / "signed" / name, bundle / "forged")
    return bundle / "forged"


def beside_signed_files(bundle: Path) -> Path:
    """The signed files as they are, without a campaign.json and with one more run."""
    (bundle / "signed/campaign.json").unlink()
    run = next((bundle / "forged").glob("runs/*/r2"))
    shutil.copytree(run, bundle / "signed" / run.parent.relative_to(bundle / "forged") / "r9")
    return bundle / "signed"


def only_logs(bundle: Path) -> Path:
    (place := bundle / "signed/.logs").mkdir()
    shutil.copy(next((bundle / "forged").glob("runs/*/r1/*.log")), place)
    return place


ALONE = "a part of a campaign cannot be verified alone"
FORGERIES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "linked": (linked, ALONE),
    "hidden": (lambda b: moved(b, "signed/.data"), ALONE),
    "dots": (lambda b: moved(b, "signed/.data") / "runs/..", "cannot be verified alone"),
    "jobs": (lambda b: moved(b, "signed/.lib/x"), ALONE),
    "nested": (lambda b: moved(b, "signed/nested"), "cannot be verified alone"),
    "nested, own campaign.json": (with_campaign_file, f"{FILE}: missing"),
    "copied manifest": (with_copied_manifest, ": changed since"),
    "beside": (beside_signed_files, "/r9/run.json: added"),
    "logs": (only_logs, ALONE),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_signature_says_nothing_of_what_lies_beside_the_signed_files(
    bundle: Path, keys: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`bundle/campaign -> signed/.data` was verified by the signature of bundle/signed."""
    forge, message = FORGERIES[name]
    monkeypatch.chdir(bundle)
    called = call("summarize", forge(bundle), *verify(keys), status=None)
    assert called.status in (1, 2)
    assert message in called.both
    assert "as it was recorded" not in called.both


def test_signed_results_do_not_vouch_for_files_beside_them(
    bundle: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signed folder with a report alone, to which a summary of other logs is added."""
    monkeypatch.chdir(bundle)
    write(bundle / "logs/1n1g/rn50_b128_fp32_1.log", gluoncv(380.0))
    make_report([Path("logs")], Path("out"))
    sign(Path("out"), keys / "alice")
    argv = ("summarize", "logs", *verify(keys), "--output-dir")
    assert "no recorded results to compare" in output(*argv, "out", status=2)
    output("summarize", "logs", "--output-dir", "other")
    for path in Path("other").iterdir():
        if path.name != FILE:
            shutil.copy(path, "out")
    assert "summary.json: added" in output(*argv, "out", status=1)
    # Below a signed campaign, neither.
    shutil.copytree("other", "signed/.out")
    assert ".out/summary.json: added" in output(*argv, "signed/.out", status=1)


def test_a_link_to_a_campaign_is_that_campaign(bundle: Path, keys: Path) -> None:
    (bundle / "latest").symlink_to("signed")
    for place in (bundle / "latest", bundle / "signed/runs/.."):
        printed = output("summarize", place, *verify(keys), "--no-history")
        assert GOOD in printed
        assert printed.endswith("as it was recorded\n")


def as_link(path: Path) -> None:
    path.rename(path.parents[4] / "elsewhere")
    path.symlink_to(path.parents[4] / "elsewhere")


def as_folder(path: Path) -> None:
    """A directory named like the log, and another log that was compressed."""
    path.unlink()
    path.mkdir()
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(b"Epoch[0] Batch [1]\tSpeed: 99.0 samples/sec\n")


# A hidden file and folder, unfinished and temporary ones, those of a controller and of jobs at
# another place, and a log that is there twice.
FILES = (
    *(f"{RUN}/.x", ".x/y.log", f"{RUN}/a.part", f"{RUN}/b.tmp", "runs/progress.json"),
    *(f"{RUN}/.controller.log", f"{RUN}/.lib/x", f"{LOG}.gz"),
)
LINKS = {"runs/more": "runs", ".controller.log": "/dev/null"}
ENTRIES: dict[str, tuple[Callable[[Path], object], str]] = {
    **{name: (lambda c, name=name: write(c / name, ["z"]), f"{name}: added") for name in FILES},
    **{
        name: (lambda c, n=name, to=to: (c / n).symlink_to(c / to), f"{name}: added: a link")
        for name, to in LINKS.items()
    },
    "linked log": (lambda c: as_link(c / LOG), f"{LOG}: added: a link"),
    "pipe": (lambda c: os.mkfifo(c / RUN / "x.log"), f"{RUN}/x.log: added: neither a file nor"),
    "folder for a log": (lambda c: as_folder(c / LOG), f"{LOG}: changed since"),
    "escape sequence": (lambda c: (c / "\x1b[2K.log").write_text(""), r"\x1b[2K.log: added"),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_of_a_signed_campaign_is_a_recorded_file(
    bundle: Path, keys: Path, name: str
) -> None:
    add, message = ENTRIES[name]
    add(bundle / "signed")
    called = call("summarize", bundle / "signed", *verify(keys), "--no-history", status=1)
    assert message in called.out
    assert "\x1b" not in called.out


def test_what_a_controller_and_jobs_leave_is_no_difference(bundle: Path, keys: Path) -> None:
    for name in (".controller.json", ".controller.lock", ".controller.log", ".lib/a", ".sources/b"):
        write(bundle / "signed" / name, ["{}"])
    output("summarize", bundle / "signed", "--verify", "--no-history")


def test_only_recorded_files_are_loaded(bundle: Path) -> None:
    """The loader gets the names in the manifest, whatever else lies there."""
    manifest = read(bundle / "signed")
    assert manifest
    recorded = recorded_files(manifest)
    assert len(load_results(bundle / "signed", recorded=recorded).counted) == 4
    shutil.copytree(bundle / "signed" / RUN, (bundle / "signed" / RUN).with_name("r9"))
    assert len(load_results(bundle / "signed").runs) == 5
    assert len(load_results(bundle / "signed", recorded=recorded).runs) == 4
    results = load_results(bundle / "signed", recorded=recorded - {LOG})
    assert [problem.problem for problem in results.problems] == [
        "the log is not recorded in the manifest"
    ]


def test_a_recorded_name_does_not_lead_out_of_the_campaign(campaign: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    for name in ("../../secret", str(tmp_path / "secret")):
        append(campaign, "summary", {name: hashlib.sha256(b"x").hexdigest()})
        printed = output("summarize", "--verify", campaign, status=1)
        assert f"{name}: not in this directory" in printed


def test_names_that_are_no_text_are_recorded(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    write(place / "runs/x/r1/run.json", ["{}"])
    name = os.fsencode(place / "runs/x/r1") + b"/\xff.csv"
    with open(name, "w"):  # noqa: PTH123  pathlib has no bytes
        pass
    seal(place, "summary", [])
    manifest = read(place)
    assert manifest
    assert list(changes(place, manifest)) == []
    os.unlink(name)  # noqa: PTH108
    (sentence,) = changes(place, manifest)
    assert "deleted since" in sentence
