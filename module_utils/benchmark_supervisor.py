# -*- coding: utf-8 -*-
"""For benchmark_job: the supervisor that runs a command apart from the connection, and the state that it keeps."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import os
import pwd
import signal
import subprocess
import time
import traceback

from ansible.module_utils.node_agents import Agents, signal_group
from ansible.module_utils.next_launch import next_launch
from ansible.module_utils.node_lock import age, uptime
from ansible.module_utils.node_sampler import content
from ansible.module_utils.other_processes import adopt_orphans, when_idle
from ansible.module_utils.owned_file import OwnedFile, Refused, create, write_whole
from ansible.module_utils.process_table import descendants, is_alive, local, processes
from ansible.module_utils.run_activity import Activity, Hang
from ansible.module_utils.run_processes import end_others, keep_states
from ansible.module_utils.telemetry import Telemetry

POLL_S = 0.05
GRACE_S = 10
CLEANUP_S = 60
START_S = 60
STATE_BYTES = 1 << 20
CRASH_CHARACTERS = 2000
# Times of last change of the lease that are orders to the supervisor: 1970-01-01 00:00:00 and :01.
ORDERS = {0: "stopped", 1: "peer"}


def read_state(path):
    """The state written by a supervisor; None if it is missing or invalid."""
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
    kinds.update({"crash": type(u"")} if "crash" in state else {})
    kinds.update({"exit_status": int, "ended": float} if state.get("finished") else {})
    if not all(type(state.get(key)) is kind for key, kind in kinds.items()):
        return False
    times = [state["started"], state.get("ended", 0.0)]
    return 0 < state.get("supervisor", 1) < 1 << 31 and all(0 <= time_s < 1e11 for time_s in times)


def renew(lease_file):
    """Recreate the lease, because the command may have removed or replaced it."""
    os.close(create(lease_file))


def changed(lease_file, before):
    """When the lease was last changed; `before` if the file is missing."""
    try:
        return os.lstat(lease_file).st_mtime
    except OSError:
        return before


def end_group(process):
    """Send TERM, and KILL after a grace period: mpirun needs TERM to stop its remote ranks. CONT wakes a stopped process to see it."""
    signal_group(process.pid, signal.SIGTERM)
    signal_group(process.pid, signal.SIGCONT)
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
            return  # if this cannot be started, neither could the container that it would remove
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


def owned():
    """In the command's process: start a new session, and get TERM if the supervisor is killed (prctl(2), PR_SET_PDEATHSIG)."""
    os.setsid()
    try:
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
    except (ImportError, AttributeError, OSError):
        pass


def own_processes(agents):
    """Ids of all processes that the command started and that still exist."""
    table = processes(local())
    return descendants(table, [os.getpid()]) - descendants(table, agents.pids()) - set([os.getpid()])


def seen_processes(params, agents, began):
    """Ids of the run's processes here. Those in a container, whose engine starts them, are this user's since then that did not come by sudo."""
    table = processes(local())
    seen = descendants(table, [os.getpid()])
    if params["cleanup"]:
        uid, oldest = os.getuid(), began * os.sysconf("SC_CLK_TCK")
        young = [pid for (pid, start), row in table.items() if row[1] == uid and start >= oldest]
        seen.update(pid for pid in young if "\0SUDO_COMMAND=" not in "\0" + content("/proc/%d/environ" % pid))
    return seen - descendants(table, agents.pids()) - set([os.getpid()])


def end_descendants(agents):
    """Kill processes that the command started in their own groups and left behind. Returns those that do not end."""
    deadline = time.time() + GRACE_S
    while time.time() < deadline:
        left = own_processes(agents)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                continue
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except OSError:
            pass  # no child is left
        if not left:
            break
        time.sleep(POLL_S)
    return sorted(left)


class Limits(object):
    """Why a command must stop. Counts the node's uptime, because the clock may be set while the command runs."""

    def __init__(self, params, lease_file):
        self.params, self.lease_file = params, lease_file
        self.why_hung = lambda: ""
        self.changed = changed(lease_file, None)
        self.began = self.renewed = uptime()

    def exceeded(self, others):
        """Why the command must stop now; empty if it may continue."""
        now = uptime()
        latest = changed(self.lease_file, self.changed)
        if latest != self.changed:
            self.changed, self.renewed = latest, now
        if now - self.began > self.params["timeout_s"]:
            return "timeout"
        if self.changed in ORDERS:
            return ORDERS[self.changed]
        if now - self.renewed > self.params["lease_s"]:
            return "lease"
        lock = self.params["lock"]
        if others.lost or (lock and age(lock["directory"], lock["token"]) is None):
            return "lock"
        return self.why_hung()


