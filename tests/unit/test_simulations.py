"""docs/statistics.md states what benchmarks/simulations.py computes: a small run of each agrees.
docs/scale.md holds the output of benchmarks/scale.py, whose simulation agrees with arithmetic."""

import math
import random
import re

import numpy as np
import pytest
from modules import PROJECT, load

PAGE = (PROJECT / "docs" / "statistics.md").read_text(encoding="utf-8")
TRIALS = 150
scale = load("benchmarks/scale.py")
NAMES = (
    *("steady", "case", "published", "family-wise", "missed", "verdicts", "unequal", "found"),
    *("campaigns", "adaptive", "change-points", "changes-found", "accept", "paired", "bisect"),
    "hunt",
)


def stated() -> dict[str, list[float]]:
    """The rows of the page that hold nothing but shares."""
    rows: dict[str, list[float]] = {}
    for line in PAGE.splitlines():
        label, *cells = [cell.strip() for cell in line.strip().strip("|").split(" | ")]
        if cells and all(re.fullmatch(r"\d+(\.\d)? %", cell) for cell in cells):
            assert label not in rows
            rows[label] = [float(cell.removesuffix(" %")) / 100 for cell in cells]
    return rows


@pytest.fixture(scope="module")
def found() -> dict[str, list[tuple[float, int]]]:
    module = load("benchmarks/simulations.py")
    assert tuple(module.SIMULATIONS) == NAMES
    return {
        label: shares
        for simulate in module.SIMULATIONS.values()
        for label, shares in simulate(np.random.default_rng(11), TRIALS)
    }


def test_every_stated_share_is_simulated_and_agrees(
    found: dict[str, list[tuple[float, int]]],
) -> None:
    pages = stated()
    assert found.keys() == pages.keys()
    # Each table of the page names its simulation.
    assert {*re.findall(r"`--only ([\w-]+)`", PAGE)} == {*NAMES}
    for label, shares in found.items():
        for (value, trials), expected in zip(shares, pages[label], strict=True):
            # Four standard errors; a share near 0 or 1 may differ by three events.
            error = 4 * math.sqrt(expected * (1 - expected) / trials) + 3 / trials
            assert value == pytest.approx(expected, abs=error + 0.005), label


def test_the_runs_that_a_gate_needs_follow_from_the_simulation() -> None:
    pages = stated()
    needed = re.findall(r"^\| ([\d.]+ %) \| (\d+) runs \| (\d+) runs \| (\d+) runs \|$", PAGE, re.M)
    assert [cv for cv, *_ in needed] == ["0.5 %", "1 %", "1.5 %"]
    for cv, *sizes in needed:
        for place, size in enumerate(sizes):
            assert pages[f"CV {cv}, {size} and {size} runs"][place] <= 0.05
            fewer = [int(m[1]) for label in pages if (m := re.match(rf"CV {cv}, (\d+) ", label))]
            smaller = max((n for n in fewer if n < int(size)), default=None)
            if smaller is not None:
                assert pages[f"CV {cv}, {smaller} and {smaller} runs"][place] > 0.05


def test_promises_of_the_page() -> None:
    pages = stated()
    for label, shares in pages.items():
        if label.startswith(("normal, ", "skewed, ")):
            assert max(shares) <= 0.055, label
        if re.match(r"CV [\d.]+ % and 1 %, normal, ", label):
            # 5 % within two standard errors of the fewest trials, 1,000.
            assert max(shares) <= 0.065, label
        if label.endswith("published"):
            assert shares[0] >= 0.95, label
    for label in ("independent campaigns", *(f"neighbours correlate by {c}" for c in (0.3, 0.5))):
        assert max(pages[label]) < 0.05


# ---- the time of a playbook on many nodes


@pytest.mark.parametrize(
    ("forks", "cores", "expected"),
    [
        (1, 1, 10 * (1 + 2 + 4)),  # one after the other
        (10, 10, 10 * 1 + 2 + 4),  # limited by the process that starts them
        (10, 1, 1 + 10 * 2 + 4),  # limited by the only core
        (2, 10, 5 * (1 + 2 + 4) + 1),  # two by two, the second a second later
    ],
)
def test_a_task_takes_as_long_as_its_bottleneck(forks: int, cores: int, expected: float) -> None:
    task, at = scale.Task(main=1, worker=2, wait=4), scale.Controller(forks, cores, spread=0.0)
    assert scale.duration(task, 10, at, random.Random(1)) == expected  # noqa: S311  no secret


def test_an_environment_in_a_tree_passes_few_nodes() -> None:
    assert [scale.levels(nodes) for nodes in (1, 2, 3, 4, 1000, 1024)] == [0, 1, 1, 2, 9, 10]
    inputs = dict.fromkeys(("environment_gib", "mirror_gbit", "node_gbit"), 1.0)
    inputs |= {"install_s_per_gib": 3.0, "pack_s_per_gib": 5.0, "unpack_s_per_gib": 7.0}
    s = scale.GIB / scale.GBIT  # for 1 GiB over a link of 1 Gb/s
    slow = {**inputs, "ssh_s_per_gib": 100.0}
    fast = {**inputs, "ssh_s_per_gib": 1.0}
    assert scale.spreading(1, fast) == (s + 3, s + 3)
    assert scale.spreading(1000, fast) == (1000 * s + 3, s + 3 + 5 + 7 + 9 * 2 * s)
    assert scale.spreading(1000, slow) == (1000 * s + 3, s + 3 + 5 + 7 + 9 * 100)


def test_the_documented_table_is_the_computed_one() -> None:
    inputs = scale.values()
    computed = list(scale.table(inputs, inputs["forks"], inputs["cores"]))
    text = (PROJECT / "docs/scale.md").read_text().split("## How files")[0]
    rows = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)[2:]
    assert [row.split(" | ") for row in rows] == computed
