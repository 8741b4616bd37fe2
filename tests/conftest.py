"""Lets tests import what runs on nodes, as Ansible packs it: beside Ansible's own module_utils."""

from __future__ import annotations

from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parents[1] / "module_utils"))
