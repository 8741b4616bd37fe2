"""A computation on every GPU by the driver's library alone, and the cause of its failure. Python 2.7 and 3.6+."""

from __future__ import absolute_import, division, print_function

import ctypes
import glob
import json
import os
import re
import signal
import tempfile
import time

from . import nvidia_kernel
from .node_probes import modules

LIBRARIES = ("libcuda.so.1", "/opt/rocm/lib/libamdhip64.so")  # NVIDIA's, and AMD's
COUNT = 256
# numbers[i] = 3 * i + 7 in one block. PTX for an old target runs on every newer GPU.
PTX = b"""
.version 6.0
.target sm_60
.address_size 64
.visible .entry dlperf(.param .u64 numbers)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [numbers];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, %tid.x;
  mad.lo.s32 %r2, %r1, 3, 7;
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd2, %rd2, %rd3;
  st.global.u32 [%rd2], %r2;
  ret;
}
"""
HIP = b'extern "C" __global__ void dlperf(unsigned *numbers) { numbers[threadIdx.x] = 3 * threadIdx.x + 7; }'
# CUresult -> kind (cuda.h), and hipError_t, which has the same numbers. 35 is cudaErrorInsufficientDriver of the runtime, which some wrappers return.
KINDS = {
    2: "memory",
    34: "stub_library",
    35: "version_mismatch",
    46: "busy",
    100: "no_devices",
    101: "no_devices",
    218: "jit",
    221: "jit",
    222: "jit",
    304: "no_permission",
    802: "fabric",
    803: "version_mismatch",
    804: "compat",
}
REMEDIES = {
    "no_library": "libcuda.so.1 cannot be loaded: install the driver's libraries (provision.yml --tags nvidia_driver)",
    "stub_library": "libcuda.so.1 is the toolkit's stub: remove its folder (stubs) from ld.so.conf and LD_LIBRARY_PATH",
    "not_loaded": "the driver is not loaded: run modprobe nvidia to see why, check dkms status, or reboot the node",
    "no_uvm": "the module nvidia_uvm is not loaded: run modprobe nvidia_uvm to see why",
    "version_mismatch": "the driver's library and the loaded kernel module have different versions: reboot the node",
    "fabric": (
        "the NVSwitch fabric is not ready: check systemctl status nvidia-fabricmanager and its log /var/log/fabricmanager.log. The fabric"
        " manager must run and have exactly the driver's version; nvidia-smi -q shows the state under Fabric"
    ),
    "compat": "a libcuda.so.1 for forward compatibility (cuda-compat) is used, which these GPUs do not support: remove it from the library path",
    "no_devices": "the driver is loaded but gives no GPU: look for the GPUs with lspci, for Xid errors in the kernel's log, and for CUDA_VISIBLE_DEVICES",
    "no_permission": "this user may not open the GPUs: check the modes of /dev/nvidia*",
    "busy": "a GPU is used exclusively by another process, or MIG is on without an instance: see nvidia-smi",
    "memory": "a GPU has no free memory: end the processes that nvidia-smi lists",
    "jit": "the driver cannot compile PTX: libnvidia-ptxjitcompiler is missing or has another version than libcuda; install the driver again",
    "wrong_result": "a GPU computed wrong numbers: do not use it; run dcgmi diag -r 3 and replace it if that fails",
    "timeout": "the driver hangs: look for Xid errors in the kernel's log, then reboot the node",
    "crashed": "the driver's library crashed: reinstall the driver",
    "failed": "look for NVRM and Xid in the kernel's log, then reboot the node",
}
# Of AMD's GPUs, where they differ.
OF_AMD = {
    "no_library": "a library of ROCm cannot be loaded: install ROCm (provision.yml --tags rocm)",
    "not_loaded": "the driver is not loaded: run modprobe amdgpu to see why, check dkms status, or reboot the node",
    "version_mismatch": "ROCm does not fit the loaded driver: install both again (provision.yml --tags rocm), and reboot the node",
    "no_devices": "the driver gives no GPU: look for amdgpu in the kernel's log, for /dev/kfd, and for ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES",
    "memory": "a GPU has no free memory: end the processes that amd-smi process lists",
    "jit": "ROCm cannot compile a kernel: install it again",
    "wrong_result": "a GPU computed wrong numbers: do not use it; replace it if a reboot does not help",
    "timeout": "the driver hangs: look for amdgpu in the kernel's log, then reboot the node",
    "crashed": "ROCm's library crashed: install it again",
    "failed": "look for amdgpu in the kernel's log, then reboot the node",
}


