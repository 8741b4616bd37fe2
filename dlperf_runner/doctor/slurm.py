"""Check a login node of Slurm: what its commands and a short job print, and what that means."""

from __future__ import annotations

import getpass
import re
import secrets
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import UserError
from ..core.files import write_whole
from ..core.lists import counted
from ..schedulers import scheduler
from ..schedulers.job import PATH
from ..schedulers.slurm import PMIX_LIBRARIES
from .findings import Finding, Status, check_finding

OPTIONS = ("partition", "account", "qos", "reservation", "constraint")
WAIT_S = 30  # for idle nodes
SAME, OF_ONE_KIND = "the same on every node", "choose nodes of one kind with --constraint"
ENGINES = ("apptainer", "singularity", "enroot", "podman")

# Runs on each node. Its arguments: the folder, the probe's own folder in it, search path, engines,
# the folder of Slurm's plugins.
_PROBE = (
    f"""
{PMIX_LIBRARIES}
"""
    + r"""
folder=$1 own=$2 name=${SLURMD_NODENAME:?}
export PATH=$3
say() { printf 'dlperf|%s|%s|%s\n' "$name" "$1" "$2"; }
say memlock "$(ulimit -l)"
say read "$(cat "$folder/$own/login" 2>&1 | head -n 1)"
say written "$( (echo "$name" > "$folder/$own/node.$name") 2>&1 | head -n 1)"
for engine in $4; do
  command -v "$engine" > /dev/null || continue
  flag=--version
  [[ $engine != enroot ]] || flag=version
  say "$engine" "$(timeout 20 "$engine" "$flag" 2> /dev/null | head -n 1)"
done
for found in $(pmix_libraries "$5"); do say pmix "${found#no}"; done
exit 0
"""
)
_RANK = """printf 'dlperf|%s|rank|%s\\n' "$SLURMD_NODENAME" "$PMIX_RANK" """


@dataclass(frozen=True)
class CommandResult:
    """The output of a command. `status` is None if it is missing or did not end in time; `output`
    then says so."""

    status: int | None
    output: str


Results = Mapping[str, CommandResult]  # of COMMANDS, by name


@dataclass(frozen=True)
class Probe:
    """The output of the job on the nodes, and which nodes wrote into the folder, seen from here."""

    result: CommandResult
    folder: str
    token: str
    wrote: frozenset[str]
    pmix: CommandResult | None = None


def probe_argv(
    plugins: str, options: Mapping[str, str], nodes: int, folder: str, own_folder: str, path: str
) -> tuple[str, ...]:
    """The srun command that runs the probe once on each of `nodes` idle nodes. `plugins`: the
    folder of Slurm's plugins."""
    values = (folder, own_folder, path, " ".join(ENGINES), plugins)
    return (*_srun(options, nodes, "none"), "/bin/bash", "-c", _PROBE, "probe", *values)


def pmix_argv(options: Mapping[str, str], nodes: int) -> tuple[str, ...]:
    """The srun command that tests PMIx on one or two nodes."""
    return (*_srun(options, min(nodes, 2), "pmix"), "/bin/bash", "-c", _RANK)


