"""`dlperf accept`: verdicts on the parts of a cluster from logs, and pages that can be checked."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from textwrap import dedent

import pytest
from accepted import SUITE, campaigns, speeds, started
from command_line import call, output
from make_logs import edit, gluoncv, write
from plan_examples import gpu_nodes, lab_nodes
from recorded_campaign import end

from dlperf_runner.accept.command import at_once
from dlperf_runner.accept.suite import Part
from dlperf_runner.campaign.directory import read_plan, remaining_plan
from dlperf_runner.core.node import Node

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.yml"
    path.write_text(SUITE)
    return path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two good nodes, and one that is 7 % slow."""
    levels = {"node1": 100.0, "node2": 100.4, "node3": 93.0}
    runs = {node: speeds(level, 6, seed) for seed, (node, level) in enumerate(levels.items())}
    campaigns(tmp_path / "results", runs)
    return tmp_path / "results"


def judged(suite: Path, results: Path, status: int = 1) -> dict:
    return call("accept", suite, "--results", results, "--json", status=status).document


def verdicts(document: dict) -> dict[str, str]:
    return {part["part"]: part["verdict"] for part in document["parts"]}


ALL_PASSED = dict.fromkeys(("node1", "node2", "node3"), "passed")


def test_a_slow_node_fails_and_the_others_pass(suite: Path, results: Path) -> None:
    document = judged(suite, results)
    assert verdicts(document) == {"node1": "passed", "node2": "passed", "node3": "failed"}
    slow = document["parts"][2]
    assert slow["low"] < -0.07 < slow["high"] < -0.05
    assert len(slow["logs"]) == 6
    # The first look that decides is the verdict; later runs change nothing.
    assert slow["judged_runs"] in slow["looks"]
    printed = call("accept", suite, "--results", results, status=1).text
    assert "failed: 1 failed, 2 passed." in printed


def test_runs_of_nodes_that_the_suite_lacks_are_told(suite: Path, results: Path) -> None:
    suite.write_text(SUITE.replace(", node3", ""))
    called = call("accept", suite, "--results", results)
    assert f"not judged: nodes that {suite} lacks: node3 (6 runs)" in called.err


PILOT = {"node1": speeds(100, 5, 1), "node2": speeds(100, 3, 2)}
NOISE = {f"node{n}": speeds(96, 5, n, cv=0.03) for n in (1, 2, 3)}
EQUAL = {f"node{n}": [96.0] * 5 for n in (1, 2, 3)}


@pytest.mark.parametrize(
    ("runs", "part", "why"),
    [
        (PILOT, 0, r"the pilot needs 5 runs of each part \(node2 has 3\)"),
        (PILOT, 2, "too few runs: no valid run"),
        (NOISE, 0, r"5 runs; the next look is at \d+"),
        (EQUAL, 0, "5 runs give the same to the last digit.*"),
    ],
)
def test_what_decides_nothing(
    suite: Path, tmp_path: Path, runs: dict[str, list[float]], part: int, why: str
) -> None:
    campaigns(tmp_path / "results", runs)
    document = judged(suite, tmp_path / "results")
    found = document["parts"][part]
    assert (document["verdict"], found["verdict"]) == ("undecided", "undecided")
    assert re.fullmatch(why, found["why"])


def test_noise_asks_for_more_runs(suite: Path, tmp_path: Path) -> None:
    campaigns(tmp_path / "results", NOISE)
    looks = judged(suite, tmp_path / "results")["parts"][0]["looks"]
    assert looks[0] == 5 and looks[2] > 20


def test_parts_are_pairs_units_and_all(suite: Path, tmp_path: Path) -> None:
    item = "  - {workload: mxnet-resnet50v1b, parts: "
    suite.write_text(
        "nodes: [node1, node2, node3, node4]\n"
        "units: {su1: [node1, node2], su2: [node3, node4]}\n"
        "items:\n"
        f"{item}each pair, target: 200 samples/s}}\n"
        f"{item}each unit, target: 200 samples/s, name: units}}\n"
        f"{item}all, target: 400 samples/s}}\n"
        f"{item}[[node1, node3]], target: 200 samples/s}}\n"
    )
    levels = {"node1+node2": 200.0, "node3+node4": 200.0, "node1+node2+node3+node4": 400.0}
    runs = {part: speeds(level, 6, n, 0.001) for n, (part, level) in enumerate(levels.items())}
    campaigns(tmp_path / "results", runs)
    parts = judged(suite, tmp_path / "results")["parts"]
    assert len(parts) == 6 + 2 + 1 + 1
    passed = {(part["item"], part["part"]) for part in parts if part["verdict"] == "passed"}
    named = {("mxnet-resnet50v1b", part) for part in ("node1+node2", "node3+node4", "all")}
    assert passed == {*named, ("units", "su1"), ("units", "su2")}


