"""The question that `dlperf provision` asks on a terminal before it changes servers."""

import os
import sys
from collections.abc import Sequence

import pytest
import typer

from dlperf_runner.commands import provision

CHANGES = {"changes": {"node1": [("files", "/etc/hosts")]}, "failures": {}}


@pytest.mark.parametrize("answer", ["y", "YES", "n", "", "yy"])
def test_only_a_yes_changes_servers(
    answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[str, Sequence[str]]] = []
    monkeypatch.setattr(provision, "require_cluster", lambda: None)
    monkeypatch.setattr(provision, "rehearse", lambda _: CHANGES)
    monkeypatch.setattr(provision, "start", lambda *given: started.append(given))
    terminal, side = os.openpty()
    os.write(terminal, f"{answer}\n".encode())
    with os.fdopen(side) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        if answer in ("y", "YES"):
            provision.command(["--limit", "node1"])
        else:
            with pytest.raises(typer.Exit) as ended:
                provision.command(["--limit", "node1"])
            assert ended.value.exit_code == 2
    os.close(terminal)
    shown = capsys.readouterr()
    assert "/etc/hosts" in shown.out
    assert "Change this now? [y/N]" in shown.out
    assert ("Nothing was changed." in shown.err) == (not started)
    assert started == ([("provision.yml", ["--limit", "node1"])] if answer in ("y", "YES") else [])
