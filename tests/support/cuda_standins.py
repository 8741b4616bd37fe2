"""Shared libraries that stand in for CUDA's, so that the dynamic linker can load a real framework.

They have the names and the versioned functions that the framework's own library asks for; each
function returns 1 (of CUDA: cudaErrorInvalidValue), so that no call of them succeeds.
"""

import re
import subprocess
from collections import defaultdict
from pathlib import Path

# Functions without a version, by the library that has them.
PREFIXES = {
    "cufft": "libcufft.so",
    "curand": "libcurand.so",
    "cusparse": "libcusparse.so",
    "nvtx": "libnvToolsExt.so",
    "cu": "libcuda.so",
}
ASKED = re.compile(r" UND (?P<name>(?:__)?(?:cu|nv)\w+)(?:@(?P<version>\S+))?")


def missing(binary: Path, folder: Path | None = None) -> list[str]:
    """The libraries that the dynamic linker does not find for a shared library."""
    environment = {"LD_LIBRARY_PATH": str(folder or "")}
    said = subprocess.run(
        ["ldd", binary], env=environment, capture_output=True, text=True, check=True
    )
    return re.findall(r"^\s*(\S+) => not found", said.stdout, re.MULTILINE)


def make(binary: Path, folder: Path) -> list[str]:
    """Make a stand-in of each library of CUDA that is missing; returns their names."""
    names = missing(binary)
    asked: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
    symbols = subprocess.run(
        ["readelf", "--dyn-syms", "--wide", binary], capture_output=True, text=True, check=True
    ).stdout
    for match in ASKED.finditer(symbols):
        name, version = match["name"], match["version"]
        stem = next((file for start, file in PREFIXES.items() if name.startswith(start)), "?")
        library = version or next((found for found in names if found.startswith(stem)), None)
        if library in names:
            asked[library][name] = version
    folder.mkdir(parents=True, exist_ok=True)
    for library in names:
        source, script = folder / f"{library}.c", folder / f"{library}.map"
        functions = asked[library]
        source.write_text("".join(f"int {name}(void) {{ return 1; }}\n" for name in functions))
        listed = "".join(f" {name};" for name in functions)
        script.write_text(f"{library} {{ global:{listed} }};\n" if any(functions.values()) else "")
        versions = [f"-Wl,--version-script={script}"] if script.read_text() else []
        argv = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{library}", *versions, source]
        subprocess.run([*argv, "-o", folder / library], check=True)
    return names
