"""Stand-ins of the frameworks on GPU stacks, as the environments' locks name them.

A framework's own wheel is replaced by one of a few bytes whose tensors are on a GPU if nvidia-smi
lists one, and else on the CPU, as those of TensorFlow and JAX are. Every other wheel but those in
`REAL` is empty. Horovod is a source that is built, needs CUDA and NCCL for that, and sums by MPI.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric_standins import tar_of
from tiny_index import wheel

# Tensors that are where they were put; numpy() works on the CPU only, as that of PyTorch does.
TENSORS = """
import numpy
class Tensor:
    def __init__(self, values, where):
        self.values, self.where = numpy.asarray(values, "float32"), where
    def _like(self, values, other=None):
        if isinstance(other, Tensor) and other.where != self.where:
            raise RuntimeError("tensors on two devices")
        return type(self)(values, self.where)
    def __mul__(self, other):
        return self._like(self.values * getattr(other, "values", other), other)
    def __add__(self, other):
        return self._like(self.values + getattr(other, "values", other), other)
"""
TORCH = """
class Torch(Tensor):
    device = property(lambda self: self.where)
    def cuda(self): return Torch(self.values, "{gpu}")
    def cpu(self): return Torch(self.values, "cpu")
    def numpy(self):
        if self.where != "cpu": raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.values
def tensor(values): return Torch(values, "cpu")
"""
MXNET = """
class NDArray(Tensor):
    context = property(lambda self: self.where)
    def as_in_context(self, where): return NDArray(self.values, where)
    def asnumpy(self): return self.values
def gpu(number): return "{gpu}".replace("0", str(number))
def tensor(values): return NDArray(values, "cpu(0)")
"""
TENSORFLOW = """
class Eager(Tensor):
    device = property(lambda self: "/job:localhost/replica:0/task:0/device:" + self.where)
    def numpy(self): return self.values
def tensor(values): return Eager(values, "{gpu}")
"""
PADDLE_1 = """
class Place:
    def is_gpu_place(self): return "{gpu}" == "gpu"
class VarBase(Tensor):
    def value(self): return self
    def get_tensor(self): return self
    def _place(self): return Place()
    def numpy(self): return self.values
def tensor(values): return VarBase(values, "")
"""
# Without a GPU JAX only warns. An array has no numpy(); its numbers are arrays, too.
JAX = """
class Device:
    def __str__(self): return "{gpu}"
class Array(Tensor):
    device = property(lambda self: Device())
    def __iter__(self): return (Array(value, self.where) for value in self.values)
    def __float__(self): return float(self.values)
def tensor(values): return Array(values, "")
"""
PADDLE_2 = """
class Place:
    def __init__(self, name): self.name = name
    def __str__(self): return "Place(" + self.name + ")"
class Eager(Tensor):
    place = property(lambda self: Place(self.where))
    def cuda(self): return Eager(self.values, "{gpu}")
    def cpu(self): return Eager(self.values, "cpu")
    def numpy(self): return self.values
def tensor(values): return Eager(values, "{gpu}")
"""
KINDS = {
    "torch": (TORCH, "cuda:0"),
    "mxnet": (MXNET, "gpu(0)"),
    "tensorflow": (TENSORFLOW, "GPU:0"),
    "paddle": (PADDLE_1, "gpu"),
    "jax": (JAX, "cuda:0"),
    "paddle2": (PADDLE_2, "gpu:0"),
}


# What the stand-ins themselves, the roles and a build of Horovod need; everything else is left out.
REAL = (
    *("numpy", "mpi4py", "pip", "setuptools", "wheel"),
    # What setuptools imports, in Python 3.7.
    *("importlib-metadata", "packaging", "typing-extensions", "zipp"),
)
PIN = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?P<marker> ;[^\\\n]+)?"
    r"(?P<hashes>(?:\s*\\\n\s+--hash=\S+)+)",
    re.MULTILINE,
)
# Where there is no GPU, a tensor is on the CPU.
FINDS = """
import subprocess
def gpus():
    asked = ["nvidia-smi", "--query-gpu=index,uuid", "--format=csv,noheader"]
    try:
        return subprocess.check_output(asked, universal_newlines=True).split()
    except (OSError, subprocess.CalledProcessError):
        return []
WHERE = {gpu!r} if gpus() else "cpu"
"""
# 1.15 and Paddle 1.8 have no values before they are told to have them.
EAGER = """
eager = []
def {enable}(): eager.append(True)
def {make}(values):
    assert eager, "a tensor of a graph has no values"
    return tensor(values)
