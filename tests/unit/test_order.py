"""The order of the runs of a plan: which ones there are, and that a seed gives the same again."""

import json
from pathlib import Path

import pytest
from command_line import call
from plan_examples import gpu_nodes
from refusals import refusal

from dlperf_runner.catalog.reader import Catalog
from dlperf_runner.core.case import Run
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan.choice import Choice, parse_choice, recorded_choice
from dlperf_runner.plan.make import make_plan, plan_document


def planned(catalog: Catalog, **options: object) -> list[str]:
    """`1n2g/r3` for each run."""
    choice = parse_choice({"workload": "mxnet-resnet50v1b", "precision": "fp32", **options})
    return [short(run) for run in make_plan(choice, catalog, gpu_nodes())]


def short(run: Run) -> str:
    return f"{run.nodes}n{run.gpus_per_node}g/r{run.repeat}"


def test_repeats_are_interleaved_unless_another_order_is_chosen(catalog: Catalog) -> None:
    topologies = {"gpus_per_node": "1,2,4", "repeats": 2}
    interleaved = [f"1n{g}g/r{r}" for r in (1, 2) for g in (1, 2, 4)]
    assert planned(catalog, **topologies) == interleaved
    assert planned(catalog, **topologies, order="interleaved") == interleaved
    grouped = [f"1n{g}g/r{r}" for g in (1, 2, 4) for r in (1, 2)]
    assert planned(catalog, **topologies, order="grouped") == grouped


def test_a_case_with_more_repeats_than_others_ends_the_interleaved_order(
    catalog: Catalog,
) -> None:
    choice = parse_choice({"model": "resnet50v1b,resnet50v1.5", "nodes": 1, "gpus_per_node": 1})
    runs = make_plan(choice, catalog, gpu_nodes())
    assert [run.repeat for run in runs] == sorted(run.repeat for run in runs)
    assert {run.workload for run in runs if run.repeat == 5} == {"mxnet-resnet50v1b"}
    assert len({run.workload for run in runs if run.repeat == 1}) > 1


def test_a_random_order_is_the_one_of_its_seed(catalog: Catalog) -> None:
    first = planned(catalog, order="random", seed=1)
    assert first == planned(catalog, order="random", seed=1)
    assert first != planned(catalog, order="random", seed=2)
    assert sorted(first) == sorted(planned(catalog))
    # The repeats of a case ascend, so that r1 is its first run.
    for topology in {name.partition("/")[0] for name in first}:
        of_case = [name for name in first if name.startswith(f"{topology}/")]
        assert of_case == [f"{topology}/r{repeat}" for repeat in range(1, 6)]
    # Each of the 6 cases is about as often first as any other: 20 of 120 times, give or take 4.
    firsts = [planned(catalog, order="random", seed=seed, repeats=1)[0] for seed in range(120)]
    assert all(8 <= firsts.count(name) <= 36 for name in set(firsts))


@pytest.mark.usefixtures("lab")
def test_the_plan_records_order_and_seed(tmp_path: Path) -> None:
    argv = ["plan", "--json", "--order", "random", "--repeats", "5"]
    directory = tmp_path / "results" / "one"
    document = call(*argv, "--campaign", directory).document
    seed = document["choice"]["seed"]
    assert document["choice"]["order"] == "random"
    assert isinstance(seed, int)
    for name in ("plan.json", "campaign.json"):
        assert json.loads((directory / name).read_text())["choice"]["seed"] == seed
    # A new seed each time; the recorded one gives the recorded order.
    other = call(*argv).document
    again = call(*argv, "--seed", seed).document
    assert other["choice"]["seed"] != seed
    assert [run["id"] for run in again["runs"]] == [run["id"] for run in document["runs"]]
    text = call("plan", "--order", "random", "--seed", "7", "--repeats", "5")
    assert "25 runs, random (seed 7); nothing was run" in text.out
    # Each case once, whatever the order.
    assert text.out.count("mxnet-resnet50v1b-builtin_fp32_b2_1n2g: ") == 1
    assert recorded_choice(document["choice"]) == Choice(order="random", seed=seed, repeats=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "sorted"}, "--order: unknown order 'sorted' (expected one of interleaved, grou"),
        ({"seed": 1}, "--seed: a seed has an effect only on a random order (expected --order ran"),
        ({"order": "random", "seed": "x"}, "--seed: invalid number"),
        ({"until_ci": "1"}, "--until-ci: invalid percentage (expected a percentage below 100"),
        ({"max_repeats": 9}, "--max-repeats: this option has an effect only with --until-ci"),
        ({"until_ci": "1%", "max_repeats": 4}, "expected at least 5, found 4"),
        ({"until_ci": "1%", "max_repeats": 7, "repeats": 8}, "expected at least 8, found 7"),
    ],
)
def test_what_cannot_be_is_refused(
    catalog: Catalog, options: dict[str, object], message: str
) -> None:
    assert message in refusal(planned, catalog, **options)


def test_an_unknown_key_of_a_recorded_choice_is_refused(catalog: Catalog) -> None:
    document = plan_document(Choice(), gpu_nodes(), make_plan(Choice(), catalog, gpu_nodes()))
    assert recorded_choice(json.loads(json.dumps(document))["choice"]) == Choice()
    with pytest.raises(UserError, match="found colour"):
        recorded_choice({**document["choice"], "colour": "red"})
