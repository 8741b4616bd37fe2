"""benchmarks/scale.py: its simulation against arithmetic, and docs/scale.md against its output."""

import random
import re

import pytest
from modules import PROJECT, load

scale = load("benchmarks/scale.py")


def seconds(task: object, nodes: int, forks: int, cores: int) -> float:
    at = scale.Controller(forks, cores, spread=0.0)
    return scale.duration(task, nodes, at, random.Random(1))  # noqa: S311  no secret


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
    assert seconds(scale.Task(main=1, worker=2, wait=4), 10, forks, cores) == expected


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
