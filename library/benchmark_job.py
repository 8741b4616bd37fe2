#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "benchmark_job",
    "short_description": "Launch a command detached from the connection and wait for it to finish",
    "description": [
        "The first call with a new O(launch) starts its C(argv) under a small supervisor that outlives the connection. Each call waits at "
        "most C(wait_s) seconds and returns whether the command has finished.",
        "The supervisor stops the command's whole process group after C(timeout_s), or when no call came within C(lease_s) seconds, so "
        "that a lost controller leaves no load on the cluster. It also stops the group at once on O(order), and when a node of the run no "
        "longer has the C(lock).",
        "A command hangs if its log has not grown for C(hung_after_s) seconds and for C(hung_after_lines) times the median time between "
        "two lines before. Until the log has a rhythm of five times, a command hangs if the log has not grown for C(hung_after_s) seconds "
        "and one of its processes was stopped or waited for a device for as long, or none of them did anything, or the log has not grown "
        "for C(first_step_s). Before the supervisor stops it, it keeps the state of the run's processes in a file beside the log, on this "
        "node and on C(hosts).",
        "If a command fails or is stopped, its processes on C(hosts) are killed too, and RV(left) lists what is left anywhere.",
        "The command does not start while others use more than C(most_cores_beside) cores of a node, or one of its GPUs; this is waited "
        "for up to C(idle_wait_s) seconds. Other users' processes that use the CPU during the command are recorded, on this node and on "
        "C(hosts).",
        "Standard output and standard error go to one log. The command does not pass through a shell.",
        "The command can write to C(directory). The module reads only regular files there that belong to its own user, never a link or a "
        "FIFO.",
        "While the command runs, each host in C(sample_hosts) is sampled every C(sample_s) seconds - its CPU, memory, disks and network, "
        "and with C(sample_gpus) its GPUs, the processes on them and the Xid errors of the kernel's log (see "
        "C(module_utils/run_agent/node_sampler.py)). If that would take more than 0.5 % of a core, samples are rarer. Failures of this "
        "sampling never affect the command.",
    ],
    "options": {
        "launch": {"type": "dict", "required": True, "description": [
            "The launch, as C(dlperf_runner/campaign/launch.py) makes it of a run. Its C(launch) identifies it; another value in the same "
            "C(directory) is another launch.",
            "C(argv) is executed in C(cwd), or else in C(directory), with the variables C(env) besides HOME, USER, LOGNAME, PATH and "
            "LANG. C(cleanup) is a command that removes what C(argv) may leave outside of its process group, such as a container. It is "
            "executed before the command and after its end.",
            "C(runs) is the directory of all runs of this node, CAMPAIGN/CASE/rN, of which the last C(keep) stay.",
            "C(host) is the name of this node. C(hosts) are the nodes of the run without a launch of their own, and C(idle) those that "
            "the campaign holds but the run does not use, as C(ssh) addresses by name. C(is_only_launch) says whether all processes of "
            "the run are those of this launch.",
            "C(lock) has C(directory), C(token) and C(lease_s) of the campaign's M(node_lock). Every call renews it on this node, and the "
            "supervisor on the others.",
            "C(sample_hosts) are sampled every C(sample_s) seconds, if that is not 0. C(sample_devices) is how many devices the command "
            "uses on each host, the first ones, or the first ones in CUDA_VISIBLE_DEVICES; only they count for the peak memory. 0 means "
            "all.",
            "Files up to C(at_once_bytes) are returned with their content. Larger ones are read by M(benchmark_fetch).",
        ]},
        "launched": {"type": "bool", "default": False, "description":
            "Whether an earlier call has started this launch. If so, nothing is started, even if its state is lost."},
        "order": {"type": "str", "choices": ["", "stopped", "peer"], "default": "", "description":
            "V(stopped) - stop the command now; V(peer) - another launch of the same run has failed, so keep the state as for a hang, and "
            "stop the command."},
        "wait_s": {"type": "float", "default": 5.0, "description": "The longest time that one call waits, in seconds."},
    },
}  # fmt: skip

