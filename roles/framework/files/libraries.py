"""Opens libraries as a framework does, after its import: libraries.py MODULE [LIBRARY...].

Each must come from LD_LIBRARY_PATH: the node has another version of some of them elsewhere.
"""

import ctypes
import importlib
import os
import sys
from pathlib import Path

importlib.import_module(sys.argv[1])
folder = os.environ.get("LD_LIBRARY_PATH", "")
wrong = []
for name in sys.argv[2:]:
    try:
        ctypes.CDLL(name)
    except OSError as error:
        wrong.append(str(error))
        continue
    maps = Path("/proc/self/maps").read_text()
    if str(Path(folder, name).resolve()) not in maps.split():
        wrong.append(f"{name} was not taken from {folder}")
if wrong:
    sys.exit("\n".join(wrong))
print("found", len(sys.argv[2:]), "libraries")
