"""Signed manifests: ssh-keygen shows one that was written anew."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import output
from make_logs import ROOT
from recorded_campaign import RUN, replace

from dlperf_runner.campaign.manifest import FILE, append
from dlperf_runner.commands.report import make_report


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of alice and mallory, and a file that allows only alice."""
    place = tmp_path_factory.mktemp("keys")
    for name in ("alice", "mallory"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / name], check=True
        )
    public = (place / "alice.pub").read_text()
    (place / "allowed").write_text(f'alice@example.org namespaces="dlperf_runner" {public}')
    return place


def test_a_signature_shows_a_manifest_that_was_written_anew(campaign: Path, keys: Path) -> None:
    verify = ("summarize", "--verify", campaign, "--allowed-signers", keys / "allowed")
    assert "manifest.jsonl.sig: the manifest is not signed" in output(*verify, status=1)
    output("summarize", campaign, "--sign", keys / "alice")
    assert 'Good "dlperf_runner" signature for alice@example.org' in output(*verify)
    assert "--allowed-signers FILE checks whose key" in output("summarize", "--verify", campaign)

    make_report([campaign], language="zh")
    assert "signs only the first 9 of 10 lines" in output(*verify, status=1)
    output("summarize", campaign, "--sign", keys / "alice")
    output(*verify)

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
    printed = output(*verify, status=1)
    assert "signs only the first 1 of" in printed or "bad signature" in printed
    output("summarize", campaign, "--sign", keys / "mallory")
    assert "bad signature: its key is not in" in output(*verify, status=1)
    (campaign / "manifest.jsonl.sig").unlink()
    assert "the manifest is not signed" in output(*verify, status=1)
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
    key = tmp_path / "key"
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "a passphrase", "-f", key], check=True
    )
    argv = [sys.executable, "-m", "dlperf_runner", "summarize", campaign, "--sign", key]
    done = subprocess.run(
        argv, cwd=ROOT, capture_output=True, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"}, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot sign the manifest" in done.stderr
    assert not (campaign / "manifest.jsonl.sig").exists()
