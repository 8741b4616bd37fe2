#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Launch a command on a node, detached, and wait for it a little while at a time."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: benchmark_job
short_description: Launch a command detached from the connection and wait for its end
description:
  - The first call with a new O(launch) starts O(argv) under a small supervisor that outlives the
    connection. Every call waits for at most O(wait_s) seconds and tells whether it has ended.
  - The supervisor ends the command's whole process group when it runs longer than O(timeout_s), or
    when no call has asked for it during O(lease_s) seconds, so that a controller that went away
    leaves no load on the cluster. So it does at once with O(stop), and when a node of the run is no longer O(lock)'s.
  - Processes of others that compute beside the command are looked for, on this node and on O(hosts).
  - Standard output and standard error go to one log. Nothing of the command goes through a shell.
  - The command can write to O(directory). Only regular files of the user that runs the module are read there, never through a link
    or a FIFO.
  - While the command runs, O(sample_s) asks C(nvidia-smi), if there is such a program, for the GPUs' memory,
    load, clocks, reasons for throttling and uncorrected ECC errors, and now and then who computes on
    them, and the kernel for their Xid errors, if this user may see its log. Nothing that it does, prints or leaves undone changes what becomes of the command.
options:
  directory: {description: "Where the state and the log are kept; made if absent.", type: path, required: true}
  launch: {description: "Names this launch; another name in the same directory is another launch.", type: str, required: true}
  launched:
    description: Whether an earlier call has started this launch. Then nothing is started, even if its state is lost.
    type: bool
    default: false
  argv: {description: "The command.", type: list, elements: str, required: true}
  env: {description: "Environment variables besides HOME, USER, LOGNAME, PATH and LANG.", type: dict, default: {}}
  cwd: {description: "Working directory; O(directory) if empty.", type: str, default: ""}
  cleanup:
    description: >-
      A command that removes what O(argv) may leave outside of its process group (a container, which its engine holds). It runs before it
      and when it has ended, however that was; whether it succeeds is not asked.
    type: list
    elements: str
    default: []
  log: {description: "File name of the log inside O(directory).", type: str, required: true}
  timeout_s: {description: "Seconds after which the command is ended.", type: int, default: 3600}
  lease_s: {description: "Seconds without a call after which the command is ended.", type: int, default: 90}
  wait_s: {description: "Seconds that one call waits at most.", type: float, default: 5}
  stop: {description: "End the command now; the call waits for its end.", type: bool, default: false}
  lock:
    description: C(directory), C(token) and C(lease_s) of the M(node_lock) under which this runs; its lease is renewed here by every call, and on
      O(hosts) and O(idle) by the supervisor. Empty where there is none.
    type: dict
    default: {}
  host: {description: "What this node is called in the result.", type: str, default: ""}
  hosts: {description: "Nodes of the run on which nothing is launched, by name; their address for C(ssh).", type: dict, default: {}}
  idle: {description: "Nodes that the campaign holds and the run does not use, in the same way.", type: dict, default: {}}
  tail_bytes: {description: "Bytes of the end of the log that are returned.", type: int, default: 4096}
  log_limit_mib: {description: "The largest log that may be fetched, in MiB.", type: int, default: 1024}
  telemetry_limit_mib: {description: "The largest file of telemetry that may be fetched, in MiB.", type: int, default: 256}
  at_once_bytes: {description: "The largest file whose content is returned; larger ones are read by M(benchmark_fetch).", type: int, default: 4194304}
  sample_s: {description: "Seconds between two looks at the GPUs; 0 for none.", type: int, default: 0}
  sample_hosts:
    description: Hosts whose GPUs are looked at, by name; their address for C(ssh), or empty for this node.
    type: dict
    default: {}
  sample_devices:
    description:
      - How many devices of each host the command uses, the first ones, or the first that CUDA_VISIBLE_DEVICES
        of O(env) names. Only they count for the peak; 0 for all.
    type: int
    default: 0
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Launch a training and wait for it for 5 seconds
  benchmark_job:
    directory: /opt/dlperf/runs/example/r1
    launch: 5f0c
    argv: [/usr/bin/mpirun, -np, "2", hostname]
    log: train.log
  register: job
