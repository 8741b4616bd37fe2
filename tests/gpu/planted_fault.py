"""Run a builtin PyTorch program with a planted fault.

    python planted_fault.py KIND PROGRAM.py [OPTION...]

The program is the real one; only what KIND says is changed before it or within its steps.
"""

import os
import runpy
import signal
import sys
import time
from collections.abc import Callable

STEADY_S = 15.0  # of steps before the fault, so that the log has a rhythm
EXIT_STATUS = 7


def in_a_step(after_s: float, fault: Callable[[], object]) -> None:
    """Let the fault happen in the first update after so many seconds of training."""
    import torch

    began: list[float] = []
    update = torch.optim.Optimizer.zero_grad

    def planted(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        began.append(time.monotonic())
        if began[-1] - began[0] > after_s:
            fault()
        update(self, set_to_none)

    torch.optim.Optimizer.zero_grad = planted  # type: ignore[method-assign]


def out_of_memory() -> None:
    """Leave a tenth of a GiB of the GPU's memory."""
    import torch

    free, _ = torch.cuda.mem_get_info()
    held = [torch.empty(free - (100 << 20), dtype=torch.uint8, device="cuda")]
    torch.cuda.synchronize()
    globals()["held"] = held


def spin() -> None:
    """Start a kernel that runs for hours."""
    import torch

    torch.cuda._sleep(1 << 45)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def plant(kind: str, options: list[str]) -> list[str]:
    """Plant the fault. Returns the program's options."""
    if kind == "nan":
        return [*options, "--lr", "1e30"]
    if kind == "stopped-before-first-step":
        stop()
    elif kind == "out-of-memory":
        out_of_memory()
    else:
        faults = {
            "exit": lambda: os._exit(EXIT_STATUS),
            "stopped-in-a-step": stop,
            "kernel-that-spins": spin,
        }
        in_a_step(0 if kind == "exit" else STEADY_S, faults[kind])
    return options


def main(kind: str, program: str, *options: str) -> None:
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))  # noqa: PTH100, PTH120
    sys.argv = [program, *plant(kind, list(options))]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
