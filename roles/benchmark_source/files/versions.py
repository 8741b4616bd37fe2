"""Prints the distributions that a Python sees, as a list of their `name` and `version`.

Those of the operating system count, too, if an environment sees them; uv leaves them out.
"""

import json
import re
import sys
from pathlib import Path

# torch-2.6.0+debian.egg-info, PyYAML-6.0.2.dist-info, six-1.17.0-py3.13.egg-info
FOLDER = re.compile(r"(.+?)-(\d[^-]*)(-py[\d.]+)?\.(dist|egg)-info$")

versions = {}
for folder in reversed(sys.path):  # the first one wins
    for path in Path(folder).glob("*-info"):
        match = FOLDER.match(path.name)
        if match:
            versions[re.sub(r"[-_.]+", "-", match.group(1)).lower()] = match.group(2)
print(json.dumps([{"name": name, "version": versions[name]} for name in sorted(versions)]))
