"""`dlperf ab` and `dlperf bisect`: runs in turns by a stand-in for bench.yml, judged in pairs."""

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from accepted import campaigns, speeds
from command_line import call, output
from make_logs import campaign_run, edit, gluoncv
from plan_examples import lab_nodes
from recorded_campaign import end

from dlperf_runner.campaign.directory import read_plan, remaining_plan
from dlperf_runner.campaign.manifest import seal
from dlperf_runner.commands.ab import parse_side
from dlperf_runner.commands.bisect import Step, search, step_test, steps_of, versions_of
from dlperf_runner.core.errors import UserError
from dlperf_runner.stats.sequential import judged

CHOICE = ("--workload", "mxnet-resnet50v1b", "--nodes", 1, "--gpus-per-node", 1)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Runs whose speed their environment variable SPEED says, on a machine that gets slower by 1 %
    with each run. Gives the runs that were made."""
    found: list[str] = []
    numbers = random.Random(7)  # noqa: S311  not for secrets

    def execute(directory: Path, *_: object, **__: object) -> list[str]:
        for run in remaining_plan(directory)["runs"]:
            level = float(run["commands"][0]["env"]["SPEED"])
            noise = numbers.gauss(1, 0.003)
            end(directory, run, round(level * noise * 0.99 ** len(found), 2))
            found.append(f"{directory.name}{run['repeat']}")
        return []

    monkeypatch.setattr("dlperf_runner.commands.ab.execute", execute)
    monkeypatch.setattr("dlperf_runner.commands.ab.read_inventory", lambda *_, **__: lab_nodes())
    return found


def ab(folder: Path, a: float, b: float, *options: object, status: int = 0) -> dict:
    sides = ("--a", f"SPEED={a}", "--b", f"SPEED={b}", "--b", "SIDE=b", "--campaign", folder)
    return call("ab", *CHOICE, *sides, *options, "--json", status=status).document


def test_a_slower_side_is_found_on_a_tiring_machine(tmp_path: Path, made: list[str]) -> None:
    document = ab(tmp_path / "ab", 200, 190)
    assert document["verdict"] == "slower"
    assert document["low"] < -0.05 < document["high"] < 0
    # The first look decides, and no more is run.
    assert made == ["a1", "b1", "b2", "a2", "a3", "b3", "b4", "a4"]
    assert document["judged_pairs"] == 4
    sides = {side: tmp_path / "ab" / side for side in "ab"}
    for side, speed in (("a", "200"), ("b", "190")):
        assert read_plan(sides[side])["runs"][0]["commands"][0]["env"]["SPEED"] == speed
    # The same by the campaigns alone, and nothing is run again.
    again = call("ab", *sides.values(), "--json").document
    assert {**again, "side_a": "SPEED=200", "side_b": "SPEED=190 SIDE=b"} == document
    assert (ab(tmp_path / "ab", 200, 190), len(made)) == (document, 8)
    assert "B is slower: -" in output("ab", *sides.values())


def test_no_difference_needs_an_interval_in_the_tolerance(tmp_path: Path, made: list[str]) -> None:
    document = ab(tmp_path / "ab", 200, 200, "--within", "2%")
    assert document["verdict"] == "no difference shown"
    assert -0.02 <= document["low"] <= 0 <= document["high"] <= 0.02
    undecided = ab(tmp_path / "short", 200, 200, "--within", "0.1%", "--most", 4, status=1)
    why = "the interval crosses a limit after all 4 pairs"
    assert (undecided["verdict"], undecided["why"]) == ("undecided", why)


def sides_of(folder: Path, a: Sequence[float], b: Sequence[float]) -> list[Path]:
    """Campaigns on node1 that took turns."""
    rates = {"a": a, "b": b}
    return [
        campaigns(folder / side, {"node1": rates[side]}, second=side == "b")["node1"]
        for side in "ab"
    ]


def without_records(a: Path, b: Path) -> None:
    for record in [*a.rglob("run.json"), *b.rglob("run.json")]:
        log = next(record.parent.glob("*.log"))
        record.unlink()
        log.rename(record.parents[3] / log.name)


def always_first(a: Path, b: Path) -> None:
    for second, side in enumerate((a, b)):
        for record in side.rglob("run.json"):
            document = json.loads(record.read_text())
            started = f"2026-11-02T10:0{document['repeat']}:{second:02}+00:00"
            document["outcome"]["started"] = started
            record.write_text(json.dumps(document))


def changed_after_the_record(a: Path, b: Path) -> None:
    (b / "campaign.json").write_text("{}")
    seal(b, "run", sorted(b.rglob("r[0-9]/*")))
    edit([next(b.rglob("*.log"))], "Speed: 9", "Speed: 8")


def records(side: Path) -> list[Path]:
    return sorted(side.rglob("run.json"))


def logs(side: Path) -> list[Path]:
    return sorted(side.rglob("*.log"))


UNKNOWN_START = "nothing records when these runs began"


@pytest.mark.parametrize(
    ("tamper", "status", "message"),
    [
        (lambda _, b: edit(logs(b)[:3], "Speed", "Spd"), 1, "_1.log"),
        # The runs of B that would have been slow.
        (lambda _, b: edit(records(b)[:3], '"done"', '"failed"'), 1, "failed: "),
        # A copy with a record and a start of its own would narrow the interval.
        (lambda _, b: shutil.copy(*logs(b)[:2]), 1, "/r2/rn50_b128_fp32_2.log: a copy of runs/"),
        (lambda _, b: edit(records(b), '"node1"', '"node2"'), 2, "r1 were on different nodes"),
        (without_records, 2, UNKNOWN_START),
        # It is unknown if these runs took turns.
        (lambda a, b: edit([*records(a), records(b)[2]], '"started"', '"x"'), 2, UNKNOWN_START),
        (always_first, 2, "the sides did not take turns to be first"),
        (changed_after_the_record, 2, ".log: changed since manifest.jsonl"),
    ],
)
def test_a_verdict_on_other_than_pairs_is_not_silent(
    tmp_path: Path, tamper: Callable[[Path, Path], object], status: int, message: str
) -> None:
    sides = sides_of(tmp_path, speeds(100, 4, 0), speeds(95, 4, 1))
    output("ab", *sides)
    tamper(*sides)
    assert message in output("ab", *sides, status=status)


@pytest.mark.parametrize(
    ("a", "b", "why"),
    [
        # The log may print few digits, or be a copy with another name.
        ([100.0] * 4, [99.0] * 4, "4 pairs give the same to the last digit: no scatter is known"),
        (speeds(100, 3, 3), speeds(100, 2, 2), "2 pairs; the next look is at 4"),
    ],
)
def test_what_decides_nothing(tmp_path: Path, a: list[float], b: list[float], why: str) -> None:
    assert call("ab", *sides_of(tmp_path, a, b), "--json", status=1).document["why"] == why


def test_a_campaign_is_not_compared_with_itself_or_a_copy(tmp_path: Path) -> None:
    found = campaigns(tmp_path, {"node1": speeds(100, 4, 1)})["node1"]
    shutil.copytree(found, tmp_path / "copy")
    for other in (found, tmp_path / "copy"):
        assert "so one is a copy" in output("ab", found, other, status=2)


def test_campaigns_that_were_run_one_after_the_other_are_no_pairs(tmp_path: Path) -> None:
    for side, day in (("a", 1), ("b", 2)):
        for repeat, rate in enumerate(speeds(100, 4, day), start=1):
            outcome = {"status": "done", "started": f"2026-11-0{day}T10:0{repeat}:00+00:00"}
            lines = [f"INFO:root:{side} {repeat}", *gluoncv(rate, world=1)]
            campaign_run(tmp_path / side, "1n1g", repeat, lines, outcome=outcome)
    printed = output("ab", tmp_path / "a", tmp_path / "b", status=2)
    assert "expected the runs r1 of both before r2 of either" in printed
    assert "`dlperf compare` judges campaigns that were run one after the other" in printed


def test_a_folder_with_other_versions_is_not_gone_on_with(tmp_path: Path, made: list[str]) -> None:
    """Else the verdict on the old side would be printed as that on the new one."""
    ab(tmp_path / "ab", 200, 190)
    sides = ("--a", "SPEED=200", "--b", "SPEED=220", "--campaign", tmp_path / "ab")
    printed = output("ab", *CHOICE, *sides, status=2)
    assert "the choice, the catalogue or this program has changed" in printed
    assert "start a new campaign" in printed
    folder = ("--name", "SPEED", "--campaign", tmp_path / "steps", "--slower", "5%")
    call("bisect", *CHOICE, *folder, "--versions", "200,190")
    printed = output("bisect", *CHOICE, *folder, "--versions", "200,230", status=2)
    assert "the choice, the catalogue or this program has changed" in printed


def test_what_a_side_may_say() -> None:
    texts = ["precision=fp16", "NCCL_ALGO=Ring", "image_size=64", "dlperf_mpirun_args=[-v]"]
    side = parse_side(texts, "--a")
    assert side.choice == {"precision": "fp16"}
    assert side.environment == {"NCCL_ALGO": "Ring"}
    assert side.parameters == {"image_size": "64"}
    assert side.nodes == {"dlperf_mpirun_args": ["-v"]}
    for text in ("precision", "repeats=3", "dlperf_nothing=1", "a b=1"):
        with pytest.raises(UserError):
            parse_side([text], "--a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--a", "X=1", "--b", "X=1"), "both sides are the same"),
        (("only-one",), "two campaigns are judged, or two sides are run"),
        (("--a", "X=1", "--workload", "mxnet-resnet50v1b"), "the choice has several cases"),
        (("--a", "X=1", "--b", "nothing=2", *CHOICE), "nothing"),
        (("--a", "X=1", "--repeats", "3", *CHOICE), "--repeats"),
    ],
)
def test_bad_input(made: list[str], arguments: tuple[object, ...], message: str) -> None:
    printed = output("ab", *arguments, status=2)
    assert message in printed
    assert "Traceback" not in printed


# ---- bisect


def planted(slow_from: int, random_numbers: random.Random) -> Callable[[str], Step]:
    """Judges versions of which those from a number on sleep 2 % of each step; CV 0.5 %."""
    test, noise = step_test(32, 0.05, 128, 0.02), random_numbers.gauss

    def judge(version: str) -> Step:
        factor = 0.98 if int(version) >= slow_from else 1.0
        pairs = [noise(0, 0.005) - noise(0, 0.005) + factor - 1 for _ in range(test.most)]

        def interval(size: int) -> object:
            return test.interval(pairs[:size])

        look = judged(test.most, test.sizes, interval, test.decide, "undecided")
        return Step(version, look.verdict, look.low, look.high, look.size)

    return judge


def test_a_planted_sleep_of_2_percent_in_one_of_32_commits_is_found() -> None:
    versions = [str(n) for n in range(32)]
    numbers = random.Random(1)  # noqa: S311  not for secrets
    results = [(first, search(versions, planted(first, numbers))) for first in range(1, 32)]
    assert all(len(found.steps) <= steps_of(32) for _, found in results)
    # At most 5 % wrong, at most a few undecided: of 31.
    wrong = [f for first, f in results if f.version is not None and int(f.version) != first]
    assert len(wrong) <= 3
    right = [first for first, f in results if f.version == str(first)]
    assert len(right) >= 27


def test_a_list_that_is_not_slower_at_its_end() -> None:
    found = search(["0", "1", "2"], planted(9, random.Random(3)))  # noqa: S311  not for secrets
    assert (found.version, found.why) == (None, "the last version is not slower: 2")


def test_bisect_runs_each_step_as_an_ab(tmp_path: Path, made: list[str]) -> None:
    versions = "200,200.4,200.2,190,190.4,190.2"
    bisect = ("bisect", *CHOICE, "--name", "SPEED", "--versions", versions, "--slower", "5%")
    bisect += ("--campaign", tmp_path / "steps")
    done = call(*bisect, "--json").document
    assert done["version"] == "190"
    assert [step["version"] for step in done["steps"]] == ["190.2", "200.2", "190"]
    assert sorted(path.name for path in (tmp_path / "steps").iterdir()) == ["3", "4", "6"]
    # Nothing is run again, and the text says the same.
    number = len(made)
    assert "first slow: 190\nAt most 4 steps" in output(*bisect)
    assert len(made) == number


def test_bisect_without_versions_says_which_option_to_type() -> None:
    printed = output("bisect", *CHOICE, "--name", "SPEED", status=2)
    assert printed == (
        "error: --versions: no versions to search\n"
        "  --versions good,..,bad, or with --repository GOOD..BAD\n"
    )


def test_versions_are_a_list_a_file_or_commits(tmp_path: Path) -> None:
    assert versions_of("1.0, 1.1,1.2", None) == ["1.0", "1.1", "1.2"]
    (tmp_path / "versions").write_text("1.0\n1.1\n")
    assert versions_of(str(tmp_path / "versions"), None) == ["1.0", "1.1"]
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    for number in range(4):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", str(number)], check=True)
    log = subprocess.check_output([*git, "log", "--format=%H", "--reverse"], text=True)
    assert versions_of("HEAD~2..HEAD", tmp_path) == log.split()[1:]
    of_git = ("HEAD", "--output=x..HEAD", "none..HEAD")
    for text, repository in (("1.0", None), ("a,a", None), *((text, tmp_path) for text in of_git)):
        with pytest.raises(UserError):
            versions_of(text, repository)
