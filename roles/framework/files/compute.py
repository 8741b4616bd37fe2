"""Imports a framework and computes with it: compute.py MODULE TENSOR.

TENSOR is the dotted name of what makes a tensor of a list.
"""

import functools
import importlib
import sys


def numbers(made):
    """The numbers of a tensor; frameworks differ in what they call its NumPy array."""
    return [
        float(value) for value in (made.asnumpy() if hasattr(made, "asnumpy") else made.numpy())
    ]


module, tensor = sys.argv[1:3]
framework = importlib.import_module(module)
package, *names = tensor.split(".")
make = functools.reduce(getattr, names, importlib.import_module(package))
# 1*4 + 1, 2*5 + 1, 3*6 + 1
computed = make([1.0, 2.0, 3.0]) * make([4.0, 5.0, 6.0]) + 1
version = getattr(framework, "__version__", "?")
print(module, version, "computed", numbers(computed))
