"""Computes with a framework and sums the result over all ranks: all_reduce.py MODULE TENSOR [EAGER
[gpu]].

TENSOR is the dotted name of what makes a tensor of a list, EAGER that of what must be called
before tensors hold numbers. With `gpu`, the tensors must be there, and Horovod built with NCCL:
the sum is then NCCL's (HOROVOD_GPU_OPERATIONS).
"""

import functools
import importlib
import socket
import sys


def numbers(made):
    """The numbers of a tensor; frameworks differ in what they call its NumPy array."""
    return [
        float(value) for value in (made.asnumpy() if hasattr(made, "asnumpy") else made.numpy())
    ]


def named(dotted):
    package, *names = dotted.split(".")
    return functools.reduce(getattr, names, importlib.import_module(package))


def place(made):
    """The device of a tensor: gpu(0), cuda:0, /job:localhost/[...]/device:GPU:0."""
    return str(made.context if hasattr(made, "context") else made.device)


module, tensor, eager, device = [*sys.argv[1:], "", ""][:4]
hvd = importlib.import_module(module)
if eager:
    named(eager)()
make = named(tensor)
hvd.init()
rank, size = hvd.rank(), hvd.size()
given = make([rank + 1.0, 10.0 * (rank + 1)])
if device and hasattr(given, "as_in_context"):  # TensorFlow puts it on the GPU by itself
    given = given.as_in_context(named(tensor.partition(".")[0] + ".gpu")(hvd.local_rank()))
computed = given * given + 1
total = hvd.allreduce(computed, average=False, name="proof")
if device:
    places = [place(computed), place(total)]
    if not all("gpu" in text.lower() for text in places):
        sys.exit(f"the tensors are on {' and '.join(places)}, not on the GPU")
    if not hvd.nccl_built():
        sys.exit("Horovod is built without NCCL")
how = " by NCCL" if device else ""
line = f"rank {rank} of {size} on {socket.gethostname()}: sum {numbers(total)}{how}"
# Line feed included: mpirun mixes the ranks' writes, and an unbuffered print() makes two of a line.
print(f"{line}\n", end="", flush=True)
hvd.shutdown()
