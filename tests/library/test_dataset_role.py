"""What the role `dataset` gets of the inventory, and what the published programs read."""

from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from standins import PROJECT

from dlperf_runner.catalog.workload import datasets
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import SYNTHETIC_DATASETS
from dlperf_runner.provision import datasets as data_sets

SPECS = yaml.safe_load((PROJECT / "roles/dataset/meta/argument_specs.yml").read_text())
GIVEN: dict[str, dict[str, Any]] = {
    "imagenet-recordio": {"path": "/a", "archive": "/a.tar", "sha256": "5f" * 32},
    "imagenet-tfrecord": {"path": "/b", "images": "/images", "parts": 3, "shared": True},
    "imagenet-ofrecord": {"synthetic": True, "records": 50, "seed": 4},
    "faces_emore": {"path": "/c"},
}


def test_the_role_takes_what_the_filter_makes_of_the_inventory() -> None:
    made = data_sets.sets(GIVEN)
    option = SPECS["argument_specs"]["main"]["options"]["dataset_sets"]
    result = ArgumentSpecValidator({"dataset_sets": {**option, "default": []}}).validate(
        {"dataset_sets": made}
    )
    assert not result.error_messages
    by_name = {each["name"]: each for each in made}
    assert by_name["imagenet-tfrecord"]["files"] == [f"train-0000{n}-of-00003" for n in range(3)]
    assert by_name["imagenet-recordio"]["files"] == ["train.rec", "train.idx"]
    assert by_name["imagenet-ofrecord"]["files"][-1] == "train/part-00043"
    assert by_name["imagenet-ofrecord"]["records"] == 50
    assert by_name["faces_emore"]["records"] == 5822653
    made_here = [name for name in by_name if by_name[name]["made"]]
    assert made_here == ["imagenet-recordio", "imagenet-tfrecord", "imagenet-ofrecord"]
    assert [each["name"] for each in data_sets.sets(GIVEN, ["faces_emore"])] == ["faces_emore"]


@pytest.mark.parametrize(
    "wrong", [{"imagenet": {"path": "/a"}}, {"faces_emore": {}}, {"faces_emore": {"paht": "/a"}}]
)
def test_a_mistake_is_refused_with_the_name_of_its_variable(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="dlperf_datasets"):
        data_sets.sets(wrong)


def test_nodes_that_failed_or_read_nothing_are_not_compared() -> None:
    results = [{"item": {"name": "faces_emore", "path": "/c"}, "files": 3, "bytes": 9}]
    found = data_sets.facts([{**results[0], "records": None, "digest": "5f"}])
    hosts = {"node1": {"dataset_found": found}, "node2": {}, "node3": {"dataset_found": {}}}
    assert data_sets.digests(list(hosts), hosts, "faces_emore") == {"node1": "5f"}


def test_workloads_name_files_that_their_data_sets_have() -> None:
    from dlperf_runner.catalog.reader import load_catalog
    from dlperf_runner.catalog.source import DataParameter

    named = {}
    for workload in load_catalog().workloads.values():
        data = workload.sources.upstream.data if workload.sources.upstream else None
        if isinstance(data, DataParameter) and data.dataset:
            named[data.dataset] = data
    assert set(named) == set(datasets())
    assert {f"{SYNTHETIC_DATASETS}/{name}" for name in named} == {
        each.synthetic for each in datasets().values()
    }
    for name, data in named.items():
        files = datasets()[name].files
        assert all(file.startswith(data.below) for file in files) or data.below in files
