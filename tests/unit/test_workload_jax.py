"""The JAX programs without JAX: options, lines, places, timing and what the log confirms."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from read_logs import read, together

from dlperf_runner.workloads import jax_common as common
from dlperf_runner.workloads import jax_llama as llama
from dlperf_runner.workloads.llama_sizes import SIZES

MEETING = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:29500", "JAX_NUM_PROCESSES": "2"}


@pytest.mark.parametrize(
    ("environment", "place"),
    [
        ({}, (0, 1, "")),
        ({**MEETING, "JAX_PROCESS_ID": "1"}, (1, 2, "10.0.0.1:29500")),
        # OpenMPI 5 no longer sets the variable that JAX's own detection wants.
        ({**MEETING, "OMPI_COMM_WORLD_RANK": "1"}, (1, 2, "10.0.0.1:29500")),
    ],
)
def test_a_process_finds_its_place_under_each_launcher(
    environment: dict[str, str], place: tuple[int, int, str]
) -> None:
    assert common.place_of(environment) == place


def test_without_the_address_of_the_coordinator_nothing_starts() -> None:
    with pytest.raises(SystemExit, match="JAX_COORDINATOR_ADDRESS is not set"):
        common.place_of({"JAX_NUM_PROCESSES": "2"})


def test_gloo_gets_the_address_towards_the_coordinator_whatever_the_host_is_called() -> None:
    assert common.address_towards("127.0.0.1:29500") == "127.0.0.1"


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            RuntimeError("Unable to initialize backend 'cuda'"),
            "finds no GPU on this node; --no-cuda",
        ),
        (AssertionError(), "finds no GPU on this node; --no-cuda"),
        ([1], "8 devices expected on this node, found 1"),
    ],
)
def test_devices_that_are_missing_are_told(found: Exception | list[int], told: str) -> None:
    local_device_count = Mock(side_effect=[found] if isinstance(found, Exception) else found)
    jax = SimpleNamespace(config=Mock(), local_device_count=local_device_count)
    with pytest.raises(SystemExit, match=told):
        common.join(jax, devices=8, on_cpu=False)
    # TERM ends the process only if JAX does not await preemption.
    jax.config.update.assert_any_call("jax_enable_preemption_service", False)


def test_a_step_is_timed_from_one_end_to_the_next_and_the_device_never_waits() -> None:
    """Steps of 2 s on the device; what is done with a result takes 1.5 s meanwhile."""
    now, begun, ends = [0.0], [0], [0.0]

    def step() -> int:
        begun[0] += 1
        ends.append(max(ends[-1], now[0]) + 2.0)
        return begun[0]

    def wait(number: int) -> None:
        now[0] = max(now[0], ends[number])

    found = []
    for number, seconds in common.completed(step, wait, 4, lambda: now[0]):
        found.append((number, seconds, begun[0]))
        now[0] += 1.5
    assert found == [(1, 2.0, 2), (2, 2.0, 3), (3, 2.0, 4), (4, 2.0, 4)]


@pytest.mark.parametrize(
    ("options", "attention"),
    [([], "cudnn"), (["--no-cuda"], "xla"), (["--dtype", "float32"], "xla")],
)
def test_attention_is_that_of_cudnn_where_it_works(options: list[str], attention: str) -> None:
    assert llama.parse_arguments(options).attention == attention


def test_the_log_of_llama_confirms_the_plan() -> None:
    arguments = llama.parse_arguments(
        ["--model", "llama-lab", "--batch-size", "2", "--sequence-length", "64", "--steps", "3"]
    )
    lines: list[str] = []
    llama.state(lines.append, arguments, 16)
    lines += [llama.progress(step, 8.1234, 0.25, 128, 16, 10**9) for step in range(3)]
    assert lines[-1] == (
        "completed step: 2, seconds: 0.250, TFLOP/s/device: 0.512, Tokens/s/device: 512.000,"
        " total_weights: 2048, loss: 8.123"
    )
    headers, steps = read("maxtext", "\n".join(lines) + "\n")
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [
        (n, 512.0, 8.123) for n in (1, 2, 3)
    ]
    told = together(headers)
    assert (told["batch_size_per_device"], told["world_size"], told["total_steps"]) == (2, 16, 3)
    assert told["precision"] == "bf16"
    assert told["parameters"] == {"recompute": "selective", "sequence_length": "64"}


def test_model_flops_are_counted_as_maxtext_does() -> None:
    """6 times 6,607,343,616 parameters outside the embedding, and 6 * 32 layers * 4096 * 4096 for
    causal attention, which MaxText counted twice as high before July 2025."""
    size = SIZES["llama-2-7b"]
    assert size.flops_per_token(4096, causal=True) == 6 * 6_607_343_616 + 6 * 32 * 4096 * 4096
    assert size.flops_per_token(4096) == 6 * 6_607_343_616 + 12 * 32 * 4096 * 4096
