"""Sums a tensor over all ranks: all_reduce.py MODULE TENSOR.

TENSOR is the dotted name of what makes a tensor of a list.
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


module, tensor = sys.argv[1:3]
hvd = importlib.import_module(module)
package, *names = tensor.split(".")
make = functools.reduce(getattr, names, importlib.import_module(package))
hvd.init()
rank, size = hvd.rank(), hvd.size()
total = hvd.allreduce(make([rank + 1.0, 10.0 * (rank + 1)]), average=False, name="proof")
found = numbers(total)
print(f"rank {rank} of {size} on {socket.gethostname()}: sum {found}", flush=True)
hvd.shutdown()