def _srun(options: Mapping[str, str], nodes: int, mpi: str) -> tuple[str, ...]:
    chosen = [f"--{name}={options[name]}" for name in OPTIONS if options.get(name)]
    return (
        *("srun", *chosen, f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        *("--time=2", "--mem=500", "--quiet", f"--immediate={WAIT_S}", "--chdir=/"),
        *(f"--mpi={mpi}", "--export=NIL", "--job-name=dlperf-doctor"),
    )


def has_pmix(result: CommandResult) -> bool:
    """True if each node of the probe has what PMIx needs, so that a test of it cannot hang."""
    answers = [facts.get("pmix") for facts in _by_node(result).values()]
    return bool(answers) and all(answers)


# ---- what the job on the nodes found


def on_nodes(
    where: str, probe: Probe | None, has_pyxis: bool, propagated: bool = False
) -> Iterator[Finding]:
    """The findings of the job: `where` is the partition, `probe` None if no node was idle.
    `propagated`: jobs have the login node's limit of locked memory."""
    if probe is None:
        hint = "run the doctor again when a node is idle, or with another --partition"
        found = "no idle node"
        yield Finding(where, "test job", "warning", "runs on the idle nodes", found, hint)
        return
    facts = _by_node(probe.result)
    if probe.result.status != 0 or not facts:
        others = [x for x in probe.result.output.splitlines() if not x.startswith("dlperf|")]
        is_busy = "Immediate" in probe.result.output
        hint = "another job took the nodes; run the doctor again" if is_busy else "see the message"
        found = "; ".join(others[-3:]) or f"exit status {probe.result.status}"
        otherwise: Status = "warning" if is_busy else "failed"
        yield check_finding(where, "test job", False, "runs", found, hint, otherwise)
    else:
        yield Finding(where, "test job", "ok", "runs", f"on {counted(len(facts), 'node')}")
    yield from _pmix(where, probe)
    for node, values in facts.items():
        yield from _folder(node, values, probe)
        yield _engines(node, values, has_pyxis)
        yield from _memlock(node, values, propagated)
    kinds = {tuple((name, values.get(name)) for name in ENGINES) for values in facts.values()}
    if len(facts) > 1:
        is_good = len(kinds) == 1
        found = "the same" if is_good else "different versions"
        yield check_finding("", "container engines", is_good, SAME, found, OF_ONE_KIND, "warning")


def _by_node(result: CommandResult) -> dict[str, dict[str, str]]:
    """`dlperf|node1|written|`: what each node found, among messages of srun."""
    facts: dict[str, dict[str, str]] = {}
    for line in result.output.splitlines():
        mark, _, rest = line.partition("|")
        if mark == "dlperf" and rest.count("|") >= 2:
            node, key, value = rest.split("|", 2)
            facts.setdefault(node, {})[key] = value
    return facts


def _pmix(where: str, probe: Probe) -> Iterator[Finding]:
    """PMIx, where Slurm has a plugin for it. Without it, jobs start MPI programs by mpirun."""
    by_node = _by_node(probe.result)
    if not any("pmix" in facts for facts in by_node.values()):
        return
    without = ", ".join(node for node, facts in by_node.items() if not facts.get("pmix"))
    hint = (
        "do not use srun --mpi=pmix: its steps would hang. The library is in libpmix-dev (Debian)"
    )
    if without:
        found = f"libpmix.so is missing on {without}"
        yield Finding(where, "pmix", "warning", "starts processes", found, hint)
    elif probe.pmix is not None:
        ranks = sorted(facts.get("rank", "") for facts in _by_node(probe.pmix).values())
        is_good = bool(ranks) and ranks == [str(number) for number in range(len(ranks))]
        text = probe.pmix.output.strip() or "nothing"
        found = f"yes, on {counted(len(ranks), 'node')}" if is_good else text
        hint = "do not use srun --mpi=pmix"
        yield check_finding(where, "pmix", is_good, "starts processes", found, hint, "warning")


def _folder(node: str, values: Mapping[str, str], probe: Probe) -> Iterator[Finding]:
    hint = "start dlperf in a directory that all nodes share, such as your home or scratch folder"
    expected = f"sees {probe.folder} as the login node does"
    found = "yes" if values.get("read") == probe.token else values.get("read") or "another content"
    yield check_finding(node, "shared folder", found == "yes", expected, found, hint)
    if found == "yes":
        is_there = node in probe.wrote
        missing = "the login node does not see the file"
        written = values.get("written") or ("yes" if is_there else missing)
        expected = f"can write into {probe.folder}"
        yield check_finding(node, "writes", is_there and written == "yes", expected, written, hint)


def _memlock(node: str, values: Mapping[str, str], propagated: bool) -> Iterator[Finding]:
    """InfiniBand must lock memory. slurmd gives jobs its own limit, or that of the login node."""
    if "memlock" not in values:
        return
    limit = values["memlock"]
    found = f"{limit} KiB" if limit.isdigit() else limit
    hint = "InfiniBand must lock memory in jobs. " + (
        "slurm.conf needs PropagateResourceLimitsExcept=MEMLOCK: jobs have the limits of the"
        " shell that submits them"
        if propagated
        else "slurmd on the node needs LimitMEMLOCK=infinity (systemctl edit slurmd), and a restart"
    )
    is_good = limit == "unlimited"
    yield check_finding(node, "locked memory", is_good, "unlimited", found, hint, "warning")


def _engines(node: str, values: Mapping[str, str], has_pyxis: bool) -> Finding:
    """`apptainer version 1.3.4`, `podman version 4.3.1`; enroot prints only `3.5.0`."""
    found = []
    for name in ENGINES:
        if name in values:
            version = re.search(r"\d[\w.+-]*", values[name])
            found.append(f"{name} {version[0] if version else '(does not start)'}")
    found += ["pyxis"] if has_pyxis else []
    return Finding(node, "container engines", "ok", "any or none", ", ".join(found) or "none")


# What the doctor asks on the login node. @user@ is the user's name.
COMMANDS: dict[str, tuple[str, ...]] = {
    "config": ("scontrol", "show", "config"),
    "partitions": ("scontrol", "--oneliner", "show", "partition"),
    "nodes": ("sinfo", "--noheader", "--Node", "--format=%P|%N|%T|%G|%u|%H|%E"),
    "mpi": ("srun", "--mpi=list"),
    "options": ("srun", "--help"),
    "associations": (
        *("sacctmgr", "--noheader", "--parsable2", "show", "associations", "user=@user@"),
        "format=cluster,account,partition,qos,maxwall,maxtres",
    ),
    "qos": ("sacctmgr", "--noheader", "--parsable2", "show", "qos", "format=name,maxwall,maxtres"),
}
OLDEST = (21, 8)
SHORTEST_S = 600  # of a time limit
LOGIN = "login node"
_USABLE = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}
_UNLIMITED = ("UNLIMITED", "INFINITE", "")


