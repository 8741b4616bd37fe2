"""How facts are read on a node: files that may not be there, programs that may hang. Python 2.7 and 3.6+."""
from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import io
import os
import re
import signal
import subprocess
import tempfile
import time


def text(*parts):
    """What stands in a file, without the space around it; None where it cannot be read."""
    try:
        with io.open(os.path.join(*parts), "rb") as stream:
            return stream.read().decode("utf-8", "replace").strip()
    except (IOError, OSError):
        return None


def names(*parts):
    """What is in a folder; empty where there is none."""
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except (IOError, OSError):
        return []


def whole(value):
    """A text of digits as a number; None for anything else, so that no number is made up."""
    return int(value) if value is not None and re.match(r"[0-9]{1,18}\Z", value) else None


def modules(root):
    """Version of each kernel module that is loaded, or null where the module tells none."""
    lines = (text(root, "proc/modules") or "").splitlines()
    loaded = [line.split(" ")[0] for line in lines if line]
    return dict((name, text(root, "sys/module", name, "version") or None) for name in loaded)


def program(name, extra=()):
    """Where a program is: on PATH, or in one of the folders that the PATH of Ansible's modules lacks."""
    folders = os.environ.get("PATH", "").split(os.pathsep) + list(extra)
    for folder in folders:
        path = os.path.join(folder, name)
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def bounded(argv, timeout):
    """Runs a program; {code, output, errors, late}, or {code: None} where it cannot be started.

    The output goes to a file: a program that hangs in the driver cannot be killed, and a pipe to it would be waited for.
    """
    environment = dict(os.environ, LC_ALL="C")
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull) as nothing:
        try:
            process = subprocess.Popen(argv, stdin=nothing, stdout=output, stderr=errors, env=environment, preexec_fn=os.setsid)
        except OSError as error:
            return {"code": None, "output": u"", "errors": u"%s" % error, "late": False}
        deadline = time.time() + timeout
        while process.poll() is None and time.time() < deadline:
            time.sleep(0.02)
        late = process.poll() is None
        if late:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except OSError as error:
                if error.errno != errno.ESRCH:
                    raise
        found = {"code": process.poll(), "late": late}
        for name, stream in (("output", output), ("errors", errors)):
            stream.seek(0)
            found[name] = stream.read().decode("utf-8", "replace")
        return found