RETURN = r"""
finished: {description: "Whether the command has finished.", type: bool, returned: always}
exit_status: {description: "Exit status; the negative signal number if a signal ended it.", type: int, returned: when finished}
started: {description: "Start in seconds since the epoch, by the node's clock.", type: float, returned: always}
ended: {description: "End in seconds since the epoch, by the node's clock.", type: float, returned: when finished}
reason: {type: str, returned: when finished, description:
  "Why the supervisor stopped the command: V(timeout), V(lease), V(stopped), V(lock), V(busy), V(hung), V(hung_at_start), V(peer) or
  empty."}
silent_s: {description: "How long the log had not grown.", type: float, returned: when RV(reason) is hung or hung_at_start}
sign: {description: "The end of the sentence that says why this is a hang.", type: str, returned: when RV(reason) is hung or hung_at_start}
left: {description: "Processes of the command that did not end, and hosts that could not be checked for them.", type: list, elements: str, returned: when finished}
lost: {description: "Whether the command's supervisor is gone, as after a restart of the node.", type: bool, returned: failed}
log: {description: "Path of the log.", type: str, returned: always}
log_bytes: {description: "Current size of the log.", type: int, returned: always}
tail: {description: "The end of the log.", type: str, returned: always}
beside: {type: list, elements: dict, returned: when finished, description:
  "Other users' processes that used the CPU during the command, with C(host), C(pid), C(uid), C(command) and the average C(cores)."}
busy: {description: "Who used the nodes, if the command was not started.", type: list, elements: str, returned: when finished}
gpu_memory_mib: {type: dict, returned: when finished and a GPU was seen, description:
  "Peak memory of each used device in MiB, by host and device index."}
unsampled_from_s: {type: dict, returned: when finished and there is such a host, description:
  "Hosts whose sampling ended before the command, or did not begin, with the seconds until their last sample."}
devices: {returned: while the command runs, type: list, elements: dict, description:
  "The last sample of each GPU, with C(host), C(device), C(memory_used_mib), C(utilization_percent), C(temperature_c) and C(power_w)."}
files:
  description:
    - The log, the samples, CSV files per host (telemetry, processes, xid), and the state of a run that hung, by file name.
    - Each has its size, identity and sha256, and the content of a small file (compressed by zlib, in Base64); or else only refused, the
      reason why it cannot be fetched.
  type: dict
  returned: when finished
"""

import os
import shutil
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.run_agent.lock import renew as renew_lock
from ansible.module_utils.run_agent.next_launch import hand_over
from ansible.module_utils.run_agent.owned_file import described, discard, size_and_end, write_whole
from ansible.module_utils.run_agent.process_table import is_alive
from ansible.module_utils.run_agent.states import state_name
from ansible.module_utils.run_agent.supervisor import GRACE_S, POLL_S, Lease, detach, end_orphans, is_gone, read_state, supervise_all
from ansible.module_utils.run_agent.telemetry import file_names, latest

STATE = "job.json"
TAIL_BYTES = 4096


def optional_files(launch):
    """The names of the files that a run may leave beside its log."""
    return [state_name(launch["host"])] + (file_names(launch["sample_hosts"]) if launch["sample_s"] > 0 else [])


def files(launch, log_file):
    """Descriptions of the log and the other files, by name. The names do not come from the state, which may be forged."""
    descriptions = {launch["log"]: described(log_file, launch["log_limit_mib"] << 20, launch["at_once_bytes"])}
    for name in optional_files(launch):
        path = os.path.join(launch["directory"], name)
        if os.path.lexists(path):
            descriptions[name] = described(path, launch["telemetry_limit_mib"] << 20, launch["at_once_bytes"])
    return descriptions


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    launch = module.params["launch"]
    log_file = os.path.join(launch["directory"], launch["log"])
    if module.check_mode:
        module.exit_json(changed=True, finished=True, skipped=True, log=log_file)
    try:
        follow(module, launch, os.path.join(launch["directory"], STATE), log_file)
    except (IOError, OSError) as error:
        module.fail_json(msg="cannot use the run's directory %s: %s" % (launch["directory"], error))


def lost(module, state_file, lease):
    """Order the supervisor, if any, to stop the command, wait until it has, and fail."""
    lease.renew("stopped")
    deadline = time.time() + 2 * GRACE_S
    while time.time() < deadline and not (read_state(state_file) or {}).get("finished"):
        time.sleep(POLL_S)
    module.fail_json(
        msg="%s, the state of the launch, is missing or damaged. The command runs as the same user: check whether it "
        "removes or replaces files in its directory." % state_file
    )