def partition_of(results: Results, options: Mapping[str, str]) -> str:
    """The chosen partition, or the default one; empty if there is none."""
    defaults = (name for name, row in _partitions(results).items() if row.get("Default") == "YES")
    return options.get("partition") or next(defaults, "")


def idle_nodes(results: Results, partition: str) -> int:
    """On how many nodes of the partition a job could start now."""
    settings = _partitions(results).get(partition, {})
    idle = sum(row[0] == partition and row[2] == "idle" for row in _nodes(results))
    limit = settings.get("MaxNodes", "")
    return min(idle, int(limit)) if limit.isdigit() else idle


def findings(results: Results, options: Mapping[str, str], probe: Probe | None) -> list[Finding]:
    """The findings for the login node, each partition or the chosen one, and each node that cannot
    be used or took part in the probe."""
    asked = [results[name] for name in ("config", "partitions", "nodes")]
    if silent := [" ".join(result.output.split()) for result in asked if result.status != 0]:
        hint = "check the network to the controller, or ask the administrator"
        return [Finding(LOGIN, "controller", "failed", "answers", silent[0], hint)]
    partitions, chosen = _partitions(results), partition_of(results, options)
    found = [_version(results), _partition_exists(chosen, partitions)]
    found += [_mpi(results), *_accounting(results, options)]
    for name in [chosen] if options.get("partition") else partitions:
        if name in partitions:
            found += _partition(name, partitions[name], options, results)
    found += _unusable(results, options.get("partition", ""))
    has_pyxis = "--container-image" in results["options"].output
    if chosen not in partitions:
        return found
    return [
        *found,
        *on_nodes(f"partition {chosen}", probe, has_pyxis, _propagates_memlock(results)),
    ]


