"""Sums a tensor over all ranks: all_reduce.py MODULE TENSOR [EAGER].

TENSOR is the dotted name of what makes a tensor of a list, EAGER that of what must be called
before tensors hold numbers.
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


module, tensor, *eager = filter(None, sys.argv[1:])
hvd = importlib.import_module(module)
for call in eager:
    named(call)()
make = named(tensor)
hvd.init()
rank, size = hvd.rank(), hvd.size()
total = hvd.allreduce(make([rank + 1.0, 10.0 * (rank + 1)]), average=False, name="proof")
found = numbers(total)
# Line feed included: mpirun mixes the ranks' writes, and an unbuffered print() makes two of a line.
print(f"rank {rank} of {size} on {socket.gethostname()}: sum {found}\n", end="", flush=True)
hvd.shutdown()
