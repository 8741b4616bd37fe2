"""NumPy, without the threads of its linear algebra: nothing here multiplies matrices, and to start
them takes as much processor time as 50 logs."""

from __future__ import annotations

import os

_THREADS = "OPENBLAS_NUM_THREADS"
_before = os.environ.get(_THREADS)
os.environ[_THREADS] = "1"  # read when the library is loaded, and not left to other programs
import numpy as np  # noqa: E402

if _before is None:
    del os.environ[_THREADS]
else:
    os.environ[_THREADS] = _before

__all__ = ["np"]
