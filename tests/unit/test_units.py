"""Workloads that count tokens: whatever people and programs read has their unit and its name."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command_line import call
from csv_tables import table
from make_logs import campaign_run, gluoncv, torchtitan, write

NAME = "pytorch-llama"


def tokens_run(campaign: Path, topology: str, repeat: int, tps: int) -> None:
    nodes, devices = (int(number) for number in topology.rstrip("g").split("n"))
    names = {"workload": NAME, "model": "llama-8b", "framework": "pytorch", "precision": "bf16"}
    folder = campaign_run(
        campaign,
        topology,
        repeat,
        torchtitan(tps + repeat, world=nodes * devices),
        **names,
        total_steps=100,
        batch_size_per_device=2,
        log_format="torchtitan",
        case=f"{NAME}-builtin_bf16_b2_{topology}",
        id=f"{NAME}-builtin_bf16_b2_{topology}/r{repeat}",
    )
    case = campaign / "runs" / f"{NAME}-builtin_bf16_b2_{topology}"
    case.mkdir(exist_ok=True)
    folder.rename(case / folder.name)


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    """A campaign of three repeats on 1 and 8 devices: 6,000 and 5,700 tokens/s/device."""
    for repeat in (1, 2, 3):
        tokens_run(tmp_path / "results" / "one", "1n1g", repeat, 6000)
        tokens_run(tmp_path / "results" / "one", "1n8g", repeat, 5700)
    return tmp_path / "results" / "one"


def test_summary_is_in_tokens(tokens: Path) -> None:
    done = call("summarize", tokens)
    assert "| tokens/s | tokens/s/device |" in done.text
    assert "| 45616.00 | 5702.00 |" in done.text  # 8 * (5700 + 2), repeat 2
    one, eight = table(tokens / "summary.csv")
    assert float(one["tokens_per_second_median"]) == 6002
    assert float(eight["tokens_per_second_median"]) == 8 * 5702
    assert float(eight["tokens_per_second_per_device"]) == 5702
    assert float(eight["speedup"]) == 8 * 5702 / 6002
    cases = json.loads((tokens / "summary.json").read_text())["cases"]
    assert cases[1]["tokens_per_second_median"] == 8 * 5702
    assert cases[1]["tokens_per_second_per_device"] == 5702
    rows = [row for row in table(tokens / "measurements.csv") if row["world_size"] == "8"]
    found = {row["metric"]: row for row in rows}
    for metric in ("tokens_per_second", "tokens_per_second_time_stamps"):
        assert found[metric]["unit"] == "tokens/s"
        # 2 samples of 8192 tokens on each of 8 devices, in the whole seconds of the time stamps
        assert float(found[metric]["value"]) == pytest.approx(8 * 5700, rel=0.01)
    texts = [done.out, (tokens / "summary.md").read_text(), *one, *found]
    assert not [text for text in texts if "samples" in text]


def test_results_are_verified_and_recorded(tokens: Path) -> None:
    history = tokens.parent / "history.sqlite"
    call("summarize", tokens, "--history", history)
    call("summarize", tokens, "--verify", "--history", history)
    assert "| tokens/s |" in call("history", "--history", history).text
    point = call("history", "--json", "--history", history).document
    names = {name for case in point["cases"] for at in case["points"] for name in at}
    assert "tokens_per_second_median" in names
    assert "samples_per_second_median" not in names


def test_report_is_in_tokens(tokens: Path) -> None:
    call("summarize", tokens)
    call("report", tokens)
    text = (tokens / "report" / "report.md").read_text()
    assert "45,616.00 tokens/s on 8 devices on 1 node" in text
    assert "tokens/s/device" in text
    header = (tokens / "report" / "results.csv").read_text().splitlines()[0]
    assert "tokens_per_second_per_device" in header
    assert "samples" not in header
    pages = [*tokens.rglob("*.svg"), *(tokens / "report").glob("report.*")]
    assert all("samples/s" not in path.read_text() for path in pages)


def test_two_units_never_share_a_table_or_a_chart(tokens: Path) -> None:
    for repeat in (1, 2, 3):
        campaign_run(tokens, "1n1g", repeat, gluoncv(50.0 + repeat))
        campaign_run(tokens, "1n8g", repeat, gluoncv(390.0 + repeat))
    text = call("summarize", tokens).text
    assert "| samples/s | interval |" in text and "| tokens/s | tokens/s/device |" in text
    found = table(tokens / "summary.csv")
    values = [(row["samples_per_second_median"], row["tokens_per_second_median"]) for row in found]
    assert sorted(values) == sorted([("52.0", ""), ("392.0", ""), ("", "6002.0"), ("", "45616.0")])
    call("summarize", tokens, "--verify")
    call("report", tokens)
    svgs = [path.read_text() for path in tokens.rglob("*.svg")]
    assert not [text for text in svgs if "tokens/s" in text and "samples/s" in text]


def test_comparison_is_in_tokens(tokens: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tokens.parent.parent)
    for repeat in (1, 2, 3):
        tokens_run(tokens.parent / "two", "1n1g", repeat, 6100)
    assert "| a (tokens/s) |" in call("compare", tokens, tokens.parent / "two").text
    document = call("compare", tokens, tokens.parent / "two", "--json").document
    assert {case["unit"] for case in document["cases"]} == {"tokens/s"}
    call("compare", "--save-baseline", "llama", tokens)
    assert "| a (tokens/s) |" in call("compare", "--baseline", "llama", tokens.parent / "two").text


def test_energy_is_that_of_a_token(tokens: Path) -> None:
    """100 W of a node whose device computes 6002 tokens/s; its log has times, as torchtitan's."""
    began = datetime(2025, 12, 1, 12, tzinfo=UTC).timestamp()
    for folder in tokens.glob("runs/*_1n1g/r*"):
        lines = [f"{began + n},,{100 * n}" for n in range(400)]
        write(folder / "telemetry-node1.csv", ["unix_time,device,energy_j", *lines])
    assert "| J/token | W |" in call("summarize", tokens).text
    one, eight = table(tokens / "summary.csv")
    assert not [name for name in one if "sample" in name]
    assert float(one["energy_per_token_j"]) == pytest.approx(100 / 6002)
    assert (one["energy_estimator"], eight["energy_per_token_j"]) == ("cpu_counter", "")
    call("report", tokens)
    assert "J/token" in (tokens / "report" / "report.md").read_text()
