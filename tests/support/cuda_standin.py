"""A stand-in for the driver's library: it has memory, "compiles" the one kernel that the project
brings, and runs it. Where a file says `cuInit 802`, that function fails so, as NVIDIA's does."""

import shutil
import subprocess
from pathlib import Path

GCC = shutil.which("gcc")
SOURCE = r"""
#include <grp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef int R;
static R fails(const char *function) {
  char name[64];
  int code = 0, wanted = 0;
  FILE *file = fopen(FAILS, "r");
  if (!file) return 0;
  while (fscanf(file, "%63s %d", name, &code) == 2)
    if (!strcmp(name, function)) wanted = code;
  fclose(file);
  if (wanted == -1) sleep(60);
  if (wanted == -2) abort();
  return wanted;
}
#define CHECK do { R code = fails(__func__); if (code) return code; } while (0)
R cuInit(unsigned flags) { CHECK; return flags ? 1 : 0; }
R cuDriverGetVersion(int *version) { CHECK; *version = 13000; return 0; }
R cuDeviceGetCount(int *count) { CHECK; *count = 2; return 0; }
R cuDeviceGet(int *device, int number) { CHECK; *device = number; return 0; }
R cuDeviceGetName(char *name, int size, int device) {
  CHECK; snprintf(name, size, "Stand-in %d", device); return 0;
}
R cuCtxCreate_v2(void **context, unsigned flags, int device) {
  CHECK; *context = malloc(1); return flags;
}
R cuCtxDestroy_v2(void *context) { free(context); return 0; }
R cuModuleLoadData(void **module, const char *ptx) {
  CHECK;
  if (!strstr(ptx, ".version") || !strstr(ptx, ".entry dlperf(")) return 218;
  *module = (void *)ptx;
  return 0;
}
R cuModuleGetFunction(void **function, void *module, const char *name) {
  CHECK; if (strcmp(name, "dlperf")) return 500; *function = module; return 0;
}
R cuMemAlloc_v2(uint64_t *memory, size_t size) {
  CHECK; *memory = (uint64_t)(uintptr_t)malloc(size); return 0;
}
R cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
  CHECK; memcpy((void *)(uintptr_t)to, from, size); return 0;
}
R cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
  CHECK; memcpy(to, (void *)(uintptr_t)from, size); return 0;
}
R cuLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y,
                 unsigned z, unsigned shared, void *stream, void **parameters, void **extra) {
  CHECK;
  uint32_t *numbers = (uint32_t *)(uintptr_t) * (uint64_t *)parameters[0];
  for (uint32_t i = 0; i < gx * x; i++) numbers[i] = 3 * i + 7;
  if (fails("wrong")) numbers[41] ^= 1 << 20;
  return kernel && gy == 1 && gz == 1 && y == 1 && z == 1 && !shared && !stream && !extra ? 0 : 1;
}
R cuCtxSynchronize(void) { CHECK; return 0; }
R cuGetErrorName(R code, const char **name) {
  *name = code == 802 ? "CUDA_ERROR_SYSTEM_NOT_READY" : "CUDA_ERROR_OF_STAND_IN";
  return 0;
}
"""

# ROCm's, and its compiler, which has a library of its own.
HIP = (
    SOURCE.partition("R cuInit")[0]
    + r"""
R hipInit(unsigned flags) {
  /* Only members of render may open the devices. */
  struct group *render = getgrnam("render");
  gid_t groups[64];
  int count = getgroups(64, groups), may = !render || !geteuid();
  while (count > 0) may |= groups[--count] == render->gr_gid;
  CHECK; return may ? flags : 100;
}
R hipDriverGetVersion(int *version) { CHECK; *version = 70253211; return 0; }
R hipGetDeviceCount(int *count) { CHECK; *count = 2; return 0; }
R hipSetDevice(int number) { CHECK; return number > 1; }
R hipDeviceGetName(char *name, int size, int device) {
  CHECK; snprintf(name, size, "Stand-in %d", device); return 0;
}
R hipModuleLoadData(void **module, const char *code) {
  CHECK; if (strcmp(code, "compiled")) return 209; *module = (void *)code; return 0;
}
R hipModuleGetFunction(void **function, void *module, const char *name) {
  CHECK; if (strcmp(name, "dlperf")) return 500; *function = module; return 0;
}
R hipMalloc(void **memory, size_t size) { CHECK; *memory = malloc(size); return 0; }
R hipMemcpyHtoD(void *to, const void *from, size_t size) {
  CHECK; memcpy(to, from, size); return 0;
}
R hipMemcpyDtoH(void *to, void *from, size_t size) { CHECK; memcpy(to, from, size); return 0; }
R hipModuleLaunchKernel(void *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned x, unsigned y,
                        unsigned z, unsigned shared, void *stream, void **given, void **extra) {
  CHECK;
  uint32_t *numbers = *(uint32_t **)given[0];
  for (uint32_t i = 0; i < gx * x; i++) numbers[i] = 3 * i + 7;
  if (fails("wrong")) numbers[41] ^= 1 << 20;
  return kernel && gy == 1 && gz == 1 && y == 1 && z == 1 && !shared && !stream && !extra ? 0 : 1;
}
R hipDeviceSynchronize(void) { CHECK; return 0; }
const char *hipGetErrorName(R code) { return code == 100 ? "hipErrorNoDevice" : "hipErrorOther"; }
"""
)
HIPRTC = (
    SOURCE.partition("R cuInit")[0]
    + r"""
R hiprtcCreateProgram(void **program, const char *source, const char *name, int headers,
                      const char **texts, const char **names) {
  CHECK; *program = (void *)source; return headers || texts || names || !name;
}
R hiprtcCompileProgram(void *program, int options, const char **given) {
  CHECK; return options || given || !strstr(program, "__global__ void dlperf(unsigned *numbers)");
}
R hiprtcGetCodeSize(void *program, size_t *size) { CHECK; *size = 9; return !program; }
R hiprtcGetCode(void *program, char *code) { CHECK; strcpy(code, "compiled"); return !program; }
"""
)


def libhip(folder: Path, fails: str) -> Path:
    """ROCm's compiled library, beside that of its compiler."""
    return [
        _compiled(folder / f"lib{name}.so", source, fails)
        for name, source in (("hiprtc", HIPRTC), ("amdhip64", HIP))
    ][-1]


def libcuda(folder: Path, fails: str) -> Path:
    """The compiled library; `fails` is the path of the file that says what fails."""
    return _compiled(folder / "libcuda.so.1", SOURCE, fails)


def _compiled(made: Path, source: str, fails: str) -> Path:
    assert GCC
    code = made.with_suffix(".c")
    code.write_text(source)
    argv = [GCC, "-shared", "-fPIC", "-Wall", "-Werror", f'-DFAILS="{fails}"', "-o", made]
    subprocess.run([*argv, code], check=True)
    return made
