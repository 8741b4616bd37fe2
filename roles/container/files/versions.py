"""Prints the versions of a container's Python packages and of its MPI as one JSON object."""

import json
import re
import subprocess

try:
    from importlib.metadata import distributions

    packages = [(each.metadata["Name"], each.version) for each in distributions()]
except ImportError:  # before Python 3.8
    import pkg_resources

    packages = [(each.project_name, each.version) for each in pkg_resources.working_set]
try:
    output = subprocess.check_output(["mpirun", "--version"], universal_newlines=True)
except (OSError, subprocess.CalledProcessError):
    output = ""
version = re.search(r"[0-9]+(\.[0-9]+)+", output)
versions = {name: number for name, number in packages if name}
print(json.dumps(dict(versions, openmpi=version.group() if version else "")))
