"""Imports a framework and computes with it: compute.py MODULE TENSOR [EAGER [gpu]].

TENSOR is the dotted name of what makes a tensor of numbers, EAGER that of what must be called
before tensors hold numbers. With `gpu`, the computation must take place there.
"""

import functools
import importlib
import sys

import numpy


def numbers(made):
    """The numbers of a tensor; frameworks differ in what they call its NumPy array."""
    if hasattr(made, "cuda"):
        made = made.cpu()
    for name in ("asnumpy", "numpy"):
        if hasattr(made, name):
            made = getattr(made, name)()
    return [float(value) for value in made]


def named(dotted):
    package, *names = dotted.split(".")
    return functools.reduce(getattr, names, importlib.import_module(package))


def on_gpu(made):
    """The tensor on the first GPU, where TensorFlow and Paddle put it by themselves."""
    if hasattr(made, "as_in_context"):
        return made.as_in_context(framework.gpu(0))
    return made.cuda() if hasattr(made, "cuda") else made


def place(made):
    """The device of a tensor: cuda:0, gpu(0), Place(gpu:0), /job:localhost/[...]/device:GPU:0."""
    for name in ("device", "context", "place"):
        if hasattr(made, name):
            return str(getattr(made, name))
    # Paddle 1.8
    return "gpu" if made.value().get_tensor()._place().is_gpu_place() else "cpu"


module, tensor, eager, device = [*sys.argv[1:], "", ""][:4]
framework = importlib.import_module(module)
if eager:
    named(eager)()
make = (lambda numbers: on_gpu(named(tensor)(numbers))) if device else named(tensor)
# 1*4 + 1, 2*5 + 1, 3*6 + 1
first, second = numpy.array([[1, 2, 3], [4, 5, 6]], dtype="float32")
computed = make(first) * make(second) + 1
version = getattr(framework, "__version__", "?")
if device and not any(name in place(computed).lower() for name in ("gpu", "cuda")):
    sys.exit(f"{module} computed on {place(computed)}, not on the GPU")
print(module, version, "computed", numbers(computed), *(["on", device] if device else []))
