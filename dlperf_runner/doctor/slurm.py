"""Check a login node of Slurm: what its commands printed in, findings out, no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..core.lists import counted
from .findings import Finding, judged

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
OPTIONS = ("partition", "account", "qos", "reservation", "constraint")
OLDEST = (21, 8)
SHORTEST_S = 600  # of a time limit
ENGINES = ("apptainer", "singularity", "enroot", "podman")
WAIT_S = 30  # for idle nodes
LOGIN = "login node"
_USABLE = {"idle", "mixed", "allocated", "completing", "planned", "reserved"}
_UNLIMITED = ("UNLIMITED", "INFINITE", "")

# Runs on each node. Its arguments: the folder, the probe's own folder in it, search path, engines.
_PROBE = r"""
folder=$1 own=$2 name=${SLURMD_NODENAME:?}
export PATH=$3
say() { printf 'dlperf|%s|%s|%s\n' "$name" "$1" "$2"; }
say read "$(cat "$folder/$own/login" 2>&1 | head -n 1)"
say written "$( (echo "$name" > "$folder/$own/node.$name") 2>&1 | head -n 1)"
for engine in $4; do
  command -v "$engine" > /dev/null || continue
  flag=--version
  [[ $engine != enroot ]] || flag=version
  say "$engine" "$(timeout 20 "$engine" "$flag" 2> /dev/null | head -n 1)"
