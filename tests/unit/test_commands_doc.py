"""docs/commands.md says every command, option and exit status, as they are."""

import re
from typing import Any

import typer
from command_line import call
from make_logs import ROOT

from dlperf_runner.commands import app
from dlperf_runner.core.frame import COLUMNS as MEASURED
from dlperf_runner.stats.summary import COLUMNS
from tools.commands_page import render

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
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
    for name, command in COMMANDS.items():
        if command.hidden:
            continue
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
    listed = call("--help").out.partition("\nCommands:\n")[2].partition("\n\n")[0]
    entries = re.split(r"^  (?=\S)", listed, flags=re.MULTILINE)[1:]
    assert len(entries) > 20
    for entry in entries:
        assert entry.rstrip().endswith("."), entry
        assert "..." not in entry, entry
        assert "…" not in entry, entry


def test_commands_that_print_data_print_json() -> None:
    without = {
        name
        for name, command in COMMANDS.items()
        if not command.hidden
        and not any("--json" in parameter.opts for parameter in command.params)
    }
    # Their output is a playbook's; that of run ends with the table of summarize, and that of export
    # has a format of its own.
    assert without == {
        *("run", "lab", "provision", "decommission", "init", "init-workload"),
        *("export", "env", "live", "attach", "stop", "demo-logs"),
    }


def test_every_column_of_the_files_has_a_meaning() -> None:
    text = (ROOT / "docs" / "columns.md").read_text(encoding="utf-8").partition("## A case")[2]
    heads = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    names = [name for head in heads for name in re.findall(r"`(\w+)`", head)]
    assert len(names) == len(set(names))
    assert set(names) == {*COLUMNS, *MEASURED, "campaign", "family"}