def watch(params, log_file, limits, agents, telemetry):
    """Let the limits notice a hang of the command that has begun."""
    hang = Hang(log_file, params)
    activity = Activity(params["host"], params["hosts"], params["hung_after_s"], telemetry.gpu_idle_s)
    receive = agents.receive

    def receive_all(host, lines):
        receive(host, lines)
        activity.receive(host, lines)

    def why_hung():
        states = []
        if params["hung_after_s"] and hang.is_starting():
            activity.poll(lambda: seen_processes(params, agents, limits.began), agents)
            # What other launches of the run do is not seen here: this one may wait for them.
            states = [dict(activity.state(), **({} if params["is_only_launch"] else {"idle_s": 0.0}))]
        return hang.reason(states)

    agents.receive, limits.why_hung = receive_all, why_hung
    return hang


def supervise_all(params):
    """Run this launch's command, and then, if there are other nodes, those of the campaign's next launches. Never returns."""
    adopt_orphans()
    agents = Agents()
    while params:
        state_file = os.path.join(params["directory"], "job.json")
        try:
            supervise(params, agents, state_file)
        except Exception:
            write_crash(state_file, traceback.format_exc())
            break
        params = next_launch(params, agents)
    agents.close()
    os._exit(0)


def supervise(params, agents, state_file):
    """Run the command until it ends, or stop it at its time limit or the end of the lease."""
    lease_file, log_file = os.path.join(params["directory"], "lease"), os.path.join(params["directory"], params["log"])
    state = {"launch": params["launch"], "supervisor": os.getpid(), "started": time.time()}
    write_whole(state_file, state)
    clean_up(params)  # after an earlier launch whose supervisor was killed
    limits = Limits(params, lease_file)
    sampled = params["sample_hosts"] if params["sample_s"] > 0 else {}
    agents.want(dict(params["idle"], **dict(params["hosts"], **sampled)), environment(params["env"]))
    telemetry = Telemetry(params, agents, params["timeout_s"] + params["idle_wait_s"] + 2 * GRACE_S)

    def why_not(others):
        limits.began = uptime()  # waiting for others is no part of the run
        return limits.exceeded(others)

    others, reason, busy = when_idle(params, agents, telemetry, why_not)
    state["started"] = time.time()
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
                preexec_fn=owned,
                close_fds=True,
            )  # fmt: skip
        if process:
            state["pid"] = process.pid
            write_whole(state_file, state)
            hang = watch(params, log_file, limits, agents, telemetry)
            while process.poll() is None:
                agents.poll()
                others.poll()
                reason = limits.exceeded(others)
                if reason:
                    if hang.result or reason == "peer":
                        away = keep_states(params, own_processes(agents), limits.began, environment(params["env"]))
                        others.away.update(away)  # it may be back when it is asked again
                    end_group(process)
                    break
                time.sleep(POLL_S)
            state.update(ended=time.time())
            signal_group(process.pid, signal.SIGKILL)  # processes that the command left in its group
            telemetry.end()  # asked together with the last look at the nodes
            state.update(others.result())
            state.update(telemetry.result(), exit_status=process.returncode)
            state.update(hang.result)
        else:
            telemetry.result()
            state.update(exit_status=125, busy=busy)
    except (IOError, OSError) as error:
        if process:
            end_group(process)
        if log:
            log.write(("benchmark_job: %s: %s\n" % (params["argv"][0], error)).encode("utf-8"))
        telemetry.rest()
        state.update(exit_status=127)
    if log:
        log.close()
    state.setdefault("ended", time.time())
    clean_up(params)
    left = ["%s: process %d" % (params["host"] or "this node", pid) for pid in end_descendants(agents)]
    # mpirun may not have ended its processes on other nodes, or what they started. After the lock is lost, those there may be of the campaign
    # that has it.
    if process and reason != "lock":
        failed = reason or process.returncode
        left += end_others(params["hosts"] if failed else others.with_own(), limits.began, environment(params["env"]))
    left += telemetry.not_freed() if process and reason != "lock" else []
    left += ["%s: cannot be checked for processes of the run, because it was restarted or did not answer" % host for host in sorted(others.away)]
    state.update(finished=True, reason=reason, left=left)
    write_whole(state_file, state)


def detach(work):
    """Run `work` in a process detached from the connection."""
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


def write_crash(state_file, text):
    """Add to the state why the supervisor has ended."""
    state = read_state(state_file)
    if state is not None:
        write_whole(state_file, dict(state, crash=text[-CRASH_CHARACTERS:]))


def end_orphans(params, state):
    """After the supervisor was killed, from which its command got TERM: wait until that has ended, or kill it. Returns what is left."""
    began = uptime() - (time.time() - state["started"])
    group = state.get("pid")
    if began < 0 or type(group) is not int or group < 2:
        return []  # this node was restarted, or the command had not begun
    deadline = uptime() + GRACE_S
    while is_group(group) and uptime() < deadline:
        time.sleep(POLL_S)
    signal_group(group, signal.SIGKILL)
    clean_up(params)
    return end_others(params["hosts"], began, environment(params["env"]))


def is_group(group):
    try:
        os.killpg(group, 0)
    except OSError:
        return False
    return True


def is_gone(state):
    """Whether the launch's supervisor has died, or did not start in time."""
    if "supervisor" in state:
        return not is_alive(state["supervisor"])
    return time.time() - state["started"] > START_S