done
exit 0
"""


@dataclass(frozen=True)
class Said:
    """What a command printed. `status` is None if it is missing or did not end in time; `output`
    then says so."""

    status: int | None
    output: str


@dataclass(frozen=True)
class Probe:
    """What the job on the nodes printed, and which nodes wrote into the folder, seen from here."""

    said: Said
    folder: str
    token: str
    wrote: frozenset[str]


def probe_argv(
    options: Mapping[str, str], nodes: int, folder: str, own: str, path: str
) -> tuple[str, ...]:
    """The srun command that runs the probe once on each of up to `nodes` idle nodes."""
    chosen = [f"--{name}={options[name]}" for name in OPTIONS if options.get(name)]
    return (
        *("srun", *chosen, f"--nodes=1-{nodes}", "--ntasks-per-node=1"),
        *("--time=2", "--mem=500", "--quiet"),
        *(f"--immediate={WAIT_S}", "--chdir=/", "--mpi=none", "--export=NIL"),
        *("--job-name=dlperf-doctor", "/bin/bash", "-c", _PROBE, "probe"),
        *(folder, own, path, " ".join(ENGINES)),
    )


def partition_of(told: Mapping[str, Said], options: Mapping[str, str]) -> str:
    """The chosen partition, or the default one; empty if there is none."""
    return options.get("partition") or next(
        (name for name, own in _partitions(told).items() if own.get("Default") == "YES"), ""
    )


def idle_nodes(told: Mapping[str, Said], partition: str) -> int:
    """On how many nodes of the partition a job could start now."""
    own = _partitions(told).get(partition, {})
    idle = sum(row[0] == partition and row[2] == "idle" for row in _nodes(told))
    limit = own.get("MaxNodes", "")
    return min(idle, int(limit)) if limit.isdigit() else idle


def findings(
    told: Mapping[str, Said], options: Mapping[str, str], probe: Probe | None
) -> list[Finding]:
    """The findings for the login node, each partition or the chosen one, and each node that cannot
    be used or took part in the probe. `told` has what each of COMMANDS printed, by name."""
    asked = [told[name] for name in ("config", "partitions", "nodes")]
    if silent := [" ".join(said.output.split()) for said in asked if said.status != 0]:
        hint = "check the network to the controller, or ask the administrator"
        return [Finding(LOGIN, "controller", "failed", "answers", silent[0], hint)]
    partitions, chosen = _partitions(told), partition_of(told, options)
    found = [_version(told), _partition_exists(chosen, partitions)]
    found += [_mpi(told), *_accounting(told, options)]
    for name in [chosen] if options.get("partition") else partitions:
        if name in partitions:
            found += _partition(name, partitions[name], options, told)
    found += _unusable(told, options.get("partition", ""))
    return found + _on_nodes(told, chosen, probe)


# ---- what the commands printed


def _partitions(told: Mapping[str, Said]) -> dict[str, dict[str, str]]:
    """`PartitionName=main AllowGroups=ALL ... Default=YES ... MaxNodes=UNLIMITED ...`"""
    rows = (
        dict(word.split("=", 1) for word in line.split() if "=" in word)
        for line in told["partitions"].output.splitlines()
    )
    return {row["PartitionName"]: row for row in rows if "PartitionName" in row}


def _nodes(told: Mapping[str, Said]) -> list[tuple[str, ...]]:
    """Partition, node, state, GRES, who gave the reason, when, and the reason.

    main*|node2|drained|gpu:h100:8(S:0-1)|root|2026-11-22T21:03:20|ECC errors
    """
    lines = told["nodes"].output.splitlines()
    rows = (line.split("|", 6) for line in lines if line.count("|") >= 6)
    return [(row[0].rstrip("*"), *row[1:]) for row in rows]


def _setting(told: Mapping[str, Said], name: str) -> str:
    """A line of `scontrol show config`: `AccountingStorageType   = accounting_storage/slurmdbd`."""
    found = re.search(rf"^{name}\s*= (.*)$", told["config"].output, re.MULTILINE)
    return found[1].strip() if found else ""


def _table(said: Said) -> list[list[str]]:
    return [line.split("|") for line in said.output.splitlines()] if said.status == 0 else []


# ---- the login node


def _version(told: Mapping[str, Said]) -> Finding:
    text = _setting(told, "SLURM_VERSION")
    known = tuple(int(part) for part in re.findall(r"\d+", text))[:2]
    oldest = ".".join(f"{part:02}" for part in OLDEST)
    hint = "run this command on a login node of a newer Slurm"
    is_good = known >= OLDEST if known else None
    return judged(LOGIN, "slurm", is_good, f"{oldest} or newer", text or None, hint)


def _partition_exists(chosen: str, partitions: Mapping[str, object]) -> Finding:
    expected = "one of " + ", ".join(partitions)
    hint = "name a partition with --partition"
    return judged(LOGIN, "partition", chosen in partitions, expected, chosen or "no default", hint)


def _mpi(told: Mapping[str, Said]) -> Finding:
    """srun names its plugins on standard error, PMIx with its versions in a line of its own."""
    names = re.findall(r"^\s+(\w+)$", told["mpi"].output, re.MULTILINE)
    names += re.findall(r"pmix_v\d+", told["mpi"].output)
    found = ", ".join(dict.fromkeys(names)) or None
    hint = "no MPI plugin is needed: mpirun starts its own daemons"
    return judged(LOGIN, "mpi plugins", True if found else None, "known", found, hint)


def _accounting(told: Mapping[str, Said], options: Mapping[str, str]) -> Iterator[Finding]:
    """The user's accounts and qualities of service, if Slurm has accounting."""
    if _setting(told, "AccountingStorageType") != "accounting_storage/slurmdbd":
        yield Finding(LOGIN, "accounting", "ok", "sacct, or none", "none; it is not needed")
        return
    if told["associations"].status != 0:
        found = told["associations"].output.strip() or "nothing"
        hint = "the database may be down; jobs still run, unless Slurm checks accounts"
        yield Finding(LOGIN, "accounting", "warning", "sacctmgr answers", found, hint)
        return
    cluster = _setting(told, "ClusterName")
    rows = [row for row in _table(told["associations"]) if row[0] == cluster]
    is_enforced = "associations" in _setting(told, "AccountingStorageEnforce")
    names = ", ".join(dict.fromkeys(row[1] for row in rows))
    account = options.get("account", "")
    own = [row for row in rows if account in ("", row[1])]
    expected = f"account {account}" if account else "an account"
    yield judged(
        LOGIN, "account", bool(own), expected, names or "none",
        "ask the administrator for an account, or name another one with --account",
        "failed" if is_enforced or account else "warning",
    )  # fmt: skip
    wanted = options.get("qos", "")
    usable = list(dict.fromkeys(name for row in own for name in row[3].split(",") if name))
    if wanted:
        yield judged(
            LOGIN, "qos", wanted in usable, wanted, ", ".join(usable) or "none",
            "name another quality of service with --qos",
        )  # fmt: skip
    limits = [(f"account {row[1]}", row[4], row[5]) for row in own]
    limits += [
        (f"qos {row[0]}", row[1], row[2]) for row in _table(told["qos"])
        if row[0] in ([wanted] if wanted else usable)
    ]  # fmt: skip
    parts = [
        f"{name}: " + " ".join(filter(None, (wall and f"{wall} at most", resources)))
        for name, wall, resources in limits if wall or resources
    ]  # fmt: skip
    yield Finding(LOGIN, "accounting limits", "ok", "known", "; ".join(parts) or "none")


# ---- partitions and nodes


