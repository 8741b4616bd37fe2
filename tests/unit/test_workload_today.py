"""The programs of PyTorch, JAX, TensorFlow 2 and PaddlePaddle 3 without these: options, places,
lines, sizes, timing and what the log confirms."""

import os
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from command_line import call
from make_logs import dllogger_pytorch, write
from read_logs import confirm, read

from dlperf_runner.results.run_record import version_of
from dlperf_runner.workloads import (
    builtin_common,
    jax_common,
    jax_llama,
    jax_resnet50,
    pytorch_common,
)
from dlperf_runner.workloads import dllogger_common as dllogger
from dlperf_runner.workloads import paddle3_resnet50 as paddle3
from dlperf_runner.workloads import pytorch_arcface as arcface
from dlperf_runner.workloads import pytorch_bert as bert
from dlperf_runner.workloads import pytorch_llama as llama
from dlperf_runner.workloads import pytorch_resnet50 as resnet
from dlperf_runner.workloads import tensorflow2_resnet50 as tensorflow2
from dlperf_runner.workloads.llama_sizes import SIZES

Captured = pytest.CaptureFixture[str]
OPENMPI = "OMPI_COMM_WORLD_"
JAX = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:29500", "JAX_NUM_PROCESSES": "2"}
HOSTS = {"TF_WORKER_HOSTS": "10.0.0.1,10.0.0.2"}
ONE_HOST = {"TF_WORKER_HOSTS": "10.0.0.1"}
ADDRESSES = [f"10.0.0.{node}:{port}" for node in (1, 2) for port in (29500, 29501)]


def mpi(rank: int, size: int, local: int) -> dict[str, str]:
    values = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local}
    return {f"{OPENMPI}{name}": str(value) for name, value in values.items()}


# ---- places


RANKS = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}
COORDINATOR = "10.0.0.1:29500"


@pytest.mark.parametrize(
    ("place_of", "environment", "place"),
    [
        (pytorch_common.place_of, {}, (0, 1, 0)),
        (pytorch_common.place_of, RANKS, (3, 4, 1)),
        (pytorch_common.place_of, mpi(2, 4, 0), (2, 4, 0)),
        (jax_common.place_of, {}, (0, 1, "")),
        (jax_common.place_of, {**JAX, "JAX_PROCESS_ID": "1"}, (1, 2, COORDINATOR)),
        # OpenMPI 5 no longer sets the variable that JAX's own detection wants.
        (jax_common.place_of, {**JAX, f"{OPENMPI}RANK": "1"}, (1, 2, COORDINATOR)),
        (tensorflow2.workers, {}, (["127.0.0.1:29500"], 0, 0)),
        (tensorflow2.workers, {**HOSTS, **mpi(3, 4, 1)}, (ADDRESSES, 3, 1)),
        (tensorflow2.workers, {**ONE_HOST, **mpi(1, 2, 1)}, (ADDRESSES[:2], 1, 1)),
        (jax_common.place_of, {"JAX_NUM_PROCESSES": "2"}, "JAX_COORDINATOR_ADDRESS is not set"),
        (
            *(tensorflow2.workers, {**HOSTS, **mpi(0, 3, 0)}),
            "names 2 nodes, which cannot have 3 processes",
        ),
    ],
)
def test_a_process_finds_its_place_under_each_launcher(
    place_of: Any, environment: dict[str, str], place: tuple[Any, ...] | str
) -> None:
    if isinstance(place, str):
        with pytest.raises(SystemExit, match=place):
            place_of(environment)
    else:
        assert place_of(environment) == place


