"""The PyTorch programs without PyTorch: options, lines, sizes, places and what the log confirms."""

import argparse
import datetime
import os
import socket

import pytest
from read_logs import read, together

from dlperf_runner.workloads import builtin_common
from dlperf_runner.workloads import dllogger_common as dllogger
from dlperf_runner.workloads import pytorch_arcface as arcface
from dlperf_runner.workloads import pytorch_bert as bert
from dlperf_runner.workloads import pytorch_common as common
from dlperf_runner.workloads import pytorch_llama as llama
from dlperf_runner.workloads import pytorch_resnet50 as resnet


def log_of(capsys: pytest.CaptureFixture[str], arguments: argparse.Namespace) -> str:
    """What the Llama program says on 2 nodes with 2 devices, without its steps."""
    llama.state(llama.say, arguments, 4)
    return capsys.readouterr().out


OPENMPI = "OMPI_COMM_WORLD_"


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, (0, 1, 0)),
        ({"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1"}, (3, 4, 1)),
        ({f"{OPENMPI}RANK": "2", f"{OPENMPI}SIZE": "4", f"{OPENMPI}LOCAL_RANK": "0"}, (2, 4, 0)),
    ],
)
def test_a_process_finds_its_place_under_each_launcher(
    environment: dict[str, str], place: tuple[int, int, int]
) -> None:
    assert common.place_of(environment) == place


def test_gloo_gets_the_interface_towards_the_first_node_whatever_the_host_is_called() -> None:
    assert common.interface_towards("127.0.0.1") == "lo"
    assert common.interface_towards("name.invalid") == ""
    environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    common.complete_environment(common.PyTorchProcess(1, 2, 1), environment)
    assert environment == {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_RANK": "1",
    }
    planned = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "ib0"}
    common.complete_environment(common.PyTorchProcess(0, 1, 0), planned)
    assert (planned["GLOO_SOCKET_IFNAME"], planned["MASTER_PORT"]) == ("ib0", common.PORT)
    assert "lo" in [name for _, name in socket.if_nameindex()]
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_an_interval_ends_when_the_device_has_finished_and_reports_are_not_timed() -> None:
    """Steps of 2 s, of which the device takes 1.5 after the call; a report takes 100 s."""
    passed = [0.0]
    found = []
    taken = builtin_common.intervals(
        lambda: passed.append(0.5), lambda: passed.append(1.5), 5, 2, lambda: sum(passed)
    )
    for number, seconds in taken:
        found.append((number, seconds))
        passed.append(100.0)
    assert found == [(2, 2.5), (4, 2.5)]


def test_the_log_of_resnet_confirms_the_plan() -> None:
    options = ["--batch-size", "64", "--precision", "amp", "--iterations", "30"]
    arguments = resnet.parse_arguments([*options, "--image-size", "160", "--log-interval", "10"])
    now = datetime.datetime(2026, 11, 22, 12, 0, 1, 5)
    values = {"train.loss": 6.5, "train.compute_ips": 2000.0, "train.total_ips": 2000.0}
    lines = [
        dllogger.line("PARAMETER", dllogger.parameters(arguments, 16), now),
        *(dllogger.line(f"Epoch: 0 Iteration: {step} ", values, now) for step in (10, 20, 30)),
        dllogger.line("Summary:", {"train.compute_ips": 1.0, "train.total_ips": 1.0}, now),
    ]
    assert lines[1] == (
        "DLL 2026-11-22 12:00:01.000005 - Epoch: 0 Iteration: 10  train.loss : 6.50000"
        "  train.compute_ips : 2000.00 img/s train.total_ips : 2000.00 img/s"
    )
    headers, steps = read("dllogger_pytorch", "\n".join(lines) + "\n")
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [
        *((10, 2000.0, 6.5), (20, 2000.0, 6.5), (30, 2000.0, 6.5))
    ]
    (header,) = headers
    assert (header.batch_size_per_device, header.world_size, header.total_steps) == (64, 16, 30)
    assert (header.precision, header.log_every, header.network) == ("amp", 10, "resnet50")


def test_the_log_of_bert_confirms_the_plan() -> None:
    options = ["--model", "bert-large", "--batch-size", "32", "--sequence-length", "512"]
    arguments = bert.parse_arguments([*options, "--accumulation-steps", "4", "--iterations", "2"])
    said: list[str] = []
    now = datetime.datetime(2026, 11, 22, 12, 0, 1, 5)
    say = lambda step, values: said.append(dllogger.line(step, values, now))  # noqa: E731
    say("PARAMETER", dllogger.parameters(arguments, 8))
    taken = [(1, 2.0, 10.5), (2, 1.0, 10.25)]
    assert dllogger.say_training(say, taken, 8 * 32 * 4, lr=0.002) == [10.5, 10.25]
    headers, steps = read("dllogger_pytorch", "\n".join(said) + "\n")
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [
        *((1, 512.0, 10.5), (2, 1024.0, 10.25))
    ]
    # 2 times 1024 sequences in 3 s
    assert said[-1].endswith("train.total_ips : 682.67 img/s")
    (header,) = headers
    assert (header.batch_size_per_device, header.world_size, header.network) == (
        *(32, 8, "bert-large"),
    )
    assert dict(header.parameters)["sequence_length"] == "512"
    assert dict(header.parameters)["accumulation_steps"] == "4"


