"""The catalogue is read whole and checked; a mistake is told with its line, key and remedy."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.version import Version
from plan_examples import write_catalog
from refusals import refusal

from dlperf_runner.catalog import source as entry_source
from dlperf_runner.catalog import stack as entry_stack
from dlperf_runner.catalog import workload as entries
from dlperf_runner.catalog.reader import CATALOG, load_catalog
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan import inventory


def test_the_schema_holds_all_published_workloads(tmp_path: Path) -> None:
    loaded = load_catalog(write_catalog(tmp_path))
    assert loaded == load_catalog()
    names = ("arcface", "arcface-r100", "arcface-y1")
    assert loaded.workloads["mxnet-arcface"].model_names == names
    assert loaded.workloads["tensorflow-resnet50v1.5"].precisions == ("fp32", "amp")
    upstream = loaded.workloads["paddle-arcface"].sources.upstream
    assert upstream is not None and upstream.taken == ("plsc", "demo", "LICENSE")


def test_each_framework_has_an_environment_for_each_stack_or_says_why_not() -> None:
    shipped = load_catalog()
    for framework in shipped.frameworks.values():
        have, lack = set(framework.stacks), set(framework.unavailable)
        assert have | lack == set(shipped.stacks), framework.name
        assert not have & lack


MXNET, ARCFACE = "workloads/mxnet-resnet50v1b.yml", "workloads/mxnet-arcface.yml"
PADDLE, MEGATRON = "workloads/paddle-arcface.yml", "workloads/megatron-llama.yml"
STEPS, SIZE = '--iterations, "{total_steps}"', "{image_size: 64, data_nthreads: 1}"
FP16 = "precision: fp16, batch_size_per_device: 256"
BUILTIN = "- dlperf_runner/workloads/mxnet_resnet50.py"
Y1 = "variant: y1, precision: fp32, batch_size_per_device: 352"
BATCHES = "batches: [{precision: bf16, batch_size_per_device: 1}]"
A_MATRIX = f"matrices: {{a: {{topologies: [1n1g], {BATCHES}}}}}\nrule:"
SOURCES, SMOKE = "{line}: sources.builtin.", "{line}: matrices.smoke."
PUBLISHED = "{line}: matrices.published."
# The words of the message are between bars.
MISTAKES = [
    (MXNET, "launcher: mpirun", "launcher: mpirum", "{line}: launcher: | torchrun, | 'mpirum'"),
    (MXNET, "short_name: rn50", "short_nam: rn50", "{line}: short_nam: | one of name, title,"),
    (MXNET, "short_name: rn50\n", "", "the key short_name is missing"),
    (MXNET, "matrices:\n", "no_upstream: a\nmatrices:\n", "{line}: no_upstream: | one of the two"),
    (MXNET, "repeats: 5", "repeats: five", PUBLISHED + "repeats: | integer | 'five'"),
    (MXNET, "1n2g, 2n2g]", "12g, 2n2g]", SMOKE + "topologies.1: | '12g'"),
    (MXNET, STEPS, '-n, "{s}"', SOURCES + "argv.8: | unknown placeholder | batch_size_per_device,"),
    (MXNET, STEPS, '-n, "{s!r}"', "argv.8: | '{{s!r}}' has a placeholder that is not a plain"),
    (MXNET, "warmup_steps: 4}", "warmup_steps: 12}", SMOKE + "rule: | no steps remain"),
    (MXNET, SIZE, "{size: 64}", SMOKE + "parameters.size: | parameters: image_size, classes,"),
    (MXNET, FP16, FP16.replace("16", "8"), PUBLISHED + "batches.1.precision: | fp32, fp16 | 'fp8'"),
    (MXNET, "framework: mxnet", "framework: mxnets", "framework: | 'mxnets' | one of jax, mxnet,"),
    (MXNET, "name: mxnet-resnet50v1b", "name: mx", "{line}: name: | mxnet-resnet50v1b | found mx"),
    (MXNET, "launcher: mpirun", "launcher: a\nlauncher: b", ": duplicate key 'launcher'"),
    (MXNET, "families: [resnet50]", "families: [resnet50", "{next}: invalid YAML:"),
    (MXNET, BUILTIN, "- ../a.py", SOURCES + "files.0: the path leads outside its directory"),
    (PADDLE, "place = )", "place = ", "patches.0.pattern: | unterminated subpattern"),
    (
        ARCFACE,
        Y1,
        Y1.replace("y1", "y2"),
        PUBLISHED + "batches.4.variant: | r100, y1 | 'y2'",
    ),
    (ARCFACE, "topologies: [1n1g,", "topologies: [2n1g,", "published.topologies.0: too many nodes"),
    # Its logs only are read.
    (MEGATRON, "rule:", A_MATRIX, "sources: a workload that runs has sources"),
    ("frameworks/paddle.yml", "v100-cuda10.2:", "v200:", "environments: | 'v200' | cpu, h100-cuda"),
    (
        "stacks/h100-cuda12.9.yml",
        ": gpu",
        ": [gpu]",
        "{line}: accelerator: | 'cpu' or 'gpu' | ['gp",
    ),
]


@pytest.mark.parametrize(("entry", "old", "new", "words"), MISTAKES)
def test_a_mistake_is_told(tmp_path: Path, entry: str, old: str, new: str, words: str) -> None:
    root = write_catalog(tmp_path)
    path = root / entry
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    line = text[: text.index(old)].count("\n") + 1
    with pytest.raises(UserError, match=re.escape(entry)) as caught:
        load_catalog(root)
    for word in words.format(line=line, next=line + 1).split(" | "):
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe", "the file is not UTF-8 (found an invalid byte at 0)"),
        (b"- a\n- b\n", "invalid entry (expected keys and values, found ['a', 'b'])"),
        (b"", "invalid entry (expected keys and values, found None)"),
        (b"name: !!python/object:os.system x\n", "invalid YAML: could not determine"),
        (b"name: bad\ntitle: 1\naccelerator: 2\n", "1 more in this file"),
    ],
)
def test_what_is_no_entry_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    root = write_catalog(tmp_path)
    (root / "stacks" / "bad.yml").write_bytes(content)
    told = refusal(load_catalog, root)
    assert "stacks/bad.yml" in told and message in told


def test_files_of_the_shipped_catalogue_exist() -> None:
    root = CATALOG.parent.parent
    for workload in load_catalog().workloads.values():
        if workload.sources.builtin:
            for name in workload.sources.builtin.files:
                assert (root / name).is_file(), name
        is_built_in = (CATALOG.parent / "logs" / f"{workload.log_format}.py").is_file()
        assert is_built_in != (workload.log_pattern is not None), workload.name


def test_every_key_is_documented() -> None:
    text = (CATALOG.parent.parent / "docs" / "catalogue.md").read_text()
    models = (
        *(entries.Framework, entries.Environment, entries.Horovod, entries.OperatorWheel),
        *(entries.Stack, entry_stack.Driver, entry_stack.Rocm, entry_stack.OpenMpi),
        *(entry_stack.InfiniBand, entry_stack.ContainerRuntime, entry_stack.Gpu),
        *(entries.Workload, entries.Rule, entries.Matrix, entries.BatchEntry, entries.Variant),
        *(entry_source.BuiltinSource, entry_source.UpstreamSource),
        *(entry_source.Patch, entry_source.AddedFile),
    )
    keys = {name for model in models for name in model.model_fields}
    keys |= set(entries.RUN_KEYS) | set(inventory.VARIABLES)
    assert [key for key in sorted(keys) if f"`{key}`" not in text and f"`.{key}`" not in text] == []


def test_horovod_is_told_its_operations_on_gpus_once_and_the_cuda_of_the_stack() -> None:
    """From 0.20 on, CMake ends with `Cannot specify both HOROVOD_GPU_OPERATIONS and ...`.

    Without HOROVOD_CUDA_HOME, it takes /usr/local/cuda, which can be another CUDA's.
    """
    for framework in load_catalog().frameworks.values():
        for stack, stated in load_catalog().stacks.items():
            for name, environment in framework.environments_on(stack).items():
                if not (horovod := environment.horovod) or stated.cuda is None:
                    continue
                told = [v for v in horovod.build_environment if v.startswith("HOROVOD_GPU_")]
                if Version(horovod.version) >= Version("0.20"):
                    assert told == ["HOROVOD_GPU_OPERATIONS"], (stack, name)
                series = stated.cuda.version.rpartition(".")[0]
                home = horovod.build_environment["HOROVOD_CUDA_HOME"]
                assert home == f"/usr/local/cuda-{series}", (stack, name)
