# -*- coding: utf-8 -*-
"""For benchmark_job: a node keeps the folders of its last runs."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import shutil

STATE = "job.json"


def prune(root, keep, is_over):
    """Remove the folders of runs below `root`, CAMPAIGN/CASE/rN, except the newest `keep` and those that are not over.

    `is_over` is asked with the path of a run's state. Links are not followed.
    """
    found = []
    for case in folders(root, 2):
        for run in folders(case, 1):
            try:
                found.append((os.lstat(os.path.join(run, STATE)).st_mtime, run))
            except OSError:
                continue  # not a run's
    for _, run in sorted(found, reverse=True)[keep:]:
        if is_over(os.path.join(run, STATE)):
            shutil.rmtree(run, ignore_errors=True)
            for empty in (os.path.dirname(run), os.path.dirname(os.path.dirname(run))):
                try:
                    os.rmdir(empty)
                except OSError:
                    break  # it has other runs


def folders(folder, depth):
    """The folders so many levels below a folder."""
    try:
        found = [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []
    found = [path for path in found if os.path.isdir(path) and not os.path.islink(path)]
    return found if depth == 1 else [below for path in found for below in folders(path, depth - 1)]