"""

RETURN = r"""
finished: {description: "Whether the command has ended.", type: bool, returned: always}
exit_status: {description: "Exit status; minus the signal's number if a signal ended it.", type: int, returned: when finished}
started: {description: "Seconds since the epoch, by the node's clock.", type: float, returned: always}
ended: {description: "Seconds since the epoch, by the node's clock.", type: float, returned: when finished}
reason: {description: "Why the supervisor ended the command: V(timeout), V(lease), V(stopped), V(lock) or empty.", type: str, returned: when finished}
log: {description: "Path of the log.", type: str, returned: always}
log_bytes: {description: "Length of the log so far.", type: int, returned: always}
tail: {description: "The end of the log.", type: str, returned: always}
beside:
  description: Processes of others that computed beside the command; C(host), C(pid), C(uid), C(command) and C(cores), used on average.
  type: list
  elements: dict
  returned: when finished
gpu_memory_mib:
  description: The most memory that each used device held, in MiB, by host and index of the device.
  type: dict
  returned: when finished and a GPU was seen
files:
  description:
    - The log and what was seen of the GPUs, CSV files per host (telemetry, processes, xid), by file name.
    - Of each its size, identity and sha256, and its content if it is small (compressed by zlib, in Base64); or only refused, the reason
      why it cannot be fetched.
  type: dict
  returned: when finished
"""

import json
import os
import pwd
import signal
import subprocess
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.beside import Beside, adopt_orphans, descendants, local, processes
from ansible.module_utils.gpu_memory import Sampler, file_names, signal_group
from ansible.module_utils.node_lock import age, renew as renew_lock
from ansible.module_utils.owned_file import OwnedFile, Refused, create, described, discard, size_and_end

POLL_S = 0.05
GRACE_S = 10
CLEANUP_S = 60
START_S = 60
STATE_BYTES = 1 << 20


def write_whole(path, data):
    """Write a JSON file so that a reader sees the old one or the new one, never a part."""
    temporary = path + ".tmp"
    with os.fdopen(create(temporary), "w") as handle:
        json.dump(data, handle)
    os.rename(temporary, path)


def read_state(path):
    """What a supervisor wrote; None where there is nothing, or what no supervisor writes."""
    try:
        with OwnedFile(path, STATE_BYTES) as source:
            state = json.loads(source.read(0, source.size).decode("utf-8"))
        return state if is_state(state) else None
    except (Refused, IOError, OSError, ValueError, RuntimeError):  # RuntimeError: nested too deeply
        return None


def is_state(state):
    if not isinstance(state, dict):
        return False
    kinds = {"launch": type(u""), "started": float}
    kinds.update({"supervisor": int} if "supervisor" in state else {})
    kinds.update({"exit_status": int, "ended": float} if state.get("finished") else {})
    if not all(type(state.get(key)) is kind for key, kind in kinds.items()):
        return False
    times = [state["started"], state.get("ended", 0.0)]
    return 0 < state.get("supervisor", 1) < 1 << 31 and all(0 <= time_s < 1e11 for time_s in times)


def is_alive(pid):
    """Whether there is such a process of this user, as a supervisor is."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def renew(lease_file):
    """Make the lease anew: the command may have removed it, or put something else in its place."""
    os.close(create(lease_file))


def renewed(lease_file, before):
    """When the lease was renewed; as before while it is not there."""
    try:
        return os.lstat(lease_file).st_mtime
    except OSError:
        return before


def end_group(process):
    """TERM, then KILL after a grace period: mpirun needs the first to end its remote ranks."""
    signal_group(process.pid, signal.SIGTERM)
    deadline = time.time() + GRACE_S
    while process.poll() is None and time.time() < deadline:
        time.sleep(POLL_S)
    signal_group(process.pid, signal.SIGKILL)
    return process.wait()


def clean_up(params):
    if not params["cleanup"]:
        return
    with open(os.devnull, "r+b") as nothing:
        try:
            child = subprocess.Popen(
                params["cleanup"],
                stdin=nothing,
                stdout=nothing,
                stderr=nothing,
                cwd="/",
                env=environment(params["env"]),
                preexec_fn=os.setsid,
                close_fds=True,
            )
        except (IOError, OSError):
            return  # what it would remove cannot have been started either
    deadline = time.time() + CLEANUP_S
    while child.poll() is None and time.time() < deadline:
        time.sleep(POLL_S)
    signal_group(child.pid, signal.SIGKILL)
    child.wait()


