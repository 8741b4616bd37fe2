"""The supervisor of a run's command: it starts it, watches it, ends it, and proves that nothing of it is left."""

from __future__ import absolute_import, division, print_function

import json
import os
import pwd
import signal
import subprocess
import time
import traceback

from .activity import Activity, Hang
from .lock import age, uptime
from .next_launch import next_launch, offer
from .node_agents import Agents
from .node_sampler import content
from .other_processes import adopt_orphans, when_idle
from .owned_file import create, read_whole, write_whole
from .process_table import descendants, executed, helpers, is_alive, is_marked, prctl, processes, signal_group
from .states import end_others, keep_states
from .telemetry import Telemetry

POLL_S = 0.05
GRACE_S = 10
CLEANUP_S = 60
START_S = 60
STATE_BYTES = 1 << 20
CRASH_CHARACTERS = 2000
NOT_STARTED, FAILED_TO_START = 125, 127  # exit statuses
ORDERS = ("stopped", "peer")


def read_state(path):
    """The state written by a supervisor; None if it is missing or invalid."""
    state = read_whole(path, STATE_BYTES)
    return state if is_state(state) else None


def is_state(state):
    if not isinstance(state, dict):
        return False
    kinds = {"launch": type(b"".decode()), "started": float}
    kinds.update({"supervisor": int} if "supervisor" in state else {})
    kinds.update({"crash": type(b"".decode())} if "crash" in state else {})
    kinds.update({"exit_status": int, "ended": float} if state.get("finished") else {})
    if not all(type(state.get(key)) is kind for key, kind in kinds.items()):
        return False
    times = [state["started"], state.get("ended", 0.0)]
    return 0 < state.get("supervisor", 1) < 1 << 31 and all(0 <= time_s < 1e11 for time_s in times)


class Lease(object):
    """The file by which the controller shows that it is there: each of its calls makes it anew, with an order of ORDERS or none.

    The command may have removed or replaced it. Counts the node's uptime, because the clock may be set while the command runs.
    """

    def __init__(self, path, seconds):
        self.path, self.seconds = path, seconds
        self.seen, self.renewed, self.given = None, uptime(), ""

    def renew(self, order=""):
        write_whole(self.path, order)

    def order(self):
        """The order, or `lease` if the controller made no call in time."""
        now = uptime()
        try:
            status = os.lstat(self.path)
            seen = (status.st_ino, status.st_mtime)
        except OSError:
            seen = self.seen
        if seen != self.seen:
            self.seen, self.renewed = seen, now
            order = read_whole(self.path, STATE_BYTES)
            self.given = order if order in ORDERS else self.given
        return self.given or ("lease" if now - self.renewed > self.seconds else "")


class Limits(object):
    """The reason why a command must stop. `order` gives the order to do so, if any."""

    def __init__(self, params, order):
        self.params, self.order = params, order
        self.why_hung = lambda: ""
        self.began = uptime()

    def exceeded(self, others):
        """The reason why the command must stop now; empty if it may continue."""
        if uptime() - self.began > self.params["timeout_s"]:
            return "timeout"
        order = self.order()
        if order:
            return order
        lock = self.params["lock"]
        if others.lost or (lock and age(lock["directory"], lock["token"]) is None):
            return "lock"
        return self.why_hung()


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
    """In the command's process: start a new session, and get TERM if the supervisor is killed (PR_SET_PDEATHSIG)."""
    os.setsid()
    prctl(1, signal.SIGTERM)


def end_group(process, grace_s):
    """Send TERM, and KILL after a grace period: mpirun needs TERM to stop its remote ranks. CONT wakes a stopped process to see it."""
    signal_group(process.pid, signal.SIGTERM)
    signal_group(process.pid, signal.SIGCONT)
    deadline = time.time() + grace_s
    while process.poll() is None and time.time() < deadline:
        time.sleep(POLL_S)
    signal_group(process.pid, signal.SIGKILL)
    return process.wait()