"""
NAMES = {
    "torch": ("torch", {}),
    "jax": ("jax", {"numpy.py": "from jax import tensor as array\n"}),
    "tensorflow": ("tensorflow", {}),
    "tensorflow-gpu": (
        "tensorflow",
        {
            "compat/__init__.py": "from tensorflow.compat import v1\n",
            "compat/v1.py": "from tensorflow import enable_eager_execution\n",
        },
    ),
    "mxnet-cu102": ("mxnet", {"nd.py": "from mxnet import tensor as array\n"}),
    "mxnet-cu102mkl": ("mxnet", {"nd.py": "from mxnet import tensor as array\n"}),
    "paddlepaddle-gpu": ("paddle", {}),
}
ENDS = {
    "jax": "from jax import numpy\n",
    "tensorflow": "constant = tensor\n",
    "tensorflow-gpu": EAGER.format(enable="enable_eager_execution", make="constant")
    + "from tensorflow import compat\n",
    "mxnet-cu102": "from mxnet import nd\n",
    "mxnet-cu102mkl": "from mxnet import nd\n",
    "paddlepaddle-gpu 1": EAGER.format(enable="enable_dygraph", make="to_variable")
    + "class fluid:\n    class dygraph: to_variable = staticmethod(to_variable)\n"
    + "    enable_dygraph = staticmethod(enable_dygraph)\n",
    "paddlepaddle-gpu 2": "to_tensor = tensor\n",
}


def framework(name: str, version: str) -> dict[str, str]:
    """The files of a framework's stand-in; none for other names."""
    if name not in NAMES:
        return {}
    package, files = NAMES[name]
    kind = "paddle2" if (name, version[0]) == ("paddlepaddle-gpu", "2") else package
    template, gpu = KINDS[kind]
    taken = "gpu, tensor" if package == "mxnet" else "tensor"
    end = ENDS.get(name, ENDS.get(f"{name} {version[0]}", ""))
    made = {
        "standin.py": FINDS.format(gpu=gpu) + TENSORS + template.replace('"{gpu}"', "WHERE"),
        "__init__.py": f"from {package}.standin import {taken}\n__version__ = {version!r}\n{end}",
    }
    return {f"{package}/{path}": text for path, text in {**made, **files}.items()}


# As Horovod's own does, it wants the framework that it is for, and CUDA and NCCL for GPUs.
SETUP = """
import os, sys
from setuptools import setup
for name in ("mxnet", "tensorflow"):
    if os.environ.get("HOROVOD_WITH_%s" % name.upper()) == "1":
        __import__(name)
nccl = os.environ.get("HOROVOD_GPU_OPERATIONS") == "NCCL"
for path in ("{nvcc}", "{library}") if nccl else ():
    path = path.replace("CUDA", os.environ.get("HOROVOD_CUDA_HOME", "/usr/local/cuda"))
    if not os.path.exists(path):
        sys.exit("horovod: there is no %s" % path)
with open("horovod/built.py", "w") as file:
    file.write("NCCL = %d\\n" % (20703 if nccl else 0))
setup(name="horovod", version="{version}", packages=["horovod"])
""".replace("{nvcc}", "CUDA/bin/nvcc").replace(
    "{library}", "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
)
# By MPI, whose library the node's mpirun has.
SUMS = """
import ctypes, os
from horovod.built import NCCL
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
def handle(name): return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
def number(call):
    found = ctypes.c_int()
    call(handle("ompi_mpi_comm_world"), ctypes.byref(found))
    return found.value
def init(): mpi.MPI_Init(None, None)
def shutdown(): mpi.MPI_Finalize()
def rank(): return number(mpi.MPI_Comm_rank)
def size(): return number(mpi.MPI_Comm_size)
def local_rank(): return int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"])
def nccl_built(): return NCCL
def allreduce(tensor, average, name):
    assert not average
    values = (ctypes.c_double * len(tensor.values))(*map(float, tensor.values))
    total = type(values)()
    mpi.MPI_Allreduce(
        values, total, len(values), handle("ompi_mpi_double"), handle("ompi_mpi_op_sum"),
        handle("ompi_mpi_comm_world"),
    )
    return type(tensor)(list(total), tensor.where)
"""


def horovod(folder: Path, version: str) -> str:
    """Make its source; a line of a lock that names it."""
    path = folder / f"horovod-{version}.tar.gz"
    files = {
        "setup.py": SETUP.replace("{version}", version),
        "PKG-INFO": f"Metadata-Version: 2.1\nName: horovod\nVersion: {version}\n",
        "horovod/__init__.py": "",
        **{f"horovod/{name}.py": SUMS for name in ("mxnet", "tensorflow")},
    }
    return f"horovod=={version} --hash=sha256:{tar_of(path, f'horovod-{version}', files)}\n"


@dataclass(frozen=True)
class Locks:
    """The locks of a project, whose stand-ins lie in `wheels`, a folder that is an index."""

    project: Path
    wheels: Path

    def replace(self, environments: Iterable[Mapping[str, Any]], python: str) -> None:
        """Let the locks of these environments have the checksums of the stand-ins; names and
        versions stay. `python`: the nodes' own, such as 3.7, for which the real ones are got."""
        own = [item["requirements"] for item in environments]
        more = [item["horovod"] for item in environments if "horovod" in item]
        for lock in {*own, *(each["build_requirements"] for each in more)}:
            self._replace(self.project / "requirements" / Path(lock).name, python)
        for each in more:
            lock = self.project / "requirements" / Path(each["requirements"]).name
            lock.write_text(horovod(self.wheels, each["version"]))

    def _replace(self, lock: Path, python: str) -> None:
        text, real = lock.read_text(), []

        def replaced(pin: re.Match[str]) -> str:
            name, version, marker = pin["name"], pin["version"], pin["marker"] or ""
            if name in REAL:
                real.append(pin.group())
                return pin.group()
            files = framework(name, version)
            line = wheel(self.wheels, name, version, "py3-none-any", files)
            return line.rstrip("\n").replace(" --hash", f"{marker} --hash")

        made = PIN.sub(replaced, text)
        lock.write_text(made)
        self._get(real, python)

    def _get(self, pins: Iterable[str], python: str) -> None:
        chosen = self.wheels.parent / "real.txt"
        chosen.write_text("\n".join(pins) + "\n")
        argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        argv += ["--require-hashes", "--only-binary", ":all:", "--python-version", python]
        argv += ["--implementation", "cp", "--dest", str(self.wheels), "-r", str(chosen)]
        for tag in ("1", "2010", "2014", "_2_12", "_2_17", "_2_28"):
            argv += ["--platform", f"manylinux{tag}_x86_64"]
        subprocess.run(argv, check=True, timeout=600)
