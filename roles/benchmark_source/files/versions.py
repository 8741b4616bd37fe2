"""Prints the distributions that a Python sees, as `uv pip list` does: [{"name": ..., "version": ...}].

uv itself leaves out those of the distribution, which an environment may see, too.
"""

import glob
import json
import os
import re
import sys

found = {}
for folder in reversed(sys.path):  # the first one wins
    for path in glob.glob(os.path.join(folder, "*.dist-info")) + glob.glob(
        os.path.join(folder, "*.egg-info")
    ):
        # torch-2.6.0+debian.egg-info, PyYAML-6.0.2.dist-info, six-1.17.0-py3.13.egg-info
        match = re.match(r"(.+?)-(\d[^-]*)(-py[\d.]+)?\.(dist|egg)-info$", os.path.basename(path))
        if match:
            found[re.sub(r"[-_.]+", "-", match.group(1)).lower()] = match.group(2)
print(json.dumps([{"name": name, "version": found[name]} for name in sorted(found)]))