def environment(extra):
    user = pwd.getpwuid(os.getuid())
    base = {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
    }
    base.update((str(key), str(value)) for key, value in extra.items())
    return base


def end_descendants():
    """What the command started in groups of its own, and left behind."""
    for pid in descendants(processes(local()), os.getpid()) - set([os.getpid()]):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def why_ended(params, state, lease_file, beside):
    """Why the command has to end now; empty where it may go on."""
    now = time.time()
    state["renewed"] = renewed(lease_file, state["renewed"])
    if now - state["started"] > params["timeout_s"]:
        return "timeout"
    if state["renewed"] == 0:
        return "stopped"
    if now - state["renewed"] > params["lease_s"]:
        return "lease"
    lock = params["lock"]
    return "lock" if beside.lost or (lock and age(lock["directory"], lock["token"]) is None) else ""


def supervise(params, state_file, lease_file, log_file):
    """Run the command to its end, its time-out, or the end of the lease. Never returns."""
    state = {"launch": params["launch"], "supervisor": os.getpid(), "started": time.time()}
    write_whole(state_file, state)
    adopt_orphans()
    clean_up(params)  # what a launch left whose supervisor was killed
    beside = Beside(params, environment(params["env"]))
    state["started"] = state["renewed"] = time.time()
    reason = why_ended(params, state, lease_file, beside)
    process = log = None
    try:
        log = os.fdopen(create(log_file), "wb", 0)
        with open(os.devnull) as nothing:
            process = None if reason else subprocess.Popen(
                params["argv"],
                stdin=nothing,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=params["cwd"] or params["directory"],
                env=environment(params["env"]),
                preexec_fn=os.setsid,
                close_fds=True,
            )  # fmt: skip
        if process:
            state["pid"] = process.pid
            write_whole(state_file, state)
            sampler = Sampler(params, environment(params["env"]), params["timeout_s"] + 2 * GRACE_S)
            sampler.start()
            while process.poll() is None:
                sampler.poll()
                beside.poll()
                reason = why_ended(params, state, lease_file, beside)
                if reason:
                    end_group(process)
                    break
                time.sleep(POLL_S)
            state.update(ended=time.time())
            signal_group(process.pid, signal.SIGKILL)  # what the command left behind in its group
            state.update(sampler.result(), exit_status=process.returncode)
            state.update(beside.result())
        else:
            state.update(exit_status=125)
    except (IOError, OSError) as error:
        if process:
            end_group(process)
        if log:
            log.write(("benchmark_job: %s: %s\n" % (params["argv"][0], error)).encode("utf-8"))
        state.update(exit_status=127)
    state.setdefault("ended", time.time())
    clean_up(params)
    end_descendants()
    state.update(finished=True, reason=reason)
    write_whole(state_file, state)
    os._exit(0)