# ---- what the commands printed


def _partitions(results: Results) -> dict[str, dict[str, str]]:
    """`PartitionName=main AllowGroups=ALL ... Default=YES ... MaxNodes=UNLIMITED ...`"""
    rows = (
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in results["partitions"].output.splitlines()
    )
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _nodes(results: Results) -> list[tuple[str, ...]]:
    """Partition, node, state, GRES, who gave the reason, when, and the reason.

    main*|node2|drained|gpu:h100:8(S:0-1)|root|2026-11-22T21:03:20|ECC errors
    """
    lines = results["nodes"].output.splitlines()
    rows = (line.split("|", 6) for line in lines if line.count("|") >= 6)
    return [(row[0].rstrip("*"), *row[1:]) for row in rows]


def _setting(results: Results, name: str) -> str:
    """A line of `scontrol show config`: `AccountingStorageType   = accounting_storage/slurmdbd`."""
    found = re.search(rf"^{name}\s*= (.*)$", results["config"].output, re.MULTILINE)
    return found[1].strip() if found else ""


def _propagates_memlock(results: Results) -> bool:
    """PropagateResourceLimits = ALL, PropagateResourceLimitsExcept = MEMLOCK,NOFILE"""
    names = {
        setting: _setting(results, setting).upper().replace("RLIMIT_", "").split(",")
        for setting in ("PropagateResourceLimits", "PropagateResourceLimitsExcept")
    }
    included, excepted = names.values()
    is_excepted = bool({"ALL", "MEMLOCK"} & set(excepted))
    return bool({"ALL", "MEMLOCK"} & set(included)) and not is_excepted


def _table(result: CommandResult) -> list[list[str]]:
    return [line.split("|") for line in result.output.splitlines()] if result.status == 0 else []


# ---- the login node


def _version(results: Results) -> Finding:
    text = _setting(results, "SLURM_VERSION")
    version = tuple(int(part) for part in re.findall(r"\d+", text))[:2]
    oldest = ".".join(f"{part:02}" for part in OLDEST)
    hint = "run this command on a login node of a newer Slurm"
    is_good = version >= OLDEST if version else None
    return check_finding(LOGIN, "slurm", is_good, f"{oldest} or newer", text or None, hint)


def _partition_exists(chosen: str, partitions: Mapping[str, object]) -> Finding:
    expected = "one of " + ", ".join(partitions)
    hint = "name a partition with --partition"
    return check_finding(
        LOGIN, "partition", chosen in partitions, expected, chosen or "no default", hint
    )


def _mpi(results: Results) -> Finding:
    """srun names its plugins on standard error, PMIx with its versions in a line of its own."""
    names = re.findall(r"^\s+(\w+)$", results["mpi"].output, re.MULTILINE)
    names += re.findall(r"pmix_v\d+", results["mpi"].output)
    found = ", ".join(dict.fromkeys(names)) or None
    hint = "no MPI plugin is needed: mpirun starts its own daemons"
    return check_finding(LOGIN, "mpi plugins", True if found else None, "known", found, hint)