def is_running(state):
    return bool(state) and "supervisor" in state and not state.get("finished") and is_alive(state["supervisor"])


def is_over(state_file):
    state = read_state(state_file)
    return bool(state) and (bool(state.get("finished")) or is_gone(state))


def prune(root, keep):
    """Remove the folders of runs below `root`, CAMPAIGN/CASE/rN, except the newest `keep` and those that are not over. Links are not followed."""
    dated = []
    for case in folders(root, 2):
        for run in folders(case, 1):
            try:
                dated.append((os.lstat(os.path.join(run, STATE)).st_mtime, run))
            except OSError:
                continue  # not a run's
    for _, run in sorted(dated, reverse=True)[keep:]:
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
        paths = [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []
    paths = [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
    return paths if depth == 1 else [below for path in paths for below in folders(path, depth - 1)]


def start(module, launch, state_file, lease):
    """Start a launch, unless another one is running in its directory."""
    directory = launch["directory"]
    state = read_state(state_file)
    # The supervisor of a controller that was killed has lost its lock to this one, and ends soon.
    deadline = time.time() + (2 * GRACE_S if launch["lock"] else 0)
    while is_running(state) and time.time() < deadline:
        time.sleep(POLL_S)
        state = read_state(state_file)
    if is_running(state):
        module.fail_json(
            msg="%s: another launch has been running there since %s (supervisor %d). Wait for it; "
            "if no controller polls it, it is stopped after %d s."
            % (directory, time.ctime(state["started"]), state["supervisor"], launch["lease_s"])
        )
    if not os.path.isdir(directory):
        os.makedirs(directory, 0o755)
    write_whole(state_file, {"launch": launch["launch"], "started": time.time()})
    if launch["runs"]:
        prune(launch["runs"], launch["keep"])
    lease.renew()
    for name in optional_files(launch):
        discard(os.path.join(directory, name))  # from an earlier launch
    called = dict(launch, caller=os.getpid())
    if not hand_over(called):
        detach(lambda: supervise_all(called))


def wait(module, launch, state_file, lease):
    """The state of the launch when it has ended, or after `wait_s`. Fails if its supervisor is gone."""
    deadline = time.time() + module.params["wait_s"]
    while True:
        state = read_state(state_file)
        if state is None or state["launch"] != launch["launch"]:
            lost(module, state_file, lease)
        if state.get("finished"):
            return state
        if is_gone(state) and not (read_state(state_file) or {}).get("finished"):
            crash = (read_state(state_file) or {}).get("crash")
            why = crash or "Check whether the node was restarted or ran out of memory."
            left = "".join(" Left behind: %s." % line for line in end_orphans(launch, state))
            module.fail_json(msg="%s: the supervisor of the launch has died. %s%s" % (launch["directory"], why, left), lost=not crash)
        if time.time() > deadline:
            return state
        time.sleep(POLL_S)


def follow(module, launch, state_file, log_file):
    params = module.params
    lease = Lease(os.path.join(launch["directory"], "lease"), launch["lease_s"])
    state = read_state(state_file)
    is_new = not params["launched"] and (state is None or state["launch"] != launch["launch"])
    if is_new:
        start(module, launch, state_file, lease)
    elif state is None or state["launch"] != launch["launch"]:
        lost(module, state_file, lease)
    if params["order"] or not is_new:
        lease.renew(params["order"])
    if launch["lock"]:
        renew_lock(launch["lock"]["directory"], launch["lock"]["token"])
    state = wait(module, launch, state_file, lease)
    size, end = size_and_end(log_file, TAIL_BYTES)
    keys = ("exit_status", "started", "ended", "reason", "silent_s", "sign", "left", "beside", "busy", "gpu_memory_mib", "unsampled_from_s")
    result = dict((key, state[key]) for key in keys if key in state)
    if state.get("finished"):
        result["files"] = files(launch, log_file)
    else:
        result["devices"] = latest(launch)
    result.update(changed=is_new, finished=bool(state.get("finished")), log=log_file, log_bytes=size, tail=to_text(end, errors="replace"))
    module.exit_json(**result)


if __name__ == "__main__":
    main()
