"""A training program that does nothing but take part in an all-reduce, and fails as the file
/home/dlperf/fault of its node says:

python fault_program.py STEPS SECONDS
"""

import os
import signal
import sys
import time
from contextlib import suppress

fault = ""
with suppress(OSError), open("/home/dlperf/fault") as file:  # noqa: PTH123
    fault = file.read().strip()
if fault == "interface":
    os.environ["OMPI_MCA_btl_tcp_if_include"] = "lo"  # noqa: SIM112  of this rank only
from mpi4py import MPI  # type: ignore[import-not-found]  # noqa: E402  of the node's environment

steps, seconds = int(sys.argv[1]), float(sys.argv[2]) * (1.25 if fault == "slow" else 1)
world = MPI.COMM_WORLD
# After the start, a hang is noticed by the rhythm before it.
AT = 1 if fault.startswith("first") else 3 if fault in ("crash", "exit", "abort") else 35


def break_down() -> None:
    if fault == "memory":
        bytearray(1 << 62)
    elif fault == "disk":
        with open("/opt/dlperf/runs/full/file", "wb") as file:  # noqa: PTH123
            file.write(bytes(64 << 20))
    elif fault == "read-only":
        open("/home/dlperf/readonly/file", "wb")  # noqa: PTH123, SIM115
    elif fault == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "exit":
        os._exit(3)  # without MPI_Finalize, which would wait for the other ranks
    elif fault == "abort":
        world.Abort(7)
    elif fault == "module":
        import horovod_of_nobody  # type: ignore[import-not-found]  # noqa: F401
    elif fault == "library":
        import ctypes

        ctypes.CDLL("libnccl_of_nobody.so.2")
    elif fault in ("resolve", "route"):
        import socket

        name = "no-such-host.invalid" if fault == "resolve" else "192.0.2.1"
        socket.create_connection((name, 1), timeout=20)
    elif fault == "value":
        raise ValueError("batch size must be positive")
    elif fault in ("first-stops", "stops"):
        os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "first-spins":
        while True:
            pass
    elif fault == "silent":
        time.sleep(3600)
    elif fault in ("children", "orphans"):
        for _ in range(30):
            if not os.fork():
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                os.closerange(0, 1024)  # else mpirun would wait for more output
                os.execl("/bin/sleep", "sleep", "3600")  # noqa: S606
        if fault == "orphans":
            time.sleep(1)
            os._exit(1)
    elif fault == "garbled":
        sys.stdout.buffer.write(bytes(range(128, 256)) * 64 + b"\n")
        sys.stdout.flush()
    elif fault == "truncated":
        os.truncate(f"/proc/{os.getppid()}/fd/1", 200)  # mpirun's output is the log


for step in range(1, steps + 1):
    began = time.time()
    time.sleep(seconds)
    if step == AT and fault:
        print(f"fault at {time.time():.1f}", flush=True)
        break_down()
    world.allreduce(step)
    if world.rank == 0:
        rate = world.size / (time.time() - began)
        print(f"step {step} rate {rate:.1f} samples/s", flush=True)