def _accounting(results: Results, options: Mapping[str, str]) -> Iterator[Finding]:
    """The user's accounts and qualities of service, if Slurm has accounting."""
    if _setting(results, "AccountingStorageType") != "accounting_storage/slurmdbd":
        yield Finding(LOGIN, "accounting", "ok", "sacct, or none", "none; it is not needed")
        return
    if results["associations"].status != 0:
        found = results["associations"].output.strip() or "nothing"
        hint = "the database may be down; jobs still run, unless Slurm checks accounts"
        yield Finding(LOGIN, "accounting", "warning", "sacctmgr answers", found, hint)
        return
    cluster = _setting(results, "ClusterName")
    rows = [row for row in _table(results["associations"]) if row[0] == cluster]
    is_enforced = "associations" in _setting(results, "AccountingStorageEnforce")
    names = ", ".join(dict.fromkeys(row[1] for row in rows))
    account = options.get("account", "")
    accounts = [row for row in rows if account in ("", row[1])]
    expected = f"account {account}" if account else "an account"
    hint = "ask the administrator for an account, or name another one with --account"
    status: Status = "failed" if is_enforced or account else "warning"
    yield check_finding(LOGIN, "account", bool(accounts), expected, names or "none", hint, status)
    wanted = options.get("qos", "")
    usable = list(dict.fromkeys(name for row in accounts for name in row[3].split(",") if name))
    if wanted:
        found, hint = ", ".join(usable) or "none", "name another quality of service with --qos"
        yield check_finding(LOGIN, "qos", wanted in usable, wanted, found, hint)
    limits = [(f"account {row[1]}", row[4], row[5]) for row in accounts]
    chosen = [wanted] if wanted else usable
    qualities = [row for row in _table(results["qos"]) if row[0] in chosen]
    limits += [(f"qos {row[0]}", row[1], row[2]) for row in qualities]
    parts = [
        f"{name}: " + " ".join(filter(None, (wall and f"{wall} at most", resources)))
        for name, wall, resources in limits if wall or resources
    ]  # fmt: skip
    yield Finding(LOGIN, "accounting limits", "ok", "known", "; ".join(parts) or "none")


# ---- partitions and nodes


def _partition(
    name: str, settings: Mapping[str, str], options: Mapping[str, str], results: Results
) -> Iterator[Finding]:
    where = f"partition {name}"
    state = settings.get("State", "")
    hint = "choose another partition, or ask the administrator"
    yield check_finding(where, "state", state == "UP", "UP", state, hint)
    for key, option in (("AllowAccounts", "account"), ("AllowQos", "qos")):
        allowed, given = settings.get(key, "ALL"), options.get(option, "")
        if given and allowed != "ALL":
            is_good = given in allowed.split(",")
            yield check_finding(
                where, option, is_good, f"one of {allowed}", given, f"set --{option}"
            )
    longest = settings.get("MaxTime", "")
    found = f"{longest}, by default {settings.get('DefaultTime', 'NONE')}"
    most = settings.get("MaxNodes", "")
    found += f", on up to {most} nodes" if most.isdigit() else ""
    is_long = longest in _UNLIMITED or seconds(longest) >= SHORTEST_S
    expected = f"at least {SHORTEST_S // 60} minutes"
    hint = "choose a partition with a longer time limit"
    yield check_finding(where, "time limit", is_long, expected, found, hint, "warning")
    rows = [row for row in _nodes(results) if row[0] == name]
    usable = sum(_is_usable(row[2]) for row in rows)
    count = Counter(row[2] for row in rows)
    found = f"{usable} of {len(rows)} usable"
    if rows:
        found += " (" + ", ".join(f"{number} {state}" for state, number in count.items()) + ")"
    is_good = bool(rows) and usable == len(rows)
    status: Status = "warning" if usable else "failed"
    yield check_finding(where, "nodes", is_good, "all usable", found, "see the nodes below", status)
    kinds = Counter(re.sub(r"\(S:.*?\)|\(IDX:.*?\)", "", row[3]) for row in rows)
    found = "; ".join(
        f"{'none' if gres == '(null)' else gres} on {counted(number, 'node')}"
        for gres, number in kinds.items()
    )
    found, is_good = found or "no nodes", len(kinds) <= 1
    yield check_finding(where, "gres", is_good, SAME, found, OF_ONE_KIND, "warning")