def test_a_part_can_set_the_target(suite: Path, results: Path) -> None:
    suite.write_text(SUITE.replace("100 samples/s", "{reference: node1}"))
    assert verdicts(judged(suite, results)) == {"node2": "passed", "node3": "failed"}


def test_a_published_number_is_the_target_of_equal_conditions(suite: Path, tmp_path: Path) -> None:
    item = "  - {workload: mxnet-resnet50v1b, parts: "
    suite.write_text(
        "nodes: [node1, node2, node3]\nitems:\n"
        f"{item}[[node1, node2]], target: 200 samples/s}}\n"
        f"{item}[[node3]], target: {{published: mxnet-resnet50v1b}}}}\n"
    )
    of_parts = {"node1+node2": speeds(200, 6, 1, 0.001), "node3": speeds(384.2, 6, 2, 0.001)}
    campaigns(tmp_path / "results", of_parts)
    pair, single = judged(suite, tmp_path / "results")["parts"]
    assert (pair["verdict"], single["verdict"]) == ("passed", "undecided")
    assert single["why"].startswith("not comparable: accelerator")


def test_logs_without_records_are_in_a_directory_of_their_part(suite: Path, tmp_path: Path) -> None:
    for n in (1, 2, 3):
        for repeat, speed in enumerate(speeds(100, 5, n, 0.002), start=1):
            name = f"logs/node{n}/1n1g/rn50_b128_fp32_{repeat}.log"
            write(tmp_path / name, gluoncv(speed, world=1))
    assert verdicts(judged(suite, tmp_path / "logs", status=0)) == ALL_PASSED


def test_runs_of_jobs_are_on_the_nodes_that_they_got(suite: Path, tmp_path: Path) -> None:
    for n in (1, 2, 3):
        hosts = {f"node{n}": {"hostname": f"node{n}"}}
        outcome = {"status": "done", "hosts": hosts, "versions": {}}
        runs = {"@node1@": speeds(100, 5, n, 0.002)}
        campaigns(tmp_path / "jobs" / f"node{n}", runs, outcome=outcome)
    assert verdicts(judged(suite, tmp_path / "jobs", status=0)) == ALL_PASSED


def test_the_looks_go_by_the_start_of_runs(suite: Path, tmp_path: Path) -> None:
    """The names of these runs do not have the order in which they were made: node3 was slow at
    first, and is judged by its first five."""
    suite.write_text(SUITE.replace("items", "looks: [5, 10]\nitems"))
    runs = {f"node{n}": speeds(100, 10, n, 0.002) for n in (1, 2)}
    runs["node3"] = [*speeds(100, 5, 3, 0.002), *speeds(93, 5, 4, 0.002)]
    campaigns(tmp_path / "results", runs)
    assert verdicts(judged(suite, tmp_path / "results", status=0))["node3"] == "passed"
    records = sorted((tmp_path / "results/node3").rglob("run.json"))
    for record in records:
        document = json.loads(record.read_text())
        document["outcome"]["started"] = started((document["repeat"] + 4) % 10)
        record.write_text(json.dumps(document))
    slow = judged(suite, tmp_path / "results")["parts"][2]
    assert (slow["verdict"], slow["judged_runs"], slow["without_start"]) == ("failed", 5, 0)
    names = [log["log"].rpartition("_")[2] for log in slow["logs"]]
    assert names == [f"{n}.log" for n in (6, 7, 8, 9, 10, 1, 2, 3, 4, 5)]
    # Without the start of one run, nothing is known of the order: this is said wherever it is read.
    edit(records[:1], '"started"', '"began"')
    page = tmp_path / "page"
    printed = output("accept", suite, "--results", tmp_path / "results", "--page", page)
    remark = "node3: 1 run without a recorded start, so the looks go by the names of logs."
    assert remark in printed
    assert remark in (page / "acceptance.html").read_text()
    assert json.loads((page / "acceptance.json").read_text())["parts"][2]["without_start"] == 1


