"""Sums a tensor over all ranks: all_reduce.py MODULE TENSOR.

TENSOR is the dotted name of what makes a tensor of a list.
"""

import importlib
import socket
import sys

module, tensor = sys.argv[1:3]
hvd = importlib.import_module(module)
place, name = tensor.rsplit(".", 1)
make = getattr(importlib.import_module(place), name)
hvd.init()
rank, size = hvd.rank(), hvd.size()
total = hvd.allreduce(make([rank + 1.0, 10.0 * (rank + 1)]), average=False, name="proof")
found = [float(value) for value in total]
print(f"rank {rank} of {size} on {socket.gethostname()}: sum {found}", flush=True)
hvd.shutdown()
