"""Stand-ins of packages for GPUs.

Names, versions and dependencies are the vendors', as far as they are known. The content is a few
bytes.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

from standin_repository import Standin

LIBRARY = "/usr/lib/x86_64-linux-gnu"

# What it is told is kept, but of standard input only the sum.
DOCKER = """#!/bin/sh
log=/var/log/standin-docker.log
echo "argv: $*" >> $log
case "$1 $2" in
  "login "*) echo "stdin: $(sha256sum)" >> $log; echo Login Succeeded ;;
  "image inspect") grep -q "^argv: pull $5$" $log ;;
  "ps "*) cat /srv/containers 2> /dev/null ;;
  "info "*) tr -d ' \n' < /etc/docker/daemon.json ;;
esac
"""

DRIVER = "#!/bin/sh\necho stand-in\n"

# Where a stand-in of a running driver is on a node.
TREE = "/srv/node"

# The specification that it prints is a real one, of a card and of the driver's library.
NVIDIA_CTK = rf"""#!/bin/sh
version=$(sed -n 's/.*Module  \([0-9.]*\) .*/\1/p' {TREE}/proc/driver/nvidia/version)
library=libcuda.so.$version
case "$1 $2" in
  "cdi generate") cat <<END ;;
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  mounts:
  - hostPath: {TREE}/$library
    containerPath: /usr/lib/$library
    options: [ro, nosuid, nodev, bind]
