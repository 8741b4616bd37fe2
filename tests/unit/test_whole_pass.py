"""One pass over the data is as long as a run: a pass that ends starts the loader anew.

The patched programs themselves are tested where DLPERF_SOURCE_MIRROR names a directory of mirrors.
"""

import ast
import math
import numbers
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from plan_examples import gpu_nodes
from upstream_sources import source_mirror, texts_of

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan
from dlperf_runner.plan.sources import prepare_source
from dlperf_runner.workloads.whole_pass import whole_pass

IMAGENET = 1_281_167
NOISE = 1024


def test_every_published_run_of_mxnet_resnet_is_within_one_pass() -> None:
    """Of the noise too, of which 25 of the 60 runs had no batch for each process."""
    nodes = gpu_nodes()
    options = {"workload": "mxnet-resnet50v1b", "source": "upstream", "matrix": "published"}
    runs = make_plan(parse_choice(options, []), load_catalog(), nodes)
    assert len(runs) == 60
    for run in runs:
        argv = run.commands[0].argv
        batches, batch_size, workers = (
            int(argv[argv.index(option) + 1])
            for option in ("--iterations", "--batch-size", "--data-nthreads")
        )
        assert (batches, workers) == (120, 8)
        for images in (NOISE, IMAGENET):
            data_set = whole_pass(range(images), batches, batch_size, run.world_size, workers)
            share = range(len(data_set) // run.world_size)  # of a rank
            # Two batches a worker are under way at the end of the run, as at its beginning.
            assert len(share) // batch_size >= batches + 2 * workers, run.id
            assert data_set[share[-1]] == share[-1] % images
        assert data_set == range(IMAGENET)  # what was published, as it is


def test_an_empty_data_set_is_no_pass() -> None:
    with pytest.raises(ValueError, match="the data set has no samples"):
        whole_pass([], 120, 128, 1, 8)


# ---- the patched programs


def patched(workload: str, name: str, directory: Path) -> ast.Module:
    made = prepare_source(load_catalog(), workload, "upstream", source_mirror(), directory)
    (text,) = (text for path, text in texts_of(made.path).items() if path.endswith(f"/{name}"))
    return ast.parse(text)


def defined(tree: ast.Module, *names: str, **others: Any) -> dict[str, Any]:
    """The classes and functions of these names, with others in place of what they refer to."""
    tree.body = [part for part in tree.body if getattr(part, "name", None) in names]
    exec(compile(tree, "upstream", "exec"), others)  # noqa: S102  the published program
    return others


@pytest.mark.parametrize("world_size", [1, 4])
def test_the_loader_of_gluon_cv_has_one_pass_for_the_run(
    world_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = patched("mxnet-resnet50v1b", "train_horovod.py", tmp_path)
    monkeypatch.setitem(sys.modules, "gluoncv.utils.transforms", MagicMock())
    mx, gluon = MagicMock(), MagicMock()
    mx.gluon.data.sampler.Sampler = object
    recorded = mx.gluon.data.vision.ImageRecordDataset.return_value
    recorded.transform_first.return_value = range(NOISE)
    others = {"mx": mx, "gluon": gluon, "transforms": MagicMock(), "math": math, "random": random}
    others |= {"num_workers": world_size, "rank": world_size - 1}
    found = defined(tree, "SplitSampler", "get_train_data", **others)
    arguments = SimpleNamespace(iterations=120, auto_aug=False)
    found["get_train_data"]("train.rec", 128, 8, 224, 0.875, arguments)
    (data_set,), options = gluon.data.DataLoader.call_args
    drawn = [data_set[index] for index in options["sampler"]]
    assert len(drawn) // options["batch_size"] == 120 + 2 * options["num_workers"] == 136
    assert set(drawn) == set(range(NOISE))


def test_the_iterator_of_arcface_does_not_end(tmp_path: Path) -> None:
    tree = patched("mxnet-arcface", "image_iter.py", tmp_path)
    label = SimpleNamespace(label=1.0)
    others = {
        "io": SimpleNamespace(DataIter=object),
        "numbers": numbers,
        "recordio": SimpleNamespace(unpack=lambda record: (label, record)),
    }
    kind = defined(tree, "FaceImageIter", **others)["FaceImageIter"]
    found = kind.__new__(kind)
    found.cur, found.seq, found.imgrec = 0, [2, 0, 1], SimpleNamespace(read_idx=lambda at: at)
    assert [found.next_sample()[1] for _ in range(7)] == [2, 0, 1, 2, 0, 1, 2]