def seconds(text: str) -> float:
    """A time of Slurm: `30:00`, `02:00:00`, `1-00:00:00`, `1-0`, or minutes."""
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":") if part.isdigit()]
    if dash:
        hours, minutes, left = (*parts, 0, 0, 0)[:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + left
    hours, minutes, left = (0, *parts, 0)[:3] if len(parts) < 3 else parts[:3]
    return hours * 3600 + minutes * 60 + left


def _is_usable(state: str) -> bool:
    """`idle~` saves power and `mixed#` boots, but `idle*` does not answer."""
    return state.rstrip("~#!%") in _USABLE


def _unusable(results: Results, partition: str) -> Iterator[Finding]:
    rows = [row for row in _nodes(results) if partition in ("", row[0]) and not _is_usable(row[2])]
    # A node may be in several partitions.
    for _, node, state, _, user, since, reason in {row[1]: row for row in rows}.values():
        told_state = f"{state[:-1]}, not responding" if state.endswith("*") else state
        why = "" if reason == "none" else f": {reason} ({user}, {since})"
        hint = f"scontrol show node {node} says more; the administrator can resume it"
        yield Finding(node, "state", "warning", "usable", f"{told_state}{why}", hint)


ANSWER_S = 60.0
PROBE_S = 180.0
# A shared file system may show what a node wrote only after a while.
LAG_S = 20.0


def examine_cluster(name: str, options: Mapping[str, str], folder: Path) -> list[Finding]:
    """The findings for a login node and the scheduler's nodes. `options`: those of its jobs.
    `folder`: where campaigns would be; a short job on the idle nodes tests whether they share it.
    """
    if scheduler(name).name != "slurm":
        problem = f"the doctor cannot check the scheduler {name!r}"
        raise UserError(problem, where="--scheduler", expected="slurm")
    program = COMMANDS["nodes"][0]
    if not shutil.which(program):
        raise UserError(
            f"{program} not found",
            where="--scheduler",
            expected="a login node of the scheduler",
            hint="log in to one, or load its module",
        )
    results = {
        key: output_of([word.replace("@user@", getpass.getuser()) for word in argv], ANSWER_S)
        for key, argv in COMMANDS.items()
    }
    partition = partition_of(results, options)
    # Only Slurm knows how many idle nodes have the features or are in the reservation.
    is_narrow = any(options.get(name) for name in ("constraint", "reservation"))
    idle = 1 if is_narrow else idle_nodes(results, partition)
    return findings(results, options, _probe(results, options, idle, folder) if idle else None)


def _probe(results: Results, options: Mapping[str, str], nodes: int, folder: Path) -> Probe:
    token = secrets.token_hex(8)
    try:
        own_folder = Path(tempfile.mkdtemp(prefix=".dlperf-doctor-", dir=folder))
    except OSError as error:
        raise UserError(
            "cannot write into the current directory",
            where=str(folder),
            found=str(error),
            hint="start dlperf in a directory that all nodes share",
        ) from None
    try:
        write_whole(own_folder / "login", token + "\n")
        plugins = _setting(results, "PluginDir")
        argv = probe_argv(plugins, options, nodes, str(folder), own_folder.name, PATH)
        done = output_of(argv, PROBE_S)
        names = {line.split("|")[1] for line in done.output.splitlines() if "|written|" in line}
        deadline = time.monotonic() + LAG_S
        while True:
            wrote = frozenset(path.name.removeprefix("node.") for path in own_folder.glob("node.*"))
            if names <= wrote or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        can = has_pmix(done)
        pmix = output_of(pmix_argv(options, nodes), PROBE_S) if can else None
        return Probe(done, str(folder), token, wrote, pmix)
    finally:
        shutil.rmtree(own_folder, ignore_errors=True)


def output_of(argv: Sequence[str], seconds: float) -> CommandResult:
    """The output of a command on both streams. It gets TERM when its time is over: srun then ends
    its job."""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        return CommandResult(None, f"{argv[0]}: {error.strerror}")
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return CommandResult(None, f"{argv[0]}: no end after {seconds:g} s")
    return CommandResult(process.returncode, output)
