"""What the builtin programs share."""

import ast
import graphlib
import io
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr
from pathlib import Path
from types import ModuleType

import pytest
from captured import captured

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.workloads import builtin_common as common
from dlperf_runner.workloads import (
    jax_llama,
    jax_resnet50,
    mxnet_arcface,
    mxnet_resnet50,
    oneflow_resnet50,
    paddle3_resnet50,
    paddle_arcface,
    tensorflow2_resnet50,
    tensorflow_resnet50,
)
from dlperf_runner.workloads import pytorch_arcface as arcface
from dlperf_runner.workloads import pytorch_bert as bert
from dlperf_runner.workloads import pytorch_llama as llama
from dlperf_runner.workloads import pytorch_resnet50 as resnet

PROJECT = Path(__file__).parents[2]


def refusal(program: ModuleType, options: Sequence[str]) -> str:
    """What a program says of options that it refuses, with exit status 2."""
    told = io.StringIO()
    with pytest.raises(SystemExit) as raised, redirect_stderr(told):
        program.parse_arguments(options)
    assert raised.value.code == 2
    return told.getvalue()


def test_what_is_no_training_is_said() -> None:
    no_training, did_not_fall = "no training took place", "the loss did not fall on a fixed batch"
    for losses, problem in (
        ([7.0, 9.0, 0.5], ""),
        ([7.0], ""),
        ([], ""),
        ([7.0, float("nan"), 0.5], f"loss 2 of 3 is nan: {no_training}"),
        ([float("inf")], f"loss 1 of 1 is inf: {no_training}"),
        ([7.0, 7.0], f"{did_not_fall}: 7.000000 at first, 7.000000 at last"),
        ([7.0, 7.5], f"{did_not_fall}: 7.000000 at first, 7.500000 at last"),
    ):
        found = common.check(losses) or ""
        assert found.startswith(problem) and bool(found) is bool(problem)


PUBLISHED_RUNS = [
    (mxnet_arcface, {"network": "r100", "parallel": "model", "devices": 1, "batch_size": 64}),
    (mxnet_arcface, {"iterations": 120, "frequent": 20, "classes": 85742, "dtype": "float32"}),
    (mxnet_resnet50, {"batch_size": 128, "dtype": "float32", "iterations": 120, "classes": 1000}),
    (mxnet_resnet50, {"image_size": 224, "log_interval": 1, "no_cuda": False}),
    (oneflow_resnet50, {"batch_size": 128, "iterations": 200, "log_interval": 20, "lr": 0.001}),
    (oneflow_resnet50, {"image_size": 224, "classes": 1000, "nodes": 1, "devices": 1}),
    (paddle_arcface, {"batch_size": 128, "iterations": 150, "log_period": 1, "lr": None}),
    (paddle_arcface, {"image_size": 112, "classes": 85742, "parallel": "model"}),
    (tensorflow_resnet50, {"batch_size": 256, "iterations": 500, "warmup_steps": 200}),
    (tensorflow_resnet50, {"display_every": 10, "image_size": 224, "classes": 1001, "lr": None}),
    (tensorflow_resnet50, {"precision": "fp32", "xla": False, "no_cuda": False}),
]


@pytest.mark.parametrize(("program", "settings"), PUBLISHED_RUNS)
def test_the_defaults_are_the_published_runs(
    program: ModuleType, settings: dict[str, object]
) -> None:
    assert settings.items() <= vars(program.parse_arguments([])).items()


# The program's training is over; its losses are those of the test. Stand-ins of the frameworks say
# when the process parts from the others.
ENDS = {
    "mxnet_resnet50": """
programs["train"] = lambda _: losses
programs["main"]([])
""",
    "tensorflow_resnet50": """
programs.update(use_device=lambda *_: None, say_start=lambda *_: None, make_step=lambda _: None)
programs["train"] = lambda *_: losses
programs["main"](["--lr", "1"])
""",
    "pytorch_resnet50": """
programs["train"] = lambda _: losses
programs["main"]([])
""",
}
END = """
import atexit, os, sys
from types import ModuleType

class Standin(ModuleType):
    def __getattr__(self, name):
        if name == "destroy_process_group":  # may never return
            os._exit(3)
        return parted if name in ("shutdown", "barrier") else lambda: 1

def parted():
    sys.stdout.write("parted, ")

names = ("horovod", "horovod.mxnet", "horovod.tensorflow", "torch", "torch.distributed")
sys.modules.update({name: Standin(name) for name in names})
for name in names:
    above, _, own = name.rpartition(".")
    if above:
        setattr(sys.modules[above], own, sys.modules[name])
losses = [7.0, float(sys.argv[2])]
programs = vars(__import__(sys.argv[1]))
atexit.register(os.abort)
"""