# ---- measuring


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Nodes whose runs have known speeds: node2 is 7 % slow. Gives the runs that were made."""
    made: list[str] = []

    def execute(directories: Sequence[Path], _: object) -> list[str]:
        for directory, run in ((d, run) for d in directories for run in remaining_plan(d)["runs"]):
            (host,) = run["hosts"]
            level = {"node1": 10.0, "node2": 9.3}[host]
            # No two logs are equal: copies do not count.
            factor = (1.026, 0.986, 1.016, 0.976, 0.996)[run["repeat"] % 5]
            end(directory, run, level * factor + 0.01 * (run["repeat"] // 5))
            made.append(f"{host} {run['id'].rpartition('/')[2]}")
        return []

    def nodes(_: object, limit: str | None = None, **__: object) -> tuple[Node, ...]:
        return tuple(n for n in lab_nodes() if limit is None or n.name in limit.split(","))

    monkeypatch.setattr("dlperf_runner.accept.command.run_at_once", execute)
    monkeypatch.setattr("dlperf_runner.plan.inventory.read_inventory", nodes)
    monkeypatch.setattr("dlperf_runner.accept.command.read_inventory", nodes)
    return made


ITEM = "{workload: mxnet-resnet50v1b, gpus_per_node: 1, parts: each node, target: 10 samples/s}"


def test_parts_are_measured_until_decided(suite: Path, tmp_path: Path, lab: list[str]) -> None:
    suite.write_text(f"nodes: [node1, node2]\nitems: [{ITEM}]\n")
    measure = ("accept", suite, "--measure", tmp_path / "measured", "--json")
    first = call(*measure, status=1).document
    assert verdicts(first) == {"node1": "passed", "node2": "failed"}
    # All parts have a pilot; only the part that it does not decide has more runs.
    assert lab[:10] == [f"{node} r{n}" for node in ("node1", "node2") for n in range(1, 6)]
    assert {run.split()[0] for run in lab[10:]} == {"node2"}
    number = len(lab)
    assert first["parts"][1]["runs"] == first["parts"][1]["judged_runs"] == number - 5
    # Everything is decided, so that nothing is run again.
    assert (call(*measure, status=1).document, len(lab)) == (first, number)


def test_the_suite_of_the_page_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (DOCS / "acceptance.md").read_text()
    suite = tmp_path / "suite.yml"
    suite.write_text(dedent(text.partition("prints them:\n")[2].partition("3. **")[0]))
    nodes = gpu_nodes(4, 8, stack="h100-cuda12.9", accelerator="NVIDIA H100 80GB HBM3")

    def at_once(places: Sequence[Path], _: object) -> list[str]:
        planned.extend(len(read_plan(place)["runs"]) for place in places)
        return []

    planned: list[int] = []
    monkeypatch.setattr("dlperf_runner.accept.command.run_at_once", at_once)
    monkeypatch.setattr("dlperf_runner.accept.command.read_inventory", lambda *_, **__: nodes)
    printed = output("accept", suite, "--measure", tmp_path / "measured", status=1)
    assert planned == [5] * (4 + 2 + 6)
    assert "undecided: 11 undecided." in printed
    # Without `model`, an item means three collectives: that is refused before anything runs.
    suite.write_text(suite.read_text().replace("    model: nccl-all-reduce\n", ""))
    printed = output("accept", suite, "--measure", tmp_path / "other", status=2)
    assert "items.2: the choice has several cases" in printed
    assert len(planned) == 12


def test_a_folder_of_another_suite_is_refused(suite: Path, tmp_path: Path, lab: list[str]) -> None:
    suite.write_text(f"nodes: [node1]\nitems: [{ITEM.replace('10', '20')}]\n")
    output("accept", suite, "--measure", tmp_path / "measured", status=1)
    edit([suite], "gpus_per_node: 1", "gpus_per_node: 1, iterations: 60")
    printed = output("accept", suite, "--measure", tmp_path / "measured", status=2)
    assert "the choice, the catalogue or this program has changed" in printed


def test_parts_that_share_no_node_are_measured_at_once() -> None:
    nodes = [f"node{n}" for n in range(1, 9)]
    pairs = [Part("+".join(pair), frozenset(pair)) for pair in combinations(nodes, 2)]
    groups = at_once((0, pair, Path(pair.name), 5) for pair in pairs)
    # As few groups as a tournament has rounds: each node is in one pair of each.
    assert len(groups) == 7
    assert all(len(group) == 4 for group in groups)
    assert all(len({h for _, pair, *_ in group for h in pair.hosts}) == 8 for group in groups)
    assert sorted(w[1].name for group in groups for w in group) == sorted(p.name for p in pairs)


OTHERS = "the runs are not those that the manifest recorded"


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (shutil.rmtree, OTHERS),
        (lambda run: next(run.glob("*.log")).unlink(), OTHERS),
        (lambda run: edit([run / "run.json"], '"done"', '"failed"'), OTHERS),
        (lambda run: shutil.copytree(run, run.with_name("r99")), OTHERS),
        (lambda run: (run.parents[2] / "manifest.jsonl").unlink(), OTHERS),
        (lambda run: edit(run.glob("*.log"), "Speed: 3", "Speed: 4"), ".log: changed since manif"),
    ],
)
def test_runs_that_somebody_took_out_added_or_changed_are_refused(
    suite: Path, tmp_path: Path, lab: list[str], tamper: Callable[[Path], object], message: str
) -> None:
    """The slow runs of a part are missing, so that it would pass."""
    suite.write_text(f"nodes: [node1]\nlooks: [4]\nmargin: 10%\nslow: 12%\nitems: [{ITEM}]\n")
    output("accept", suite, "--measure", tmp_path / "measured", status=None)
    tamper(next((tmp_path / "measured").rglob("r3")))
    assert message in output("accept", suite, "--results", tmp_path / "measured", status=2)


# ---- pages


@pytest.fixture
def key(tmp_path: Path) -> Path:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    public = key.with_suffix(".pub").read_text()
    (tmp_path / "allowed").write_text(f'me@example.org namespaces="dlperf_runner" {public}')
    return key


def test_a_third_person_can_check_a_page(
    suite: Path, results: Path, key: Path, tmp_path: Path
) -> None:
    page, other = tmp_path / "page", tmp_path / "other"
    suite.write_text(SUITE.replace("rack 7", "<script>alert(1)</script>"))
    output("accept", suite, "--results", results, "--page", page, "--sign", key, status=1)
    text = (page / "acceptance.html").read_text()
    assert '&lt;script&gt;alert(1)&lt;/script&gt;: <span class="failed">failed' in text
    assert "<script" not in text
    # Elsewhere, with copies of everything.
    for source in (results, page):
        shutil.copytree(source, other / source.name)
    again = ("accept", suite, "--results", other / "results", "--check", other / "page")
    printed = call(*again, "--allowed-signers", tmp_path / "allowed")
    assert "as computed from the suite and the logs" in printed.out
    assert 'Good "dlperf_runner" signature for me@example.org' in printed.err


def changed_log(results: Path, _: Path) -> None:
    """Somebody replaces a log of the slow node."""
    write(next(results.rglob("node3/**/*_1.log")), gluoncv(100.0))


def added_log(results: Path, _: Path) -> None:
    campaigns(results, {"node3-again": []})
    folder = next((results / "node3").rglob("r6"))
    added = Path(shutil.copytree(folder, folder.with_name("r7")))
    record = json.loads((folder / "run.json").read_text())
    record |= {"repeat": 7, "id": record["id"].replace("r6", "r7")}
    (added / "run.json").write_text(json.dumps(record))
    write(next(added.glob("*.log")), gluoncv(99.0, world=1))


def changed_page(ending: str, old: str, new: str) -> Callable[[Path, Path], object]:
    return lambda _, page: edit([page / f"acceptance.{ending}"], old, new)


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (changed_log, "_1.log sha256: "),
        (added_log, "r7/rn50_b128_fp32_6.log: missing on the page, present here"),
        (changed_page("json", '"failed"', '"passed"'), "acceptance.json: changed since manifest"),
        (changed_page("html", ">failed<", ">passed<"), "acceptance.html: changed since manifest"),
    ],
)
def test_a_forgery_shows(
    suite: Path, results: Path, tmp_path: Path, forge: Callable[..., object], message: str
) -> None:
    page = tmp_path / "page"
    output("accept", suite, "--results", results, "--page", page, status=1)
    forge(results, page)
    assert message in output("accept", suite, "--results", results, "--check", page, status=1)


def test_another_signature_shows(suite: Path, results: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    output("accept", suite, "--results", results, "--page", page, status=1)
    check = ("accept", suite, "--results", results, "--check", page)
    assert "is not signed" in output(*check, "--allowed-signers", tmp_path / "allowed", status=1)
    assert "as computed" in output(*check)
    suite.write_text(SUITE.replace("items", "margin: 6%\nitems"))
    assert "suite margin: missing on the page, 6% here" in output(*check, status=1)


def test_a_check_names_the_nodes_of_the_page(suite: Path, results: Path, tmp_path: Path) -> None:
    """A page can have fewer nodes than were delivered."""
    suite.write_text(SUITE.replace("nodes: [node1, node2, node3]", "inventory: hosts"))
    (tmp_path / "hosts").write_text("[nodes]\nnode1\nnode2\n")
    output("accept", suite, "--results", results, "--page", tmp_path / "page")
    (tmp_path / "hosts").write_text("[nodes]\nnode1\nnode2\nnode3\n")
    check = call("accept", suite, "--results", results, "--check", tmp_path / "page")
    assert "nodes as the page has them, not hosts: node1, node2" in check.err


def test_runs_without_the_container_of_an_item_do_not_count(suite: Path, results: Path) -> None:
    suite.write_text(SUITE.replace("    parts", "    container: podman\n    parts"))
    document = judged(suite, results)
    assert {part["why"] for part in document["parts"]} == {"too few runs: no valid run"}


NODE1 = '{"suite": {"nodes": ["node1"], "units": '


@pytest.mark.parametrize(
    "document",
    [
        *("[]", "{}", '{"suite": [], "parts": []}', NODE1 + '[]}, "parts": []}'),
        *(NODE1 + '{}}, "parts": [1]}', NODE1 + '{}}, "parts": [{"logs": [{"log": 1}]}]}'),
    ],
)
def test_a_page_that_is_none(suite: Path, results: Path, tmp_path: Path, document: str) -> None:
    (tmp_path / "page").mkdir()
    (tmp_path / "page/acceptance.json").write_text(document)
    printed = output("accept", suite, "--results", results, "--check", tmp_path / "page", status=2)
    assert "acceptance.json" in printed
    assert "Traceback" not in printed


# ---- bad input


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("100 samples/s", "100 images/s", "a number with its unit (samples/s, tokens/s, GB/s)"),
        ("100 samples/s", "{reference: node9}", "unknown reference part 'node9'"),
        ("each node", "each unit", "the item has no parts"),
        ("each node", "[[node9]]", "unknown node 'node9'"),
        ("items", "margin: 8%\nitems", "a part within the margin cannot fail"),
        ("items", "margin: five\nitems", "expected a percentage like 5%"),
        ("parts: each node", "parts: each nod", "items.0.parts: invalid value"),
        ("    parts", "    part", "part"),
        ("100 samples/s", "100 tokens/s", "the target has another unit than the runs"),
        ("100 samples/s", "{published: none}", "none has no number for a case of these runs"),
    ],
)
def test_bad_input(suite: Path, results: Path, old: str, new: str, message: str) -> None:
    suite.write_text(SUITE.replace(old, new))
    printed = output("accept", suite, "--results", results, status=2)
    assert message in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    ("key", "value"), [("source", "upstream"), ("parameters", {"image_size": 64})]
)
def test_one_target_does_not_judge_parts_that_ran_different_cases(
    suite: Path, tmp_path: Path, key: str, value: object
) -> None:
    results = tmp_path / "results"
    campaigns(results, {f"node{n}": speeds(101, 6, n, 0.002) for n in (1, 2)})
    campaigns(results, {"node3": speeds(101, 6, 3, 0.002)}, **{key: value})
    printed = output("accept", suite, "--results", results, status=2)
    assert "the results have several cases of this item" in printed
    assert f"`{key}:` with one of" in printed


def test_a_part_does_not_pass_by_the_runs_that_did_not_fail(suite: Path, tmp_path: Path) -> None:
    runs = {f"node{n}": speeds(101, 7, n, 0.002) for n in (1, 2, 3)}
    home = campaigns(tmp_path / "results", runs)["node3"]
    edit(home.rglob("r1/run.json"), '"done"', '"failed"')
    printed = judged(suite, home.parent)
    assert verdicts(printed) == {"node1": "passed", "node2": "passed", "node3": "undecided"}
    assert printed["parts"][2]["why"].startswith("1 run not counted, such as node3/runs/")


def test_runs_with_the_same_log_are_one_and_that_is_said(suite: Path, tmp_path: Path) -> None:
    homes = campaigns(tmp_path / "results", {f"node{n}": speeds(101, 5, n) for n in (1, 2, 3)})
    first, second, *_ = sorted(homes["node3"].rglob("*.log"))
    shutil.copy(first, second)
    printed = judged(suite, tmp_path / "results")
    why = "the pilot needs 5 runs of each part (node3 has 4); 1 run not counted, such as node3/runs"
    assert printed["parts"][2]["why"].startswith(why)
    assert f": a copy of {first.relative_to(homes['node3'])}" in printed["parts"][2]["why"]


@pytest.mark.parametrize(
    "options", [("--sign", "k"), ("--allowed-signers", "f"), ("--page", "a", "--check", "b")]
)
def test_options_without_effect(suite: Path, results: Path, options: tuple[str, ...]) -> None:
    output("accept", suite, "--results", results, *options, status=2)
