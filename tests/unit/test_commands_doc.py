"""What commands say of themselves: in their help, in docs/commands.md, and to shells."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import call
from make_logs import ROOT
from typer.testing import CliRunner

from dlperf_runner.commands import app
from dlperf_runner.core.frame import COLUMNS as MEASURED
from dlperf_runner.core.paths import OWN_CATALOG
from dlperf_runner.options import COMPLETED
from dlperf_runner.stats.summary import COLUMNS
from tools.commands_page import render

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SHOWN = [name for name, command in COMMANDS.items() if not command.hidden]
PAGE = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def test_the_page_is_what_the_commands_say_of_themselves() -> None:
    again = "python -m tools.commands_page > docs/commands.md"
    assert render() == PAGE, f"docs/commands.md is old; {again}"


def test_every_command_and_option_has_a_help_text() -> None:
    for name, command in COMMANDS.items():
        assert command.help
        for parameter in command.params:
            is_hidden = getattr(parameter, "hidden", False)
            assert is_hidden or parameter.name == "help" or parameter.help, (name, parameter.name)


def test_the_help_of_every_command_has_an_example_of_its_own_options() -> None:
    for name in SHOWN:
        command = COMMANDS[name]
        words = f"{command.help} {command.epilog}".partition("Example: dlperf ")[2].split()
        assert name in words, name
        known = {option for parameter in command.params for option in parameter.opts}
        passes_on = command.context_settings.get("ignore_unknown_options")
        given = {word for word in words if word.startswith("-")} - {"--catalog"}
        assert passes_on or given <= known, name


def test_help_names_values_by_words_and_shared_options_once() -> None:
    for name, command in COMMANDS.items():
        text = call(name, "--help").out
        assert not re.search(
            r" <(str|int|path|bool|float)|\b(TEXT|INTEGER|FLOAT|BOOLEAN)\b|x[<>]=|\[\[", text
        ), name
        groups = {each.rich_help_panel for each in command.params if each.name != "help"}
        assert {text.count(f"\n{group}:\n") for group in groups - {None}} <= {1}, name


def test_the_top_level_help_shows_whole_sentences() -> None:
    listed, _, end = call("--help").out.partition("\nCommands:\n")[2].partition("\n\n")
    assert "Exit status: 0" in end
    entries = re.split(r"^  (?=\S)", listed, flags=re.MULTILINE)[1:]
    assert [entry.split()[0] for entry in entries] == SHOWN
    for entry in entries:
        assert entry.rstrip().endswith("."), entry
        assert "..." not in entry, entry
        assert "…" not in entry, entry


def test_commands_that_print_data_print_json() -> None:
    options = {name: [o for each in COMMANDS[name].params for o in each.opts] for name in SHOWN}
    # Their output is a playbook's; that of run ends with the table of summarize, and that of export
    # has a format of its own.
    without = "run lab provision decommission init init-workload export env live attach stop"
    without += " demo-logs"
    assert {name for name in SHOWN if "--json" not in options[name]} == set(without.split())


def test_every_column_of_the_files_has_a_meaning() -> None:
    text = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8").partition("## A case")[2]
    heads = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    names = [name for head in heads for name in re.findall(r"`(\w+)`", head)]
    assert len(names) == len(set(names))
    assert set(names) == {*COLUMNS, *MEASURED, "campaign", "family"}


# ---- completion by typer's protocol


VALUES = [
    (name, option.opts[0])
    for name in SHOWN
    for option in COMMANDS[name].params
    if option.opts[0].lstrip("-") in COMPLETED
]
SHELLS = {
    "bash": lambda words: {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))},
    "zsh": lambda words: {"_TYPER_COMPLETE_ARGS": words},
    "fish": lambda words: SHELLS["zsh"](words) | {"_TYPER_COMPLETE_FISH_ACTION": "get-args"},
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
        shown = [each for each in COMMANDS[name].params if not each.hidden]
        options = [option for each in shown for option in each.opts if option.startswith("--")]
        assert [option for option in options if option not in answer] == [], name


@pytest.mark.parametrize(("command", "option"), VALUES)
def test_options_complete_their_values(here: Path, command: str, option: str) -> None:
    (here / "results" / "baselines").mkdir(parents=True)
    (here / "results" / "baselines" / "june.json").touch()
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