def _partition(
    name: str, own: Mapping[str, str], options: Mapping[str, str], told: Mapping[str, Said]
) -> Iterator[Finding]:
    where = f"partition {name}"
    state = own.get("State", "")
    hint = "choose another partition, or ask the administrator"
    yield judged(where, "state", state == "UP", "UP", state, hint)
    for key, option in (("AllowAccounts", "account"), ("AllowQos", "qos")):
        allowed, given = own.get(key, "ALL"), options.get(option, "")
        if given and allowed != "ALL":
            is_good = given in allowed.split(",")
            yield judged(where, option, is_good, f"one of {allowed}", given, f"set --{option}")
    longest = own.get("MaxTime", "")
    found = f"{longest}, by default {own.get('DefaultTime', 'NONE')}"
    found += f", on up to {own['MaxNodes']} nodes" if own.get("MaxNodes", "").isdigit() else ""
    is_long = longest in _UNLIMITED or seconds(longest) >= SHORTEST_S
    expected = f"at least {SHORTEST_S // 60} minutes"
    hint = "choose a partition with a longer time limit"
    yield judged(where, "time limit", is_long, expected, found, hint, "warning")
    rows = [row for row in _nodes(told) if row[0] == name]
    usable = sum(_is_usable(row[2]) for row in rows)
    count = Counter(row[2] for row in rows)
    found = f"{usable} of {len(rows)} usable"
    if rows:
        found += " (" + ", ".join(f"{number} {state}" for state, number in count.items()) + ")"
    yield judged(
        where, "nodes", bool(rows) and usable == len(rows), "all usable", found,
        "see the nodes below", "warning" if usable else "failed",
    )  # fmt: skip
    kinds = Counter(re.sub(r"\(S:.*?\)|\(IDX:.*?\)", "", row[3]) for row in rows)
    found = "; ".join(
        f"{'none' if gres == '(null)' else gres} on {counted(number, 'node')}"
        for gres, number in kinds.items()
    )
    yield judged(
        where, "gres", len(kinds) <= 1, "the same on every node", found or "no nodes",
        "choose nodes of one kind with --constraint", "warning",
    )  # fmt: skip


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


def _unusable(told: Mapping[str, Said], partition: str) -> Iterator[Finding]:
    rows = [row for row in _nodes(told) if partition in ("", row[0]) and not _is_usable(row[2])]
    # A node may be in several partitions.
    for _, node, state, _, user, since, reason in {row[1]: row for row in rows}.values():
        why = "" if reason == "none" else f": {reason} ({user}, {since})"
        hint = f"scontrol show node {node} says more; the administrator can resume it"
        yield Finding(node, "state", "warning", "usable", f"{state}{why}", hint)


# ---- what the job on the nodes found


def _on_nodes(told: Mapping[str, Said], partition: str, probe: Probe | None) -> Iterator[Finding]:
    where = f"partition {partition}"
    if probe is None:
        hint = "run the doctor again when a node is idle, or with another --partition"
        found = "no idle node"
        yield Finding(where, "test job", "warning", "runs on the idle nodes", found, hint)
        return
    facts: dict[str, dict[str, str]] = {}
    for line in probe.said.output.splitlines():
        mark, _, rest = line.partition("|")
        if mark == "dlperf" and rest.count("|") >= 2:
            node, key, value = rest.split("|", 2)
            facts.setdefault(node, {})[key] = value
    if probe.said.status != 0 or not facts:
        others = [x for x in probe.said.output.splitlines() if not x.startswith("dlperf|")]
        is_busy = "Immediate" in probe.said.output
        hint = "another job took the nodes; run the doctor again" if is_busy else "see the message"
        found = "; ".join(others[-3:]) or f"exit status {probe.said.status}"
        status = "warning" if is_busy else "failed"
        yield judged(where, "test job", False, "runs", found, hint, status)
    else:
        yield Finding(where, "test job", "ok", "runs", f"on {counted(len(facts), 'node')}")
    for node, own in facts.items():
        yield from _folder(node, own, probe)
        yield _engines(node, own, "--container-image" in told["options"].output)
    kinds = {tuple((name, own.get(name)) for name in ENGINES) for own in facts.values()}
    if len(facts) > 1:
        yield judged(
            "", "container engines", len(kinds) == 1, "the same on every node",
            "the same" if len(kinds) == 1 else "different versions",
            "choose nodes of one kind with --constraint", "warning",
        )  # fmt: skip


def _folder(node: str, own: Mapping[str, str], probe: Probe) -> Iterator[Finding]:
    hint = "start dlperf in a directory that all nodes share, such as your home or scratch folder"
    expected = f"sees {probe.folder} as the login node does"
    found = "yes" if own.get("read") == probe.token else own.get("read") or "another content"
    yield judged(node, "shared folder", found == "yes", expected, found, hint)
    if found == "yes":
        is_there = node in probe.wrote
        told = own.get("written") or ("yes" if is_there else "the login node does not see the file")
        expected = f"can write into {probe.folder}"
        yield judged(node, "writes", is_there and told == "yes", expected, told, hint)


def _engines(node: str, own: Mapping[str, str], has_pyxis: bool) -> Finding:
    """`apptainer version 1.3.4`, `podman version 4.3.1`; enroot prints only `3.5.0`."""
    found = []
    for name in ENGINES:
        if name in own:
            version = re.search(r"\d[\w.+-]*", own[name])
            found.append(f"{name} {version[0] if version else '(does not start)'}")
    found += ["pyxis"] if has_pyxis else []
    return Finding(node, "container engines", "ok", "any or none", ", ".join(found) or "none")