def detach(work):
    """Run `work` in a process that shares nothing with the connection."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    devnull = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(devnull, descriptor)
    os.closerange(3, 1024)
    try:
        work()
    finally:
        os._exit(1)


def is_gone(state):
    """Whether the launch has no supervisor, or none came up in a time in which each does."""
    if "supervisor" in state:
        return not is_alive(state["supervisor"])
    return time.time() - state["started"] > START_S


def files(params, log_file):
    """What the controller needs to fetch the log and the samples. Their names are known: those that the state gives may be forged."""
    found = {params["log"]: described(log_file, params["log_limit_mib"] << 20, params["at_once_bytes"])}
    for name in file_names(params["sample_hosts"]) if params["sample_s"] > 0 else ():
        path = os.path.join(params["directory"], name)
        if os.path.lexists(path):  # no run fails for want of samples
            found[name] = described(path, params["telemetry_limit_mib"] << 20, params["at_once_bytes"])
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "launch": {"type": "str", "required": True},
            "launched": {"type": "bool", "default": False},
            "argv": {"type": "list", "elements": "str", "required": True},
            "env": {"type": "dict", "default": {}},
            "cwd": {"type": "str", "default": ""},
            "cleanup": {"type": "list", "elements": "str", "default": []},
            "log": {"type": "str", "required": True},
            "timeout_s": {"type": "int", "default": 3600},
            "lease_s": {"type": "int", "default": 90},
            "wait_s": {"type": "float", "default": 5.0},
            "stop": {"type": "bool", "default": False},
            "lock": {"type": "dict", "default": {}, "no_log": False},
            "host": {"type": "str", "default": ""},
            "hosts": {"type": "dict", "default": {}},
            "idle": {"type": "dict", "default": {}},
            "tail_bytes": {"type": "int", "default": 4096},
            "log_limit_mib": {"type": "int", "default": 1024},
            "telemetry_limit_mib": {"type": "int", "default": 256},
            "at_once_bytes": {"type": "int", "default": 1 << 22},
            "sample_s": {"type": "int", "default": 0},
            "sample_hosts": {"type": "dict", "default": {}},
            "sample_devices": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )
    params = module.params
    directory = params["directory"]
    state_file = os.path.join(directory, "job.json")
    lease_file = os.path.join(directory, "lease")
    log_file = os.path.join(directory, params["log"])
    if module.check_mode:
        module.exit_json(changed=True, finished=True, skipped=True, log=log_file)
    try:
        follow(module, directory, state_file, lease_file, log_file)
    except (IOError, OSError) as error:
        module.fail_json(msg="the run's directory %s cannot be used: %s" % (directory, error))


def lost(module, state_file, lease_file):
    """End the lease, wait until the supervisor has ended the command, if there still is one, and fail."""
    renew(lease_file)
    os.utime(lease_file, (0, 0))
    deadline = time.time() + 2 * GRACE_S
    while time.time() < deadline and not (read_state(state_file) or {}).get("finished"):
        time.sleep(POLL_S)
    module.fail_json(
        msg="%s is lost or damaged: the state of a launch, which its supervisor keeps. The command runs as the same "
        "user; did it remove or replace files in its directory?" % state_file
    )


def follow(module, directory, state_file, lease_file, log_file):
    params = module.params
    state = read_state(state_file)
    start = not params["launched"] and (state is None or state["launch"] != params["launch"])
    if start:
        if state and "supervisor" in state and not state.get("finished") and is_alive(state["supervisor"]):
            module.fail_json(
                msg="%s: another launch is running there since %s (supervisor %d). Wait for it; "
                "without a controller that asks for it, it is ended after %d s."
                % (directory, time.ctime(state["started"]), state["supervisor"], params["lease_s"])
            )
        if not os.path.isdir(directory):
            os.makedirs(directory, 0o755)
        write_whole(state_file, {"launch": params["launch"], "started": time.time()})
        renew(lease_file)
        for name in file_names(params["sample_hosts"]):
            discard(os.path.join(directory, name))  # samples of an earlier launch
        detach(lambda: supervise(params, state_file, lease_file, log_file))
    elif state is None or state["launch"] != params["launch"]:
        lost(module, state_file, lease_file)
    else:
        renew(lease_file)
    if params["stop"]:
        os.utime(lease_file, (0, 0))
    if params["lock"]:
        renew_lock(params["lock"]["directory"], params["lock"]["token"])

    began = time.time()
    deadline = began + params["wait_s"]
    while True:
        state = read_state(state_file)
        if state is None or state["launch"] != params["launch"]:
            lost(module, state_file, lease_file)
        if state.get("finished"):
            break
        if is_gone(state) and not (read_state(state_file) or {}).get("finished"):
            module.fail_json(
                msg="%s: the supervisor of the launch is gone; was the node restarted, "
                "or did it run out of memory?" % directory
            )
        if time.time() > deadline:
            break
        time.sleep(POLL_S)

    size, end = size_and_end(log_file, params["tail_bytes"])
    keys = ("exit_status", "started", "ended", "reason", "beside", "gpu_memory_mib")
    result = dict((key, state[key]) for key in keys if key in state)
    if state.get("finished"):
        result["files"] = files(params, log_file)
    result.update(changed=start, finished=bool(state.get("finished")), log=log_file, log_bytes=size, tail=to_text(end, errors="replace"))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
