"""What `list` shows of the catalogue."""

import json
import re
from dataclasses import replace

import pytest

from dlperf_runner import logs
from dlperf_runner.catalog.reader import Catalog
from dlperf_runner.commands import list as listing
from dlperf_runner.core.errors import UserError

KINDS = ("workloads", "matrices", "frameworks", "stacks", "published", "formats")


def everything(catalog: Catalog, width: int = 80) -> str:
    return "\n".join(listing.render(catalog, what, width) for what in KINDS)


def test_the_names_fit_a_screen(catalog: Catalog) -> None:
    lines = listing.render(catalog).splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    words = " ".join(lines).replace(",", " ").split()
    assert {*catalog.workloads, *catalog.frameworks, *catalog.stacks} <= {*words}


@pytest.mark.parametrize("width", [80, 60, 200])
def test_everything_is_named_and_no_line_is_too_wide(catalog: Catalog, width: int) -> None:
    text = everything(catalog, width)
    words = set(re.split(r"[\s,:()]+", text))
    assert {kind.capitalize() for kind in KINDS} <= words
    assert {*catalog.workloads, *catalog.frameworks, *catalog.stacks, *logs.formats()} <= words
    for workload in catalog.workloads.values():
        assert {*workload.matrices, *workload.model_names, workload.log_format} <= words
        for _, source in workload.sources.items():
            assert getattr(source, "repository", "at") in words
    for framework in catalog.frameworks.values():
        assert {*framework.stacks, *framework.flavors} <= words
    # A path of a requirements file is one word.
    assert all(len(line) <= width or len(line.split()) == 1 for line in text.splitlines())


def test_what_matrix_workload_and_stack_are(catalog: Catalog) -> None:
    text = everything(catalog)
    for shown in (
        "  mxnet-arcface published: 20 cases, 100 runs\n"
        "    topologies  1n1g 1n2g 1n4g 1n8g\n"
        "    batches     r100 fp32 b64 b96, y1 fp32 b128 b256 b352\n"
        "    each        5 repeats of 120 iterations, 20 of them warm-up\n",
        "    upstream     dmlc/gluon-cv at f9a8a284b822, 9 patches, started by mpirun\n",
        "    driver             440.33.01",
    ):
        assert shown in text


def test_a_library_that_a_framework_lacks_is_named_with_its_reason(catalog: Catalog) -> None:
    text = " ".join(listing.render(catalog, "frameworks").split())
    assert "Horovod none: 0.28.1, its newest release, does not compile with 2.21" in text
    lacking = listing.document(catalog, "frameworks")["frameworks"]["tensorflow2"]["lacking"]
    assert list(lacking) == ["Horovod"]


def test_a_workload_without_an_upstream_source_says_why(catalog: Catalog) -> None:
    text = " ".join(listing.render(catalog, "workloads").split())
    assert "upstream none: the published program, classifier_trainer.py of tensorflow" in text
    document = listing.document(catalog, "workloads")["workloads"]
    assert document["paddle3-resnet50v1.5"]["no_upstream"] == "the published programs need ImageNet"
    for workload in catalog.workloads.values():
        names = [name for name, _ in workload.sources.items()]
        assert (names == ["builtin"]) == (workload.no_upstream is not None), workload.name


def test_document_for_programs(catalog: Catalog) -> None:
    document = json.loads(json.dumps(listing.document(catalog)))
    assert tuple(document) == KINDS
    matrix = document["matrices"]["mxnet-arcface"]["published"]
    assert (matrix["cases"], matrix["runs"], matrix["repeats"]) == (20, 100, 5)
    assert matrix["rule"]["total_steps"] == 120
    assert set(document["frameworks"]["mxnet"]["environments"]) == {"cpu", "v100-cuda10.2"}


def test_unknown_kind_and_empty_catalogue(catalog: Catalog) -> None:
    kinds = "one of workloads, matrices, frameworks, stacks, published"
    with pytest.raises(UserError, match=kinds):
        listing.render(catalog, "models")
    text = everything(replace(catalog, workloads={}, frameworks={}, stacks={}))
    assert text.startswith("Workloads\n\nMatrices\n\nFrameworks\n\nStacks\n\nPublished\n")