class Failure(Exception):
    def __init__(self, kind, message, code=None):
        Exception.__init__(self, message)
        self.facts = {"kind": kind, "said": message, "code": code}


class Cuda(object):
    """The driver's functions; each raises Failure unless it returns CUDA_SUCCESS."""

    def __init__(self, library):
        try:
            self.library = ctypes.CDLL(library)
        except OSError as error:
            raise Failure("no_library", "%s" % error)

    def name(self, code):
        if hasattr(self.library, "hipGetErrorName"):
            self.library.hipGetErrorName.restype = ctypes.c_char_p
            return (self.library.hipGetErrorName(code) or b"").decode("ascii", "replace")
        text = ctypes.c_char_p()
        try:
            self.library.cuGetErrorName(code, ctypes.byref(text))
        except AttributeError:
            return ""
        return (text.value or b"").decode("ascii", "replace")

    def call(self, function, *arguments):
        try:
            code = getattr(self.library, function)(*arguments)
        except AttributeError:
            raise Failure("no_library", "%s has no function %s" % (self.library._name, function))
        if code:
            message = ("%s returned %d %s" % (function, code, self.name(code))).strip()
            raise Failure(KINDS.get(code, "failed"), message, code)


def computed(cuda, number):
    """The name of a GPU that computed what was expected."""
    device, context, program, kernel = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    memory, name = ctypes.c_uint64(), ctypes.create_string_buffer(128)
    cuda.call("cuDeviceGet", ctypes.byref(device), number)
    cuda.call("cuDeviceGetName", name, len(name), device)
    # The second version of these functions has 64-bit sizes and addresses.
    cuda.call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
    try:
        cuda.call("cuModuleLoadData", ctypes.byref(program), ctypes.c_char_p(PTX))
        cuda.call("cuModuleGetFunction", ctypes.byref(kernel), program, b"dlperf")
        numbers = (ctypes.c_uint32 * COUNT)()
        size = ctypes.c_size_t(ctypes.sizeof(numbers))
        cuda.call("cuMemAlloc_v2", ctypes.byref(memory), size)
        cuda.call("cuMemcpyHtoD_v2", memory, numbers, size)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        cuda.call("cuLaunchKernel", kernel, 1, 1, 1, COUNT, 1, 1, 0, None, parameters, None)
        cuda.call("cuCtxSynchronize")
        cuda.call("cuMemcpyDtoH_v2", numbers, memory, size)
    finally:
        cuda.library.cuCtxDestroy_v2(context)
    return checked(name, numbers)


def checked(name, numbers):
    """The name of the GPU that computed these numbers."""
    title = name.value.decode("utf-8", "replace")
    wrong = [i for i in range(COUNT) if numbers[i] != 3 * i + 7]
    if wrong:
        message = "%d of %d numbers are wrong (%s); number %d is %d instead of %d" % (
            len(wrong), COUNT, title, wrong[0], numbers[wrong[0]], 3 * wrong[0] + 7
        )  # fmt: skip
        raise Failure("wrong_result", message)
    return title


