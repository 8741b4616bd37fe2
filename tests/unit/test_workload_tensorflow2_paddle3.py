"""The programs of TensorFlow 2 and PaddlePaddle 3 without them: options, places, lines, timing and
what the log confirms."""

from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from command_line import call
from make_logs import dllogger_pytorch, write
from read_logs import read

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.results.run_record import version_of
from dlperf_runner.workloads import dllogger_common as dllogger
from dlperf_runner.workloads import jax_resnet50
from dlperf_runner.workloads import paddle3_resnet50 as paddle3
from dlperf_runner.workloads import tensorflow2_resnet50 as tensorflow2

PROGRAMS = {"tensorflow2": tensorflow2, "paddle3": paddle3}


def mpi(rank: int, size: int, local: int) -> dict[str, str]:
    values = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in values.items()}


def test_each_process_has_an_address_of_its_own_and_finds_its_number() -> None:
    assert tensorflow2.workers({}) == (["127.0.0.1:29500"], 0, 0)
    hosts = {"TF_WORKER_HOSTS": "10.0.0.1,10.0.0.2"}
    addresses = [f"10.0.0.{node}:{port}" for node in (1, 2) for port in (29500, 29501)]
    assert tensorflow2.workers({**hosts, **mpi(3, 4, 1)}) == (addresses, 3, 1)
    assert tensorflow2.workers({"TF_WORKER_HOSTS": "10.0.0.1", **mpi(1, 2, 1)}) == (
        *(["10.0.0.1:29500", "10.0.0.1:29501"], 1, 1),
    )
    with pytest.raises(SystemExit, match="names 2 nodes, which cannot have 3 processes"):
        tensorflow2.workers({**hosts, **mpi(0, 3, 0)})


def test_gpus_that_are_missing_are_told() -> None:
    arguments = tensorflow2.parse_arguments([])
    tf = SimpleNamespace(config=SimpleNamespace(list_physical_devices=Mock(return_value=[])))
    with pytest.raises(SystemExit, match="process 0 of this node has no GPU, TensorFlow finds 0"):
        tensorflow2.join(tf, arguments)
    paddle = Mock()
    paddle.device.cuda.device_count.return_value = 0
    with pytest.raises(SystemExit, match="Paddle finds no GPU on this node; --no-cuda"):
        paddle3.join(paddle, on_cpu=False)


@pytest.mark.parametrize(
    ("name", "precision"), [("tensorflow2", "amp"), ("paddle3", "amp"), ("jax", "bf16")]
)
def test_the_log_confirms_the_plan(
    name: str, precision: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {**PROGRAMS, "jax": jax_resnet50}[name].parse_arguments(
        ["--batch-size", "64", "--iterations", "2"]
    )
    dllogger.say_parameters(True, arguments, 16, arch=f"{name}_resnet50")
    taken = iter([(1, 0.5), (2, 1.5)])
    monkeypatch.setattr(dllogger, "intervals", lambda *_: taken)
    arguments.log_interval = 1
    given = (arguments, True, 16 * 64, print, print, iter([7.5, 6.5]).__next__)
    losses = dllogger.training(*given, lambda: ["its communication"])
    text, _, after = capsys.readouterr().out.partition("its communication")
    assert after == "\n"
    # Of both steps: 2048 images in 2 s.
    assert text.rstrip().endswith("train.total_ips : 1024.00 img/s")
    (header,), steps = read("dllogger_pytorch", text)
    assert losses == [7.5, 6.5]
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [
        *((1, 2048.0, 7.5), (2, 682.67, 6.5))
    ]
    assert (header.batch_size_per_device, header.world_size, header.total_steps) == (64, 16, 2)
    assert (header.precision, header.network) == (precision, f"{name}_resnet50")


@pytest.mark.parametrize("name", PROGRAMS)
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


def test_the_catalogue_says_where_they_cannot_run() -> None:
    frameworks = load_catalog().frameworks
    for stack in ("a100-cuda11.8", "h100-cuda12.9"):
        assert frameworks["tensorflow2"].environment_name(stack, None) == "tensorflow2"
        assert "the newest for GPUs there is 2.6" in frameworks["paddle3"].why_not(stack)
    assert "Blackwell" in frameworks["tensorflow2"].why_not("b200-cuda13")
