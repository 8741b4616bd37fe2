"""The filter plugins of playbooks and roles, as modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from ansible.plugins.loader import filter_loader
from standins import PROJECT

for folder in ("playbooks", "roles/node_base", "roles/ssh_mesh"):
    filter_loader.add_directory(str(PROJECT / folder / "filter_plugins"))


def load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem + "_filters", PROJECT / path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


environments = load("playbooks/filter_plugins/environments.py")
provision = load("playbooks/filter_plugins/provision.py")
