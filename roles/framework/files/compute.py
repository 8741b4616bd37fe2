"""Imports a framework and computes with it: compute.py MODULE TENSOR [EAGER].

TENSOR is the dotted name of what makes a tensor of numbers, EAGER that of what must be called
before tensors hold numbers.
"""

import functools
import importlib
import sys

import numpy


def numbers(made):
    """The numbers of a tensor; frameworks differ in what they call its NumPy array."""
    for name in ("asnumpy", "numpy"):
        if hasattr(made, name):
            made = getattr(made, name)()
    return [float(value) for value in made]


def named(dotted):
    package, *names = dotted.split(".")
    return functools.reduce(getattr, names, importlib.import_module(package))


module, tensor, *eager = filter(None, sys.argv[1:])
framework = importlib.import_module(module)
for call in eager:
    named(call)()
make = named(tensor)
# 1*4 + 1, 2*5 + 1, 3*6 + 1
first, second = numpy.array([[1, 2, 3], [4, 5, 6]], dtype="float32")
computed = make(first) * make(second) + 1
version = getattr(framework, "__version__", "?")
print(module, version, "computed", numbers(computed))
