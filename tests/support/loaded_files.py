"""Files of the project that no package holds, as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).parents[2]


def load(path: str) -> ModuleType:
    """The file at this path below the project. Its name gets an end, so that it takes the place of
    no other module."""
    name = f"{Path(path).stem}_as_module"
    spec = importlib.util.spec_from_file_location(name, PROJECT / path)
    assert spec and spec.loader
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # for its dataclasses
    spec.loader.exec_module(module)
    return module
