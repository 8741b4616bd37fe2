"""Prints the versions of a container's Python packages and of its MPI as one JSON object."""

import json
import re
import subprocess

try:
    from importlib.metadata import distributions

    found = [(each.metadata["Name"], each.version) for each in distributions()]
except ImportError:  # before Python 3.8
    import pkg_resources

    found = [(each.project_name, each.version) for each in pkg_resources.working_set]
try:
    said = subprocess.check_output(["mpirun", "--version"], universal_newlines=True)
except (OSError, subprocess.CalledProcessError):
    said = ""
version = re.search(r"[0-9]+(\.[0-9]+)+", said)
versions = {name: number for name, number in found if name}
print(json.dumps(dict(versions, openmpi=version.group() if version else "")))
