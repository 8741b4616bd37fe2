"""A training program that does nothing but take part in an all-reduce, and fails as it is told:

python fault_program.py STEPS SECONDS FAULT
"""

import os
import signal
import sys
import time

from mpi4py import MPI  # type: ignore[import-not-found]  # of the node's environment

steps, seconds, fault = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
world = MPI.COMM_WORLD
for step in range(1, steps + 1):
    began = time.time()
    time.sleep(seconds)
    if step == 8 and world.rank == world.size - 1:
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
        elif fault == "module":
            import horovod_of_nobody  # type: ignore[import-not-found]  # noqa: F401
        elif fault == "resolve":
            import socket

            socket.create_connection(("no-such-host.invalid", 1))
        elif fault == "silent":
            time.sleep(3600)
    world.allreduce(step)
    if world.rank == 0:
        rate = world.size / (time.time() - began)
        print(f"step {step} rate {rate:.1f} samples/s", flush=True)
        if step == 8 and fault == "garbled":
            sys.stdout.buffer.write(bytes(range(128, 256)) * 64)
            sys.stdout.flush()