@pytest.mark.parametrize("program", ENDS)
@pytest.mark.parametrize(
    ("last", "status", "problem"), [("6", 0, ""), ("nan", 1, "loss 2 of 2 is nan: no training")]
)
def test_a_finished_process_parts_from_the_others_and_ends_before_the_interpreter_could_abort_it(
    program: str, last: str, status: int, problem: str
) -> None:
    """Threads of Gloo, Horovod or MXNet's engine can abort or hold up the interpreter's end; here a
    function that it calls does."""
    script = f"{END}\nsys.stdout.write('last line, ')\n{ENDS[program]}"
    environment = {"PYTHONPATH": str(PROJECT / "dlperf_runner/workloads")}
    done = captured(sys.executable, "-c", script, program, last, env=environment)
    printed = [line for line in done.stdout.splitlines() if "Loss of the fixed batch" not in line]
    assert done.returncode == status, done.stderr
    assert "".join(printed).endswith("parted, ")
    assert "last line, " in done.stdout
    assert problem in done.stderr


AT_LEAST_1 = "a number from 1 expected, found 0"
BATCH = ("--batch-size 0", AT_LEAST_1)
TF32 = ("--no-cuda --precision tf32", "--precision tf32 needs a GPU")
INTERVAL = ("--log-interval 500", "--log-interval must not exceed")
CPU = ("--no-cuda", "a CPU takes fp32 and bf16")
SIZE = ("--image-size 100", "a multiple of 16 expected, found 100")


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        *((p, *BATCH) for p in (resnet, llama, bert, arcface, jax_resnet50, mxnet_resnet50)),
        *((p, *BATCH) for p in (tensorflow_resnet50, tensorflow2_resnet50, paddle3_resnet50)),
        *((p, *TF32) for p in (resnet, llama, bert, arcface)),
        *((p, *TF32) for p in (jax_resnet50, tensorflow2_resnet50, paddle3_resnet50)),
        *((p, *INTERVAL) for p in (resnet, llama, bert, arcface)),
        *((p, *CPU) for p in (tensorflow2_resnet50, paddle3_resnet50)),
        *((p, *SIZE) for p in (mxnet_arcface, arcface, paddle_arcface)),
        *((p, "--compile maybe", "on or off expected") for p in (resnet, llama, bert)),
        (mxnet_arcface, "--devices 0", AT_LEAST_1),
        (mxnet_arcface, "--devices 4 --classes 3", "--classes: one per device expected, found 3"),
        (mxnet_resnet50, "--iterations many", "invalid whole number value: 'many'"),
        (mxnet_resnet50, "--dtype float16 --no-cuda", "--dtype float16 needs a GPU"),
        (oneflow_resnet50, "--log-interval 0", AT_LEAST_1),
        (oneflow_resnet50, "--nodes 2 --node_ips=10.11.0.2", "2 addresses expected, as --nodes"),
        (paddle_arcface, "--iterations 0", AT_LEAST_1),
        (paddle_arcface, "--lr high", "invalid learning_rate value: 'high'"),
        (tensorflow_resnet50, "--warmup-steps -1", "a number from 0 expected, found -1"),
        (tensorflow_resnet50, "--iterations 5 --warmup-steps 5", "fewer than the 5 iterations"),
        (tensorflow_resnet50, "--precision fp16", "invalid choice: 'fp16'"),
        (llama, "--recipe float8 --no-cuda", "--recipe float8 needs a GPU; a CPU takes none"),
        (llama, "--recipe float8 --precision tf32", "float8 goes with --precision bf16"),
        (llama, "--recipe float8 --sequence-length 1000", "float8 needs a multiple of 16 tokens"),
        (bert, "--sequence-length 513", "--sequence-length must not exceed 512"),
        (bert, "--accumulation-steps 0", AT_LEAST_1),
        (arcface, "--sample-rate 0", "a share above 0, at most 1 expected, found 0"),
        (jax_llama, "--devices 0", AT_LEAST_1),
        (jax_llama, "--no-cuda --attention cudnn", "--attention cudnn needs a GPU"),
        (jax_llama, "--dtype float32 --attention cudnn", "and --dtype bfloat16"),
    ],
)
def test_wrong_options(program: ModuleType, options: str, message: str) -> None:
    assert message in refusal(program, options.split())


def test_a_program_takes_along_what_it_imports() -> None:
    """On a node its files lie alone in a directory; a program without a needed one ends at once."""
    modules = {path.stem: path for path in (PROJECT / "dlperf_runner/workloads").glob("*.py")}
    of_others = {environment.import_name for environment in load_catalog().frameworks.values()}
    of_others |= {*sys.stdlib_module_names, "PIL", "horovod", "mpi4py", "plsc"}
    imports = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text())
        froms = {str(n.module) for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        imports[name] = froms & set(modules)
        assert {each.partition(".")[0] for each in froms - imports[name]} <= of_others, name
    graphlib.TopologicalSorter(imports).prepare()  # raises CycleError
    for workload in load_catalog().workloads.values():
        builtin = workload.sources.builtin
        given = {Path(file).stem for file in builtin.files} if builtin else set()
        for module in given:
            assert imports[module] <= given, (workload.name, module)
