"""Read facts on a node from files that may be missing and programs that may hang. Python 2.7 and 3.6+."""

from __future__ import absolute_import, division, print_function, unicode_literals

import errno
import io
import os
import re
import signal
import subprocess
import tempfile
import time

MAX_BYTES = 1 << 24  # of a program's output
SBIN = ("/usr/sbin", "/sbin", "/usr/bin", "/bin", "/snap/bin")


def text(*parts):
    """Content of a file without surrounding white space; None if it cannot be read."""
    try:
        with io.open(os.path.join(*parts), "rb") as stream:
            return stream.read().decode("utf-8", "replace").strip()
    except (IOError, OSError):
        return None


def os_release(root="/"):
    """The variables of os-release(5); empty if the node has no such file."""
    lines = (text(root, "etc/os-release") or text(root, "usr/lib/os-release") or "").splitlines()
    pairs = (line.partition("=") for line in lines if "=" in line)
    return dict((key.strip(), value.strip().strip("\"'")) for key, _equals, value in pairs)


def is_container(root):
    """True if the node is a container and shares its host's kernel and devices."""
    marks = (os.path.join(root, name) for name in (".dockerenv", "run/.containerenv"))
    return "container=" in (text(root, "proc/1/environ") or "") or any(os.path.exists(mark) for mark in marks)


def disk(path):
    """The space of the file system that a path is or will be on; None if unknown."""
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        filesystem = os.statvfs(path)
    except OSError:
        return None
    size = filesystem.f_frsize
    return {
        "free_mib": filesystem.f_bavail * size // 1048576,
        "free_files": filesystem.f_favail if filesystem.f_files else None,  # btrfs has no limit
        "total_mib": filesystem.f_blocks * size // 1048576,
        "read_only": bool(filesystem.f_flag & 1),
    }


def names(*parts):
    """Names in a folder; empty if it does not exist."""
    try:
        return sorted(os.listdir(os.path.join(*parts)))
    except (IOError, OSError):
        return []


def integer(value):
    """The number for a text of digits; None for any other text."""
    return int(value) if value is not None and re.match(r"[0-9]{1,18}\Z", value) else None


def pcie(*parts):
    """{width, max_width, speed, max_speed} of a PCI device's link, the speeds in GT/s; null where unknown."""
    speeds = [re.match(r"([0-9.]{1,6}) GT/s", text(*(parts + (key + "_link_speed",))) or "") for key in ("current", "max")]
    width, most = [integer(text(*(parts + (key + "_link_width",)))) for key in ("current", "max")]
    speed, fastest = [float(match.group(1)) if match else None for match in speeds]
    return {"width": width, "max_width": most, "speed": speed, "max_speed": fastest}


def modules(root):
    """{name: version} of the loaded kernel modules; None for a module without a version."""
    lines = (text(root, "proc/modules") or "").splitlines()
    loaded = [line.split(" ")[0] for line in lines if line]
    return dict((name, text(root, "sys/module", name, "version") or None) for name in loaded)


def program(name, extra=()):
    """Path of a program, on PATH or in an extra folder, because the PATH of Ansible's modules is incomplete."""
    folders = os.environ.get("PATH", "").split(os.pathsep) + list(extra)
    for folder in folders:
        path = os.path.join(folder, name)
        if folder and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


def output(timeout, name, *arguments):
    """Standard output of a program, stripped; None if it is missing or fails."""
    path = program(name, SBIN)
    result = bounded([path] + list(arguments), timeout) if path else {"code": None}
    return result["output"].strip() if result["code"] == 0 else None


def openmpi(mpirun, timeout):
    """4.0.0 of `mpirun (Open MPI) 4.0.0`; None without such a program."""
    answer = bounded([mpirun, "--version"], timeout)["output"] if os.access(mpirun, os.X_OK) else ""
    match = re.search(r"Open ?MPI\)? v?(\d\S*)", answer)
    return match.group(1) if match else None


def bounded(argv, timeout, environment=None):
    """Run a program in a session of its own, which is killed at the time limit; returns {code, output, errors, late}, with code None if it
    cannot be started.

    The output goes to files, because a program that hangs in the driver cannot be killed, and one that left the session may live on: both
    would block a pipe's reader.
    """
    environment = environment or dict(os.environ, LC_ALL="C")
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(os.devnull) as nothing:
        try:
            process = subprocess.Popen(argv, stdin=nothing, stdout=output, stderr=errors, env=environment, cwd="/", preexec_fn=os.setsid)
        except OSError as error:
            return {"code": None, "output": "", "errors": "%s" % error, "late": False}
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
        result = {"code": process.poll(), "late": late}
        for name, stream in (("output", output), ("errors", errors)):
            stream.seek(0)
            result[name] = stream.read(MAX_BYTES).decode("utf-8", "replace")
        return result