def clean_up(params, agents):
    """Execute the launch's cleanup here, and in a job also on its other nodes: there its containers have the job's mark."""
    if params["cleanup"]:
        executed(params["cleanup"], CLEANUP_S, environment(params["env"]))
        if params["marks"]:
            agents.gather(params["hosts"], "clean," + json.dumps(params["cleanup"]), "cleaned", CLEANUP_S)


class Run(object):
    """A run's command on this node, from the wait for idle nodes to the proof that nothing of it is left.

    `order` gives the reason to stop that comes from outside, if any. `tell` keeps the state: when the supervisor begins, when the command has
    started, and when all has ended.
    """

    def __init__(self, params, agents, order, tell):
        self.params, self.agents, self.tell = params, agents, tell
        self.limits = Limits(params, order)
        self.state = {"launch": params["launch"], "supervisor": os.getpid(), "started": time.time()}
        self.process, self.reason, self.hang = None, "", Hang(self.path(params["log"]), params)

    def path(self, name):
        return os.path.join(self.params["directory"], name)

    def supervise(self):
        params = self.params
        self.tell(self.state)
        sampled = params["sample_hosts"] if params["sample_s"] > 0 else {}
        self.agents.want(dict(params["idle"], **dict(params["hosts"], **sampled)), environment(params["env"]))
        clean_up(params, self.agents)  # after an earlier launch whose supervisor was killed
        self.telemetry = Telemetry(params, self.agents, params["timeout_s"] + params["idle_wait_s"] + 2 * GRACE_S)
        self.others, self.reason, busy = when_idle(params, self.agents, self.telemetry, self.why_not)
        self.state["started"] = time.time()
        log = None
        try:
            log = os.fdopen(create(self.path(params["log"])), "wb", 0)
            if self.reason:
                self.telemetry.result()
                self.state.update(exit_status=NOT_STARTED, busy=busy)
            else:
                self.start(log)
                self.attend()
        except (IOError, OSError) as error:
            if self.process:
                end_group(self.process, params["grace_s"])
            if log:
                log.write(("benchmark_job: %s: %s\n" % (params["argv"][0], error)).encode("utf-8"))
            self.telemetry.rest()
            self.state.update(exit_status=FAILED_TO_START)
        if log:
            log.close()
        self.state.setdefault("ended", time.time())
        self.state.update(finished=True, reason=self.reason, left=self.left())
        self.tell(self.state)

    def why_not(self, others):
        self.limits.began = uptime()  # waiting for others is no part of the run
        return self.limits.exceeded(others)

    def start(self, log):
        params = self.params
        marks = [mark.partition("=")[::2] for mark in params["marks"]]
        with open(os.devnull) as nothing:
            self.process = subprocess.Popen(
                params["argv"],
                stdin=nothing,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=params["cwd"] or params["directory"],
                env=environment(dict(params["env"], **dict(marks))),
                preexec_fn=owned,
                close_fds=True,
            )
        self.state["pid"] = self.process.pid
        self.tell(self.state)

    def attend(self):
        """Wait for the command's end, or end it at a limit. Adds to the state what was seen."""
        self.watch()
        while self.process.poll() is None:
            self.agents.poll()
            self.others.poll()
            self.reason = self.limits.exceeded(self.others)
            if self.reason:
                if self.hang.result or self.reason == "peer":
                    away = keep_states(self.params, self.own_processes(), self.limits.began, self.agents)
                    self.others.away.update(away)  # it may be back when it is asked again
                end_group(self.process, self.params["grace_s"])
                break
            time.sleep(POLL_S)
        self.state.update(ended=time.time())
        signal_group(self.process.pid, signal.SIGKILL)  # processes that the command left in its group
        self.telemetry.end()  # asked together with the last look at the nodes
        self.state.update(self.others.result())
        self.state.update(self.telemetry.result(), exit_status=self.process.returncode)
        self.state.update(self.hang.result)

    def watch(self):
        """Let the limits notice a hang of the command that has begun."""
        params, receive = self.params, self.agents.receive
        activity = Activity(params, self.telemetry.gpu_idle_s)

        def receive_all(host, lines):
            receive(host, lines)
            activity.receive(host, lines)

        def why_hung():
            states = []
            if params["hung_after_s"] and self.hang.is_starting():
                activity.poll(self.seen_processes, self.agents)
                # What other launches of the run do is not seen here: this one may wait for them.
                states = [dict(activity.state(), **({} if params["is_only_launch"] else {"idle_s": 0.0}))]
            return self.hang.reason(states)

        self.agents.receive, self.limits.why_hung = receive_all, why_hung

    def own_processes(self):
        """Ids of all processes that the command started and that still exist."""
        table = processes()
        started = descendants(table, [os.getpid()])
        if self.params["marks"]:
            started.update(key[0] for key, row in table.items() if row[1] == os.getuid() and is_marked(key[0], self.params["marks"]))
        return started - descendants(table, self.agents.pids()) - set([os.getpid()])

    def seen_processes(self):
        """Ids of the run's processes here, and of those that may work for it. Those in a container, whose engine starts them, are this user's
        since then that did not come by sudo."""
        seen = self.own_processes()
        if self.params["marks"]:
            return seen, helpers(self.params["marks"]) - seen
        if self.params["cleanup"]:
            table, uid, oldest = processes(), os.getuid(), self.limits.began * os.sysconf("SC_CLK_TCK")
            young = [pid for (pid, start), row in table.items() if row[1] == uid and start >= oldest]
            seen.update(pid for pid in young if "\0SUDO_COMMAND=" not in "\0" + content("/proc/%d/environ" % pid))
            seen -= descendants(table, self.agents.pids()) | set([os.getpid()])
        return seen, set()

    def left(self):
        """Lines about what the command has left on any node, after all of it was ended that can be."""
        params = self.params
        clean_up(params, self.agents)
        left = ["%s: process %d" % (params["host"] or "this node", pid) for pid in self.end_descendants()]
        # mpirun may not have ended its processes on other nodes, or what they started. After the lock is lost, those there may be of the
        # campaign that has it.
        if self.process and self.reason != "lock":
            failed = (self.reason or self.process.returncode) and not params["marks"]
            hosts = params["hosts"] if failed else self.others.with_own()
            left += end_others(params, hosts, self.limits.began, self.agents)
            left += self.telemetry.not_freed()
        away = "cannot be checked for processes of the run, because it was restarted or did not answer"
        return left + ["%s: %s" % (host, away) for host in sorted(self.others.away)]

    def end_descendants(self):
        """Kill processes that the command started in their own groups and left behind. Returns those that do not end."""
        deadline = time.time() + GRACE_S
        while time.time() < deadline:
            left = self.own_processes()
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


def supervise_all(params):
    """Run this launch's command, and then, if there are other nodes, those of the campaign's next launches. Never returns."""
    adopt_orphans()
    agents = Agents()
    while params:
        state_file = os.path.join(params["directory"], "job.json")
        lease = Lease(os.path.join(params["directory"], "lease"), params["lease_s"])

        def tell(state, params=params, state_file=state_file):
            if state.get("finished"):
                offer(params)
            write_whole(state_file, state)

        try:
            Run(params, agents, lease.order, tell).supervise()
        except Exception:
            write_crash(state_file, traceback.format_exc())
            break
        params = next_launch(params, agents)
    agents.close()
    os._exit(0)


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
    while is_alive(-group) and uptime() < deadline:
        time.sleep(POLL_S)
    signal_group(group, signal.SIGKILL)
    agents = Agents()
    agents.want(params["hosts"], environment(params["env"]))
    clean_up(params, agents)
    left = end_others(params, params["hosts"], began, agents)
    agents.close()
    return left


def is_gone(state):
    """True if the launch's supervisor has died, or did not start in time."""
    if "supervisor" in state:
        return not is_alive(state["supervisor"])
    return time.time() - state["started"] > START_S