def test_gloo_gets_the_interface_towards_the_first_node_whatever_the_host_is_called() -> None:
    assert jax_common.address_towards("127.0.0.1:29500") == "127.0.0.1"
    assert pytorch_common.interface_towards("127.0.0.1") == "lo"
    assert pytorch_common.interface_towards("name.invalid") == ""
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    pytorch_common.complete_environment(pytorch_common.PyTorchProcess(1, 2, 1), environment)
    ranks = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "GLOO_SOCKET_IFNAME": "lo"}
    assert environment == {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", **ranks}
    planned = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "ib0"}
    pytorch_common.complete_environment(pytorch_common.PyTorchProcess(0, 1, 0), planned)
    assert (planned["GLOO_SOCKET_IFNAME"], planned["MASTER_PORT"]) == ("ib0", pytorch_common.PORT)
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_gpus_that_are_lacking_are_named() -> None:
    for count, message in (
        (RuntimeError("Unable to initialize backend 'cuda'"), "finds no GPU on this node; --no-"),
        (AssertionError(), "finds no GPU on this node; --no-cuda"),
        (1, "8 devices expected on this node, found 1"),
    ):
        jax = SimpleNamespace(config=Mock(), local_device_count=Mock(side_effect=[count]))
        with pytest.raises(SystemExit, match=message):
            jax_common.join(jax, devices=8, on_cpu=False)
        # TERM ends the process only if JAX does not await preemption.
        jax.config.update.assert_any_call("jax_enable_preemption_service", False)
    tf = SimpleNamespace(config=SimpleNamespace(list_physical_devices=Mock(return_value=[])))
    with pytest.raises(SystemExit, match="process 0 of this node has no GPU, TensorFlow finds 0"):
        tensorflow2.join(tf, tensorflow2.parse_arguments([]))
    paddle = Mock()
    paddle.device.cuda.device_count.return_value = 0
    with pytest.raises(SystemExit, match="Paddle finds no GPU on this node; --no-cuda"):
        paddle3.join(paddle, on_cpu=False)


# ---- timing


def test_an_interval_ends_when_the_device_has_finished_and_reports_are_not_timed() -> None:
    """Steps of 2 s, of which the device takes 1.5 after the call; a report takes 100 s."""
    passed = [0.0]
    intervals = []

    def step() -> int:
        passed.append(0.5)
        return len(passed)

    wait, clock = (lambda _: passed.append(1.5)), (lambda: sum(passed))
    for interval in builtin_common.intervals(step, wait, 5, 2, clock):
        intervals.append(interval)
        passed.append(100.0)
    assert intervals == [(2, 2.5, 3), (4, 2.5, 7)]


def test_a_step_is_timed_from_one_end_to_the_next_and_the_device_never_waits() -> None:
    """Steps of 2 s on the device; what is done with a result takes 1.5 s meanwhile."""
    now, begun, ends = [0.0], [0], [0.0]

    def step() -> int:
        begun[0] += 1
        ends.append(max(ends[-1], now[0]) + 2.0)
        return begun[0]

    def wait(number: int) -> None:
        now[0] = max(now[0], ends[number])

    steps = []
    for number, seconds in jax_common.completed(step, wait, 4, lambda: now[0]):
        steps.append((number, seconds, begun[0]))
        now[0] += 1.5
    assert steps == [(1, 2.0, 2), (2, 2.0, 3), (3, 2.0, 4), (4, 2.0, 4)]


def test_jax_hands_each_step_the_state_that_the_one_before_left() -> None:
    """Steps with communication add 1 to the state, those without 10."""

    def compiled(alone: bool) -> Any:
        return lambda state, batch: (state + (10 if alone else 1), f"{batch} {state}")

    step, alone = jax_common.two_steps(SimpleNamespace(size=2), (0, "of", compiled))
    assert [step(), step(), alone(), step()] == ["of 0", "of 1", "of 2", "of 12"]


# ---- what logs confirm