def compiled(library):
    """The kernel for the current GPU of AMD, by the compiler beside the library."""
    rtc, program, size = Cuda(library.replace("amdhip64", "hiprtc")), ctypes.c_void_p(), ctypes.c_size_t()
    try:
        rtc.call("hiprtcCreateProgram", ctypes.byref(program), HIP, b"dlperf", 0, None, None)
        rtc.call("hiprtcCompileProgram", program, 0, None)
        rtc.call("hiprtcGetCodeSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        rtc.call("hiprtcGetCode", program, code)
    except Failure as failure:
        failure.facts["kind"] = "no_library" if failure.facts["code"] is None else "jit"
        raise
    return code


def computed_by_hip(hip, number):
    """The name of a GPU of AMD that computed what was expected."""
    program, kernel, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    name, numbers = ctypes.create_string_buffer(128), (ctypes.c_uint32 * COUNT)()
    size = ctypes.c_size_t(ctypes.sizeof(numbers))
    hip.call("hipSetDevice", number)
    hip.call("hipDeviceGetName", name, len(name), number)
    code = compiled(hip.library._name)
    hip.call("hipModuleLoadData", ctypes.byref(program), code)
    hip.call("hipModuleGetFunction", ctypes.byref(kernel), program, b"dlperf")
    hip.call("hipMalloc", ctypes.byref(memory), size)
    hip.call("hipMemcpyHtoD", memory, numbers, size)
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
    hip.call("hipModuleLaunchKernel", kernel, 1, 1, 1, COUNT, 1, 1, 0, None, parameters, None)
    hip.call("hipDeviceSynchronize")
    hip.call("hipMemcpyDtoH", numbers, memory, size)
    return checked(name, numbers)


def compute(library):
    """The names of the GPUs that computed. With ROCm's library, of AMD's."""
    cuda = Cuda(library)
    by, prefix = (computed_by_hip, "hip") if "amdhip64" in library else (computed, "cu")
    version, count = ctypes.c_int(), ctypes.c_int()
    cuda.call(prefix + "Init", 0)
    cuda.call(prefix + "DriverGetVersion", ctypes.byref(version))
    cuda.call("cuDeviceGetCount" if prefix == "cu" else "hipGetDeviceCount", ctypes.byref(count))
    if not count.value:
        raise Failure("no_devices", "the driver's library found 0 GPUs")
    devices = []
    for number in range(count.value):
        try:
            devices.append(by(cuda, number))
        except Failure as failure:
            failure.facts["said"] = "GPU %d: %s" % (number, failure.facts["said"])
            raise
    if prefix == "hip":
        return {"devices": devices}
    return {"devices": devices, "cuda": "%d.%d" % (version.value // 1000, version.value % 1000 // 10)}


def in_child(library, timeout):
    """The result of `compute`, or its failure as {kind, said, code}. The result goes to a file, as a hanging child could hold a pipe open."""
    with tempfile.TemporaryFile() as stream:
        child = os.fork()
        if not child:
            try:
                os.setsid()
                result = compute(library)
            except Failure as failure:
                result = failure.facts
            except BaseException as error:  # nothing else may leave the child
                result = {"kind": "failed", "said": "%s: %s" % (type(error).__name__, error), "code": None}
            stream.write(json.dumps(result).encode("utf-8"))
            stream.flush()
            os._exit(0)
        deadline, status = time.time() + timeout, None
        while status is None and time.time() < deadline:
            ended, code = os.waitpid(child, os.WNOHANG)
            status = code if ended else None
            time.sleep(0.02)
        if status is None:
            os.kill(child, signal.SIGKILL)  # not waited for: in the driver it may be unkillable
            return {"kind": "timeout", "said": "no result within %d s" % timeout, "code": None}
        stream.seek(0)
        written = stream.read()
    if status or not written:
        return {"kind": "crashed", "said": "the child process ended with wait status %d" % status, "code": None}
    return json.loads(written.decode("utf-8"))


def versions_on_disk(root):
    """Versions in the names of the installed libraries: libcuda.so.580.105.08"""
    patterns = ("usr/lib/*/libcuda.so.*", "usr/lib64/libcuda.so.*")
    paths = [path for pattern in patterns for path in glob.glob(os.path.join(root, pattern))]
    matches = [re.search(r"libcuda\.so\.(\d+\.\d+(?:\.\d+)?)$", path) for path in paths]
    return sorted(set(match.group(1) for match in matches if match))


def explained(failure, root, is_amd=False):
    """The failure with the cause that the driver's number alone does not tell."""
    kind, loaded = failure["kind"], modules(root)
    if is_amd:
        kind = "not_loaded" if kind == "no_devices" and "amdgpu" not in loaded else kind
        facts = "module amdgpu %s" % ((loaded["amdgpu"] or "of the kernel") if "amdgpu" in loaded else "not loaded")
    else:
        running, libraries = nvidia_kernel.running(root), versions_on_disk(root)
        if kind in ("no_devices", "failed", "version_mismatch") and running is None:
            kind = "not_loaded"
        elif kind in ("no_devices", "failed") and libraries and running not in libraries:
            kind = "version_mismatch"
        elif failure["code"] == 999 and "nvidia_uvm" not in loaded:
            kind = "no_uvm"
        facts = "loaded kernel module %s, installed libcuda %s" % (running or "none", ", ".join(libraries) or "none")
    remedy = OF_AMD.get(kind, REMEDIES[kind]) if is_amd else REMEDIES[kind]
    return dict(failure, kind=kind, msg="No GPU computation: %s (%s). To do: %s." % (failure["said"], facts, remedy))
