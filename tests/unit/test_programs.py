"""benchmarks/programs.py without frameworks: its options, lines, arithmetic and turns."""

import importlib
import sys
from pathlib import Path
from typing import Any

import dllogger_common
import jax_llama
import pytest
import pytorch_arcface
import pytorch_llama
from modules import load

from dlperf_runner.catalog.reader import load_catalog

programs, plain_loops = load("benchmarks/programs.py"), load("benchmarks/plain_loops.py")


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_each_program_takes_its_options_and_has_a_plain_loop(name: str) -> None:
    program = programs.PROGRAMS[name]
    options = [*program.options.split(), program.steps, "45"]
    assert importlib.import_module(program.module).parse_arguments(options).no_cuda
    assert callable(getattr(plain_loops, program.module))
    source = load_catalog().workload(name).sources.builtin
    assert source
    assert f"dlperf_runner/workloads/{program.module}.py" in source.files


def test_the_lines_of_steps_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    dllogger_common.say_training(dllogger_common.print_line, [(1, 0.5, 2.0)], 8, 0.1)
    pytorch_llama.say(pytorch_llama.progress(1, 2.0, 1.0, (1, 2), 100.0, 10, None))
    pytorch_arcface.say(pytorch_arcface.progress(1, 2.0, 100.0, 0.1, 1.0))
    print(jax_llama.progress(0, 2.0, 0.1, 128, 1, 10))
    lines = capsys.readouterr().out.splitlines()
    for program in programs.PROGRAMS.values():
        assert sum(program.line in line for line in lines) == 1, program


def test_lines_get_the_time_of_their_arrival(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    say = "print('plain', flush=True); sum(range(10**6)); print('other'); print('plain')"
    began, ended = programs.arrivals([sys.executable, "-c", say], "plain")
    assert (began.wall < ended.wall, began.cpu <= ended.cpu) == (True, True)
    with pytest.raises(SystemExit, match=r"exit status 3; see .*last\.log"):
        programs.arrivals([sys.executable, "-c", "raise SystemExit(3)"], "plain")


def test_the_measured_steps_of_both_are_the_same_and_they_take_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The plain loop's steps take 0.1 s, the builtin's 0.11 s; those before do not count."""
    turns = []

    def arrivals(argv: list[str], text: str) -> list[Any]:
        turns.append("plain" if text == "plain" else "own")
        if text == "plain":
            assert argv[3:6] == ["jax_llama", "2", "10"]
            return [programs.Seconds(50.0, 2.0), programs.Seconds(51.0, 2.5)]
        assert argv[-2:] == ["--steps", "12"]
        times = (9.0, 20.0, *(20.0 + 0.11 * step for step in range(1, 11)))
        return [programs.Seconds(time, time / 2.2) for time in times]

    monkeypatch.setattr(programs, "arrivals", arrivals)
    row = programs.row("jax-llama", Path("python"), pairs=4, warmup=2, steps=10)
    assert turns == ["plain", *["own", "plain", "plain", "own"] * 2]
    ratios = "1.100 (1.100 to 1.100) | 1.000 (1.000 to 1.000)"
    assert row.startswith(f"| `jax-llama` | 100.0 ms | 110.0 ms | {ratios} | 4 |")
    monkeypatch.setattr(programs, "arrivals", lambda *_: [1.0])
    with pytest.raises(SystemExit, match="jax_llama: 1 of 12 steps were said"):
        programs.step_seconds(programs.PROGRAMS["jax-llama"], Path("python"), False, 2, 10)