@pytest.mark.parametrize(
    ("program", "arch", "precision"),
    [
        (resnet, "resnet50", "amp"),
        (tensorflow2, "tensorflow2_resnet50", "amp"),
        (paddle3, "paddle3_resnet50", "amp"),
        (jax_resnet50, "jax_resnet50", "bf16"),
    ],
)
def test_the_logs_of_resnets_confirm_the_plan(
    program: ModuleType,
    arch: str,
    precision: str,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_pytorch = ["--precision", "amp", "--log-interval", "2"] if program is resnet else []
    options = [*of_pytorch, "--batch-size", "64", "--iterations", "2"]
    arguments = program.parse_arguments(options)
    dllogger.say_parameters(print, arguments, 16, **({} if of_pytorch else {"arch": arch}))
    taken = iter([(1, 0.5, 7.5), (2, 1.5, 6.5)])
    monkeypatch.setattr(dllogger, "intervals", lambda *_: taken)
    stated = {"log_every": 2} if of_pytorch else {}
    arguments.log_interval = 1
    given = (arguments, print, 16 * 64, print, print, float)
    losses = dllogger.training(*given, lambda: ["its communication"])
    text, _, after = capsys.readouterr().out.partition("its communication")
    assert (losses, after) == ([7.5, 6.5], "\n")
    # Of both steps: 2048 images in 2 s.
    assert text.rstrip().endswith("train.total_ips : 1024.00 img/s")
    confirm(
        *("dllogger_pytorch", text, [(1, 2048.0, 7.5), (2, 682.67, 6.5)]),
        batch_size_per_device=64, world_size=16, total_steps=2, precision=precision, network=arch,
        **stated,
    )  # fmt: skip


def test_the_log_of_bert_confirms_the_plan(capsys: Captured) -> None:
    options = ["--model", "bert-large", "--batch-size", "32", "--sequence-length", "512"]
    arguments = bert.parse_arguments([*options, "--accumulation-steps", "4", "--iterations", "2"])
    dllogger.say_parameters(print, arguments, 8)
    taken = [(1, 2.0, 10.5), (2, 1.0, 10.25)]
    assert dllogger.say_training(print, taken, 8 * 32 * 4, 0.002, list) == [10.5, 10.25]
    text = capsys.readouterr().out
    # 2 times 1024 sequences in 3 s
    assert text.rstrip().endswith("train.total_ips : 682.67 img/s")
    confirm(
        *("dllogger_pytorch", text, [(1, 512.0, 10.5), (2, 1024.0, 10.25)]),
        batch_size_per_device=32, world_size=8, network="bert-large",
    )  # fmt: skip
    stated = dict(read("dllogger_pytorch", text)[0][0].parameters)
    assert (stated["sequence_length"], stated["accumulation_steps"]) == ("512", "4")


def test_the_log_of_arcface_confirms_the_plan(capsys: Captured) -> None:
    options = ["--network", "r100", "--batch-size", "64", "--precision", "amp"]
    arguments = arcface.parse_arguments([*options, "--iterations", "4", "--log-interval", "2"])
    arcface.state(arcface.say, arguments, 8)
    arcface.say(arcface.progress(2, 40.5, 1000.0, 0.1, 3.2))
    arcface.say(arcface.progress(4, 39.5, 2000.0, 0.1, 0))
    text = capsys.readouterr().out
    assert text.splitlines()[-1].endswith(
        "-Speed 2000.00 samples/sec   Loss 39.5000   LearningRate 0.100000   Epoch: 0"
        "   Global Step: 4   Required: 0 hours"
    )
    shape = {"classes": "85742", "image_size": "112", "sample_rate": "1.0", "data": "synthetic"}
    confirm(
        *("arcface_torch", text, [(2, 1000.0, 40.5), (4, 2000.0, 39.5)]),
        batch_size_per_device=64, global_batch_size=512, precision="amp", total_steps=4,
        log_every=2, network="r100", parameters=shape,
    )  # fmt: skip


def test_the_log_of_llama_confirms_the_plan(capsys: Captured) -> None:
    """On 2 nodes with 2 devices."""
    arguments = llama.parse_arguments(
        ["--model", "llama-lab", "--batch-size", "2", "--sequence-length", "64", "--steps", "8"]
    )
    arguments.parallel = llama.method("auto", has_fsdp=True)
    llama.state(llama.say, arguments, 4)
    for step in range(1, 9):
        llama.say(llama.progress(step, 8.1234, 1.0, (1 << 29, 1 << 35), 6835.4, 10**9, 312e12))
    text = capsys.readouterr().out
    assert (
        "step:  1  loss:  8.1234  grad_norm:  1.0000  memory:  0.50GiB(1.56%)"
        "  tps: 6,835  tflops: 6.84  mfu: 2.19%" in text
    )
    confirm(
        *("torchtitan", text, [(n, 6835.0, 8.1234) for n in range(1, 9)]),
        global_batch_size=8, world_size=4, total_steps=8, precision="bf16", network="llama-lab",
    )  # fmt: skip
    stated = dict(pair for header in read("torchtitan", text)[0] for pair in header.parameters)
    assert stated["micro_batch_size"] == "2"


def test_the_log_of_jax_llama_confirms_the_plan() -> None:
    arguments = jax_llama.parse_arguments(
        ["--model", "llama-lab", "--batch-size", "2", "--sequence-length", "64", "--steps", "3"]
    )
    lines: list[str] = []
    jax_llama.state(lines.append, arguments, 16)
    lines += [jax_llama.progress(step, 8.1234, 0.25, 128, 16, 10**9) for step in range(3)]
    assert lines[-1] == (
        "completed step: 2, seconds: 0.250, TFLOP/s/device: 0.512, Tokens/s/device: 512.000,"
        " total_weights: 2048, loss: 8.123"
    )
    confirm(
        *("maxtext", "\n".join(lines) + "\n", [(n, 512.0, 8.123) for n in (1, 2, 3)]),
        batch_size_per_device=2, world_size=16, total_steps=3, precision="bf16",
        parameters={"recompute": "selective", "sequence_length": "64"},
    )  # fmt: skip


def test_the_log_says_that_products_are_in_float8(capsys: Captured) -> None:
    for options, recipe in ((["--recipe", "float8"], "float8"), ([], None)):
        llama.state(llama.say, llama.parse_arguments(options), 4)
        line = llama.progress(1, 8.0, 1.0, (1, 2), 9.0, 1, None)
        headers, _ = read("torchtitan", f"{capsys.readouterr().out}{line}\n")
        stated = dict(pair for header in headers for pair in header.parameters)
        assert stated.get("recipe") == recipe
        assert {h.precision for h in headers} >= {"bf16"}


@pytest.mark.parametrize("name", ["tensorflow2", "paddle3"])
def test_a_log_without_a_record_is_told_from_one_of_pytorch(name: str, tmp_path: Path) -> None:
    text = dllogger_pytorch(100.0)
    log = [line.replace("arch : resnet50", f"arch : {name}_resnet50") for line in text]
    write(tmp_path / "logs" / "1n1g" / f"{name}_rn50_b256_amp_1.log", log)
    out = call("summarize", tmp_path / "logs", "--output-dir", tmp_path / "out", "--json")
    assert f'"workload": "{name}-resnet50v1.5"' in out.out


def test_the_version_is_that_of_the_package_without_the_number() -> None:
    installed = {"tensorboard": "1", "tensorflow-cpu": "2.21.0", "paddlepaddle": "3.3.1"}
    outcome = {"versions": installed}
    assert version_of(outcome, "tensorflow2") == "2.21.0"
    assert version_of(outcome, "paddle3") == "3.3.1"


# ---- sizes, and what runs where


def test_sizes_of_bert() -> None:
    """Of the published checkpoint with both heads (bert-large-uncased, 30,522 tokens); 20 of 128
    and 80 of 512 tokens are predicted, as in NVIDIA's two phases."""
    assert bert.SIZES["bert-large"]._replace(vocabulary=30_522).parameters == 336_226_108
    assert (bert.predicted(128), bert.predicted(512)) == (20, 80)


def test_model_flops_are_counted_as_maxtext_does() -> None:
    """6 times 6,607,343,616 parameters outside the embedding, and 6 * 32 layers * 4096 * 4096 for
    causal attention, which MaxText counted twice as high before July 2025."""
    size = SIZES["llama-2-7b"]
    assert size.flops_per_token(4096, causal=True) == 6 * 6_607_343_616 + 6 * 32 * 4096 * 4096
    assert size.flops_per_token(4096) == 6 * 6_607_343_616 + 12 * 32 * 4096 * 4096


def test_attention_and_parallelism_are_what_works() -> None:
    for options, attention in (([], "cudnn"), (["--no-cuda"], "xla"), (["--dtype=float32"], "xla")):
        assert jax_llama.parse_arguments(options).attention == attention
    assert llama.method("auto", has_fsdp=True) == "fsdp"
    assert llama.method("auto", has_fsdp=False) == "ddp"
    with pytest.raises(SystemExit, match="choose --parallel ddp"):
        llama.method("fsdp", has_fsdp=False)


def test_float8_is_refused_on_gpus_that_do_not_have_it() -> None:
    for minor, name in ((0, "NVIDIA A100"), (6, "NVIDIA A40")):
        message = rf"^--recipe float8 needs .* 8\.9 .*{name} has 8\.{minor}; .*--recipe none$"
        with pytest.raises(SystemExit, match=message):
            llama.refuse_float8((8, minor), name)
    for newer in ((8, 9), (9, 0), (10, 0)):
        llama.refuse_float8(newer, "NVIDIA H100 80GB HBM3")


def test_a_device_of_unknown_peak_has_no_mfu() -> None:
    assert llama.progress(1, 1.0, 1.0, (1, 2), 5.0, 10, None).endswith("mfu: N/A")
    assert llama.peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert llama.peak_flops("Tesla V100-SXM2-16GB") is None
