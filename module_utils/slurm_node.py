"""Slurm's daemons and jobs on a node, from /proc, and its configurations. Python 2.7 and 3.5+."""

from __future__ import absolute_import, division, print_function

import glob
import os
import platform
import re

from ansible.module_utils.node_probes import SBIN, bounded, names, program, text

CONFIGS = ("etc/slurm", "etc/slurm-llnl", "opt/slurm/etc", "usr/local/etc", "usr/local/etc/slurm", "usr/local/slurm/etc", "run/slurm/conf")
FILES = ("slurm.conf", "slurmdbd.conf", "cgroup.conf", "gres.conf")
# What a configless node has instead: SLURMD_OPTIONS="--conf-server ctl:6817"
OPTIONS = ("etc/default/slurmd", "etc/sysconfig/slurmd", "etc/systemd/system/slurmd.service.d/*.conf", "etc/systemd/system/slurmd.service")
PROGRAMS = SBIN + ("/opt/slurm/bin", "/usr/local/bin", "/usr/local/slurm/bin")
TIMEOUT_S = 60
REASON = "dlperf_runner provisions it"  # of a drained node
KEYS = ("etc/munge/munge.key", "etc/slurm/slurm.key", "opt/slurm/etc/munge.key")


def command_lines(root, program):
    """{process number: its arguments} of the processes of a program."""
    result = {}
    for pid in names(root, "proc"):
        # slurmstepd: [1234.batch] sets its title, so its name is that of /proc/PID/comm.
        if pid.isdigit() and (text(root, "proc", pid, "comm") or "")[:15] == program[:15]:
            result[int(pid)] = (text(root, "proc", pid, "cmdline") or "").replace("\0", " ").split()
    return result


def daemons(root):
    """{process number: (its arguments, its folder)} of the node's slurmd. Anybody can give a process that name, also one of a setuid program, and what it
    names would be executed as root: it must be the node's owner's, no container's, and execute slurmd."""
    node = os.stat(root)
    result = {}
    for pid, words in command_lines(root, "slurmd").items():
        place = os.path.join(root, "proc", str(pid))
        try:
            path = os.readlink(place + "/exe").replace(" (deleted)", "")
            is_ours = os.stat(place).st_uid == node.st_uid and os.path.samestat(os.stat(place + "/root"), node)
        except OSError:  # it has ended
            continue
        if is_ours and os.path.basename(path) in ("slurmd", "slurmd-wlm"):  # the latter is Debian's
            result[pid] = words, os.path.dirname(path)
    return result


def node_name(root):
    """The name of the node in Slurm; None if no slurmd runs."""
    running = [words for words, _folder in daemons(root).values()]
    named = [words[words.index("-N") + 1] for words in running if "-N" in words[:-1]]
    return (named or [platform.node().partition(".")[0]])[0] if running else None


def asked(root, name, *arguments):
    """The result of a program of Slurm, which is where the running slurmd is, and reads its configuration: /cm/local/apps/slurm/current/sbin/slurmd -f
    /cm/shared/apps/slurm/etc/slurm.conf."""
    folders, environment = list(PROGRAMS), dict(os.environ, LC_ALL="C")
    for pid, (words, folder) in daemons(root).items():
        folders.append(os.path.join(os.path.dirname(folder), "bin"))
        stated = re.findall(r"(?:^|\0)SLURM_CONF=([^\0]+)", text(root, "proc", str(pid), "environ") or "")
        stated += [value for option, value in zip(words, words[1:]) if option == "-f"]
        environment.update(("SLURM_CONF", path) for path in stated)
    path = program(name, folders)
    return (
        bounded([path] + list(arguments), TIMEOUT_S, environment)
        if path
        else {"code": None, "output": "", "errors": "there is no %s" % name}
    )


def jobs(root, unknown=()):
    """Numbers of the jobs that have the node: those with a process (`slurmstepd: [1234.batch]`), and those that Slurm lists for it, because in a
    job of several nodes some have no process until the next step. `unknown` stands for the latter if Slurm does not answer."""
    titles = " ".join(word for words in command_lines(root, "slurmstepd").values() for word in words)
    name = node_name(root)
    listed = asked(root, "squeue", "--all", "--noheader", "--nodelist=" + name, "--format=[%A.]") if name else {"code": 0, "output": ""}
    numbers = sorted(set(re.findall(r"\[(\d+)\.", titles + listed["output"])), key=int)
    return numbers if listed["code"] == 0 else numbers + list(unknown)


def node_state(shown):
    """(state such as MIXED+DRAIN, reason) of a node, of what `scontrol show node --oneliner` prints."""
    state, reason = re.search(r" State=(\S+)", shown), re.search(r" Reason=(.*?)(?: \[\S+\]|\s*$)", shown)
    return state.group(1) if state else "", reason.group(1) if reason else ""


def is_ours(state, reason):
    """True if provisioning has drained the node."""
    return "DRAIN" in state and reason.startswith(REASON)


def drained(root):
    """The node's name in Slurm if provisioning has drained it and it was not given back, else empty. slurmd may be late after a reboot."""
    name = node_name(root) or platform.node().partition(".")[0]
    shown = asked(root, "scontrol", "show", "node", name, "--oneliner")
    return name if shown["code"] == 0 and is_ours(*node_state(shown["output"])) else ""


def foreign(root, marker):
    """The parts of a Slurm cluster of somebody else, as one phrase each: files without the marker, and running daemons that read others."""
    result = []
    for folder in CONFIGS:
        for name in FILES:
            path = os.path.join(root, folder, name)
            if os.path.lexists(path) and marker not in (text(path) or ""):
                result.append("/%s/%s%s" % (folder, name, "" if text(path) is not None else " (unreadable)"))
    for pattern in OPTIONS:
        for path in glob.glob(os.path.join(root, pattern)):
            if re.search(r"(?m)^[^#\n]*(--conf-server|SLURM_CONF=)", text(path) or ""):
                result.append("/%s (names a configuration elsewhere)" % os.path.relpath(path, root))
    ours = marker in (text(root, "etc/slurm/slurm.conf") or "")
    for daemon in ("slurmd", "slurmctld", "slurmdbd"):
        for pid, words in sorted(command_lines(root, daemon).items()):
            elsewhere = [word for word in words[1:] if re.match(r"--conf-server|-f|/\S*slurm\.conf", word)]
            if elsewhere or not ours:
                result.append("%s (process %d)" % (" ".join([daemon] + elsewhere), pid))
    return result
