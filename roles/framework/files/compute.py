"""Imports a framework and computes with it: compute.py MODULE TENSOR.

TENSOR is the dotted name of what makes a tensor of a list.
"""

import importlib
import sys

module, tensor = sys.argv[1:3]
framework = importlib.import_module(module)
place, name = tensor.rsplit(".", 1)
make = getattr(importlib.import_module(place), name)
# 1*4 + 1, 2*5 + 1, 3*6 + 1
computed = make([1.0, 2.0, 3.0]) * make([4.0, 5.0, 6.0]) + 1
version = getattr(framework, "__version__", "?")
print(module, version, "computed", [float(value) for value in computed])
