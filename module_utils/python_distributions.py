"""The distributions in a virtual environment, read from its files: nothing in it is started."""

from __future__ import absolute_import, division, print_function

import glob
import io
import json
import os
import re

from .node_probes import text

# Marker file in an environment during the installation.
UNFINISHED = "dlperf-unfinished"


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def python_version(environment):
    """Version of the Python that an environment was made with; None if it is missing or incomplete."""
    if os.path.exists(os.path.join(environment, UNFINISHED)):
        return None
    match = re.search(r"(?m)^version(?:_info)?\s*=\s*([\d.]*\d)", text(environment, "pyvenv.cfg") or "")
    return match.group(1) if match and os.access(os.path.join(environment, "bin", "python"), os.X_OK) else None


def distributions(environment):
    """{normalised name: (version, metadata folder)}"""
    versions = {}
    for folder in glob.glob(os.path.join(environment, "lib", "python3*", "site-packages", "*.dist-info")):
        name, _dash, version = os.path.basename(folder)[: -len(".dist-info")].rpartition("-")
        versions[normalised(name)] = (version, folder)
    return versions


def url_of(folder):
    """URL that a distribution was installed from; None if it came from an index."""
    direct = os.path.join(folder, "direct_url.json")
    if not os.path.exists(direct):
        return None
    with io.open(direct, encoding="utf-8") as stream:
        return json.load(stream).get("url")
