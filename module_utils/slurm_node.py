"""Slurm's daemons and jobs on a node, from /proc, and its configurations. Python 2.7 and 3.5+."""

from __future__ import absolute_import, division, print_function

import glob
import io
import os
import re

from ansible.module_utils.node_probes import names, text

CONFIGS = ("etc/slurm", "etc/slurm-llnl", "opt/slurm/etc", "usr/local/etc", "usr/local/etc/slurm", "usr/local/slurm/etc", "run/slurm/conf")
FILES = ("slurm.conf", "slurmdbd.conf", "cgroup.conf", "gres.conf")
# What a configless node has instead: SLURMD_OPTIONS="--conf-server ctl:6817"
OPTIONS = ("etc/default/slurmd", "etc/sysconfig/slurmd", "etc/systemd/system/slurmd.service.d/*.conf", "etc/systemd/system/slurmd.service")
KEYS = ("etc/munge/munge.key", "etc/slurm/slurm.key", "opt/slurm/etc/munge.key")


def command_lines(root, program):
    """{process number: its arguments} of the processes of a program."""
    result = {}
    for pid in names(root, "proc"):
        # slurmstepd: [1234.batch] sets its title, so its name is that of /proc/PID/comm.
        if pid.isdigit() and (text(root, "proc", pid, "comm") or "")[:15] == program[:15]:
            result[int(pid)] = (text(root, "proc", pid, "cmdline") or "").replace("\0", " ").split()
    return result


def jobs(root):
    """Numbers of the jobs that run on the node: `slurmstepd: [1234.batch]`, `slurmstepd: [1234.extern]`."""
    titles = (" ".join(words) for words in command_lines(root, "slurmstepd").values())
    return sorted(set(number for title in titles for number in re.findall(r"\[(\d+)\.", title)), key=int)


def content(path):
    """Text of a file; None if it cannot be read."""
    try:
        with io.open(path, encoding="utf-8", errors="replace") as stream:
            return stream.read(1 << 20)
    except (IOError, OSError):
        return None


def foreign(root, marker):
    """The parts of a Slurm cluster of somebody else, as one phrase each: files without the marker, and running daemons that read others."""
    result = []
    for folder in CONFIGS:
        for name in FILES:
            path = os.path.join(root, folder, name)
            if os.path.lexists(path) and marker not in (content(path) or ""):
                result.append("/%s/%s%s" % (folder, name, "" if content(path) is not None else " (unreadable)"))
    for pattern in OPTIONS:
        for path in glob.glob(os.path.join(root, pattern)):
            if re.search(r"(?m)^[^#\n]*(--conf-server|SLURM_CONF=)", content(path) or ""):
                result.append("/%s (names a configuration elsewhere)" % os.path.relpath(path, root))
    ours = any(marker in (content(os.path.join(root, "etc/slurm", name)) or "") for name in FILES[:1])
    for program in ("slurmd", "slurmctld", "slurmdbd"):
        for pid, words in sorted(command_lines(root, program).items()):
            elsewhere = [word for word in words[1:] if re.match(r"--conf-server|-f|/\S*slurm\.conf", word)]
            if elsewhere or not ours:
                result.append("%s (process %d)" % (" ".join([program] + elsewhere), pid))
    return result
