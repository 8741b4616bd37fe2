"""Shells complete commands, their options, and the values of options, by typer's protocol."""

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dlperf_runner.commands import app
from dlperf_runner.core.paths import OWN_CATALOG
from dlperf_runner.options import COMPLETED

GROUP: Any = typer.main.get_command(app)
SHOWN = [name for name, command in GROUP.commands.items() if not command.hidden]
VALUES = [
    (name, option.opts[0])
    for name in SHOWN
    for option in GROUP.commands[name].params
    if option.opts[0].lstrip("-") in COMPLETED
]
SHELLS = {
    "bash": lambda words: {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
    "zsh": lambda words: {"_TYPER_COMPLETE_ARGS": words},
    "fish": lambda words: {
        "_TYPER_COMPLETE_ARGS": words,
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    },
}


def completions(words: str, shell: str = "bash") -> str:
    """What the program answers to a shell's question for the last of these words."""
    question = {"_DLPERF_COMPLETE": f"complete_{shell}", OWN_CATALOG: None, **SHELLS[shell](words)}
    result = CliRunner().invoke(app, [], env=question, prog_name="dlperf")
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete_commands_and_options(shell: str) -> None:
    commands = completions("dlperf ", shell)
    assert [name for name in SHOWN if name not in commands] == []
    for name in SHOWN:
        answer = completions(f"dlperf {name} --", shell)
        shown = [each for each in GROUP.commands[name].params if not each.hidden]
        options = [option for each in shown for option in each.opts if option.startswith("--")]
        assert [option for option in options if option not in answer] == [], name


@pytest.mark.parametrize(("command", "option"), VALUES)
def test_options_complete_their_values(
    command: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "results" / "baselines").mkdir(parents=True)
    (tmp_path / "results" / "baselines" / "june.json").touch()
    monkeypatch.chdir(tmp_path)
    assert completions(f"dlperf {command} {option} ").split()


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("explain logs --to mxnet", "mxnet-resnet50v1b"),
        ("run --workload jax-llama,nvidia", "jax-llama,nvidia-bert"),
        ("--catalog own list pub", "published"),
        ("init --from b2", "b200"),
        ("export open", "openmetrics"),
        ("env build mx", "mxnet"),
        ("init-workload --log-format own", "own"),
    ],
)
def test_names_are_completed(words: str, name: str) -> None:
    assert name in completions(f"dlperf {words}").split()