def test_sizes_of_bert() -> None:
    """Of the published checkpoint with both heads (bert-large-uncased, 30,522 tokens); 20 of 128
    and 80 of 512 tokens are predicted, as in NVIDIA's two phases."""
    assert bert.SIZES["bert-large"]._replace(vocabulary=30_522).parameters == 336_226_108
    assert (bert.predicted(128), bert.predicted(512)) == (20, 80)


def test_the_log_of_arcface_confirms_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
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
    headers, steps = read("arcface_torch", text)
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [
        *((2, 1000.0, 40.5), (4, 2000.0, 39.5))
    ]
    told = together(headers)
    assert told == {
        "line": told["line"],
        "batch_size_per_device": 64,
        "global_batch_size": 512,
        "precision": "amp",
        "total_steps": 4,
        "log_every": 2,
        "network": "r100",
        "parameters": {
            "classes": "85742",
            "image_size": "112",
            "sample_rate": "1.0",
            "data": "synthetic",
        },
    }


def test_the_log_of_llama_confirms_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = llama.parse_arguments(
        ["--model", "llama-lab", "--batch-size", "2", "--sequence-length", "64", "--steps", "8"]
    )
    arguments.parallel = llama.method("auto", has_fsdp=True)
    text = log_of(capsys, arguments)
    for step in range(1, 9):
        llama.say(llama.progress(step, 8.1234, 1.0, (1 << 29, 1 << 35), 6835.4, 10**9, 312e12))
    text += capsys.readouterr().out
    assert (
        "step:  1  loss:  8.1234  grad_norm:  1.0000  memory:  0.50GiB(1.56%)"
        "  tps: 6,835  tflops: 6.84  mfu: 2.19%" in text
    )
    headers, steps = read("torchtitan", text)
    assert [(s.step, s.samples_per_second) for s in steps] == [(n, 6835.0) for n in range(1, 9)]
    told = together(headers)
    assert (told["global_batch_size"], told["world_size"], told["total_steps"]) == (8, 4, 8)
    assert told["parameters"]["micro_batch_size"] == "2"
    assert (told["precision"], told["network"]) == ("bf16", "llama-lab")


def test_the_log_says_that_products_are_in_float8(capsys: pytest.CaptureFixture[str]) -> None:
    for options, recipe in ((["--recipe", "float8"], "float8"), ([], None)):
        text = log_of(capsys, llama.parse_arguments(options))
        line = llama.progress(1, 8.0, 1.0, (1, 2), 9.0, 1, None)
        headers, _ = read("torchtitan", f"{text}{line}\n")
        stated = dict(pair for header in headers for pair in header.parameters)
        assert stated.get("recipe") == recipe
        assert {h.precision for h in headers} >= {"bf16"}


@pytest.mark.parametrize(("capability", "name"), [((8, 0), "NVIDIA A100"), ((8, 6), "NVIDIA A40")])
def test_float8_is_refused_on_gpus_that_do_not_have_it(
    capability: tuple[int, int], name: str
) -> None:
    told = rf"^--recipe float8 needs .* 8\.9 .*{name} has 8\.{capability[1]}; .*--recipe none$"
    with pytest.raises(SystemExit, match=told):
        llama.refuse_float8(capability, name)


@pytest.mark.parametrize("capability", [(8, 9), (9, 0), (10, 0)])
def test_float8_is_taken_on_gpus_that_have_it(capability: tuple[int, int]) -> None:
    llama.refuse_float8(capability, "NVIDIA H100 80GB HBM3")


def test_a_device_of_unknown_peak_has_no_mfu() -> None:
    assert llama.progress(1, 1.0, 1.0, (1, 2), 5.0, 10, None).endswith("mfu: N/A")
    assert llama.peak_flops("NVIDIA H100 80GB HBM3") == 989e12
    assert llama.peak_flops("Tesla V100-SXM2-16GB") is None


def test_fsdp_is_taken_where_it_works() -> None:
    assert llama.method("auto", has_fsdp=True) == "fsdp"
    assert llama.method("auto", has_fsdp=False) == "ddp"
    with pytest.raises(SystemExit, match="choose --parallel ddp"):
        llama.method("fsdp", has_fsdp=False)