END
  "cdi list") sed -n 's/^- name: /nvidia.com\/gpu=/p' /etc/cdi/*.yaml ;;
esac
"""


def one(name: str, version: str, depends: str = "", **more: Any) -> Standin:
    return Standin(name, version, depends, **more)


def driver_440_of_16_04(version: str) -> list[Standin]:
    """Its driver is one package, with the newest of which cuda-drivers would be content."""
    exact = f"{version}-0ubuntu1"
    parts = ("libcuda1-440", "nvidia-440-dev", "nvidia-opencl-icd-440")
    tools = ("nvidia-modprobe", "nvidia-settings")
    wants = ", ".join(f"{name} (>= {version})" for name in ("nvidia-440", *parts, *tools))
    return [
        one("cuda-drivers", f"{version}-1", wants),
        one("nvidia-440", exact),
        *(one(part, exact, f"nvidia-440 (>= {version})") for part in parts),
        one("nvidia-modprobe", exact),
        one("nvidia-settings", exact, f"libxnvctrl0 (>= {version})"),
        one("libxnvctrl0", exact),
    ]


def driver_440(version: str) -> list[Standin]:
    """cuda-drivers asks for a driver that is new enough; the driver for its own parts exactly."""
    exact = f"{version}-0ubuntu1"
    parts = ("libnvidia-compute-440", "libnvidia-gl-440", "nvidia-dkms-440", "nvidia-utils-440")
    return [
        one("cuda-drivers", f"{version}-1", f"nvidia-driver-440 (>= {version}), nvidia-modprobe"),
        one("nvidia-driver-440", exact, ", ".join(f"{part} (= {exact})" for part in parts)),
        *(one(part, exact) for part in parts),
        one("nvidia-modprobe", exact),
        # Of which the distribution has another one, that hwloc's plugins bring.
        one("libxnvctrl0", exact),
    ]


# What dkms's part of a real one does: a kernel without headers is skipped, and that is no error.
DKMS_POSTINST = """
test ! -e /lib/modules/$(uname -r)/build || dkms autoinstall --kernelver $(uname -r)
"""


def fabric(version: str, ending: str = "", revision: str = "1") -> list[Standin]:
    """Of boards with NVSwitch; until 575 their names end in the branch."""
    exact = f"{version}-{revision}"
    program = "/usr/bin/nv-fabricmanager"
    says = {program: f"#!/bin/sh\necho 'Fabric Manager version is : {version}'\n"}
    more = {"files": says, "executables": frozenset({program})}
    names = (f"nvidia-fabricmanager{ending}", f"libnvidia-nscq{ending}")
    made = [one(names[0], exact, **more), one(names[1], exact), one(f"libnvsdm{ending}", exact)]
    return [*made, imex(version, exact, ending)]


def imex(version: str, exact: str, ending: str) -> Standin:
    """As NVIDIA/gpu-driver-container#200 lists it; its control says what a daemon says or lacks
    (bottlerocket-kernel-kit#204)."""
    programs = {
        "nvidia-imex": f"echo 'IMEX version is: {version}'",
        "nvidia-imex-ctl": """test -e /srv/started-nvidia-imex && echo READY || {
  echo "Unable to connect to IMEX daemon" >&2; exit 1; }""",
    }
    files = {f"/usr/bin/{name}": f"#!/bin/sh\n{text}\n" for name, text in programs.items()}
    config = {"/etc/nvidia-imex/config.cfg": "SERVER_PORT=50000\n"}
    name = f"nvidia-imex{ending}"
    return one(name, exact, files=files | config, executables=frozenset(files))


def only_one(name: str, version: str, virtual: str) -> Standin:
    """A part of which a node has one only: it conflicts with the name that it provides."""
    return one(name, version, conflicts=virtual, provides=virtual)


def driver_of_branch(branch: str, modules: str, fabric_ending: str, version: str) -> list[Standin]:
    """`modules` ends the names of those that bring the kernel's: nothing, or -open."""
    exact = f"{version}-1ubuntu1"
    virtual = ("libnvidia-compute", "nvidia-kernel-common")
    parts = [
        *(only_one(f"{name}-{branch}", exact, name) for name in virtual),
        one(f"nvidia-dkms-{branch}{modules}", exact, postinst=DKMS_POSTINST),
        one(f"nvidia-utils-{branch}", exact),
    ]
    return [
        one(
            f"nvidia-driver-{branch}{modules}",
            exact,
            ", ".join(f"{part.name} (= {exact})" for part in parts) + ", nvidia-modprobe",
            conflicts="nvidia-driver-440",
        ),
        *parts,
        one("nvidia-modprobe", exact),
        # Of which the distribution has another one, that hwloc's plugins bring.
        one("libxnvctrl0", exact),
        *fabric(version, fabric_ending, "1ubuntu1"),
    ]


def driver_580_of_debian(version: str) -> list[Standin]:
    """Without a branch in their names: apt would take the newest branch."""
    exact = f"{version}-1"
    kernel = ("firmware-nvidia-gsp", "nvidia-kernel-support")
    programs = ("libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1", "nvidia-persistenced")
    return [
        one(
            "nvidia-kernel-open-dkms",
            exact,
            f"firmware-nvidia-gsp (= {exact}), nvidia-kernel-support (>= {version})",
        ),
        one("nvidia-driver-cuda", exact, ", ".join(f"{name} (>= {version})" for name in programs)),
        *(one(name, exact) for name in (*kernel, *programs)),
        *fabric(version),
    ]


def cuda(
    series: str, version: str, compiler: str, blas: Iterable[Standin], parts: str
) -> list[Standin]:
    """The toolkit is a name for its parts, which have versions of their own."""
    dashed = series.replace(".", "-")
    nvcc = f"/usr/local/cuda-{series}/bin/nvcc"
    wants = f"cuda-nvcc-{dashed} (>= {compiler.split('-')[0]}), {parts}"
    program = {"files": {nvcc: DRIVER}, "executables": frozenset({nvcc})}
    return [
        one(f"cuda-toolkit-{dashed}", version, wants),
        one(f"cuda-nvcc-{dashed}", compiler, **program),
        *blas,
    ]


def cuda_10_0_libraries() -> list[Standin]:
    """What is unpacked beside CUDA 10.2, with shared libraries of no function."""
    folder = "/usr/local/cuda-10.0"
    libraries = f"{folder}/targets/x86_64-linux/lib"
    names = ("cublas", "cudart", "cufft", "curand", "cusolver", "cusparse")
    places = {
        **{f"cuda-{name}-10-0": f"{libraries}/lib{name}.so.10.0" for name in names},
        "cuda-cupti-10-0": f"{folder}/extras/CUPTI/lib64/libcupti.so.10.0",
    }
    return [
        *(
            one(name, "10.0.130-1", "cuda-license-10-0", files={path: shared_library()})
            for name, path in places.items()
        ),
        one("cuda-nvcc-10-0", "10.0.130-1", files={f"{folder}/nvvm/libdevice/libdevice.10.bc": ""}),
    ]


@cache
def shared_library() -> bytes:
    """A shared library that holds nothing; bytes that cannot be loaded without a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "empty.so")
        argv = ["gcc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", str(made)]
        if not shutil.which("gcc") or subprocess.run(argv, check=False).returncode:
            return b"stand-in"
        return made.read_bytes()


def cublas(version: str) -> list[Standin]:
    return [one("libcublas10", version), one("libcublas-dev", version, "libcublas10")]


def cublas_of(dashed: str, version: str) -> list[Standin]:
    return [one(f"libcublas-{dashed}", version), one(f"libcublas-dev-{dashed}", version)]


def cudnn(major: int, version: str, loadable: bytes = b"") -> list[Standin]:
    """As it was called until cuDNN 9. Its library can be loaded if it begins with one that can."""
    name = f"libcudnn{major}"
    library = {f"{LIBRARY}/libcudnn.so.{major}": loadable + version.encode()}
    return [one(name, version, files=library), one(f"{name}-dev", version, f"{name} (= {version})")]


cudnn_7 = partial(cudnn, 7)


def cudnn_9(version: str) -> list[Standin]:
    library = {f"{LIBRARY}/libcudnn.so.9": version}
    headers = "libcudnn9-headers-cuda-12"
    return [
        one("libcudnn9-cuda-12", version, files=library),
        one(headers, version),
        one("libcudnn9-dev-cuda-12", version, f"libcudnn9-cuda-12 (= {version}), {headers}"),
    ]


def nccl(version: str) -> list[Standin]:
    return [
        one("libnccl2", version, files={f"{LIBRARY}/libnccl.so.2": version}),
        one("libnccl-dev", version, f"libnccl2 (= {version})"),
    ]


def docker(version: str, containerd: str) -> list[Standin]:
    program = "/usr/bin/docker"
    executables = frozenset({program})
    return [
        one("docker-ce", version, "containerd.io, docker-ce-cli", conflicts="docker.io"),
        one(
            "docker-ce-cli",
            version,
            files={program: DOCKER},
            executables=executables,
            conflicts="docker.io",
        ),
        one("containerd.io", containerd),
    ]


def toolkit(version: str) -> list[Standin]:
    program = "/usr/bin/nvidia-ctk"
    base = f"nvidia-container-toolkit-base (= {version})"
    return [
        one(
            "nvidia-container-toolkit", version, f"{base}, libnvidia-container-tools (>= {version})"
        ),
        one(
            "nvidia-container-toolkit-base",
            version,
            files={program: NVIDIA_CTK},
            executables=frozenset({program}),
        ),
        one("libnvidia-container-tools", version, f"libnvidia-container1 (>= {version})"),
        one("libnvidia-container1", version),
    ]


def rocm(version: str, build: str, release: str, hip: Path) -> list[Standin]:
    """Each part wants the others of exactly its own release. `hip`: the library that computes."""
    ending = f"{build}~{release}"
    home = f"/opt/rocm-{version}"
    parts = {"rocminfo": "1.0.0", "rccl": "2.27.7", "hipcc": "1.1.1", "rocm-core": version}
    depends = ", ".join(f"{name} (= {number}.{ending})" for name, number in parts.items())
    libraries = [hip, hip.with_name("libhiprtc.so")]
    files: dict[str, dict[str, str | bytes]] = {
        "rocminfo": {f"{home}/bin/rocminfo": ""},
        "rccl": {f"{home}/lib/librccl.so.1": ""},
        "hipcc": {f"{home}/lib/{library.name}": library.read_bytes() for library in libraries},
        "rocm-core": {f"{home}/.info/version": f"{version}-{build.rpartition('-')[2]}\n"},
    }
    made = [one("rocm", f"{version}.{ending}", depends)]
    for name, number in parts.items():
        made.append(one(name, f"{number}.{ending}", files=files[name]))
    return made


def amdgpu(module: str, driver: str, build: str, release: str) -> list[Standin]:
    """Its postinst ends with dkms's status, so that apt fails (ROCm/legacy-rocm-build#6193)."""
    firmware = f"{driver}.0.{build}.{release}"
    return [
        one(
            "amdgpu-dkms",
            f"1:{module}.{build}.{release}",
            f"amdgpu-dkms-firmware (= {firmware})",
            postinst=DKMS_POSTINST,
        ),
        one("amdgpu-dkms-firmware", firmware),
    ]
