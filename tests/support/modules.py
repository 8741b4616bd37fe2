"""Python files that are no modules of a package: plugins, and programs of benchmarks/."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PROJECT = Path(__file__).parents[2]


def load(path: str) -> ModuleType:
    """The file at this path of the project, as a module."""
    name = path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, PROJECT / path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
