"""The filter plugins of playbooks and roles, as modules."""

from __future__ import annotations

from ansible.plugins.loader import filter_loader
from modules import PROJECT, load

for folder in ("playbooks", "roles/node_base", "roles/ssh_mesh"):
    filter_loader.add_directory(str(PROJECT / folder / "filter_plugins"))


environments = load("playbooks/filter_plugins/environments.py")
provision = load("playbooks/filter_plugins/provision.py")
