"""Check a login node of Slurm: what its commands printed in, findings out, no I/O."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping

from ..core.lists import counted
from .findings import Finding, Status, check_finding
from .slurm_probe import OF_ONE_KIND, SAME, Probe, Said, on_nodes

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
    has_pyxis = "--container-image" in told["options"].output
    if chosen not in partitions:
        return found
    return [*found, *on_nodes(f"partition {chosen}", probe, has_pyxis)]


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


def plugin_folder(told: Mapping[str, Said]) -> str:
    """Where Slurm has its plugins."""
    return _setting(told, "PluginDir")


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
    return check_finding(LOGIN, "slurm", is_good, f"{oldest} or newer", text or None, hint)


def _partition_exists(chosen: str, partitions: Mapping[str, object]) -> Finding:
    expected = "one of " + ", ".join(partitions)
    hint = "name a partition with --partition"
    return check_finding(
        LOGIN, "partition", chosen in partitions, expected, chosen or "no default", hint
    )


def _mpi(told: Mapping[str, Said]) -> Finding:
    """srun names its plugins on standard error, PMIx with its versions in a line of its own."""
    names = re.findall(r"^\s+(\w+)$", told["mpi"].output, re.MULTILINE)
    names += re.findall(r"pmix_v\d+", told["mpi"].output)
    found = ", ".join(dict.fromkeys(names)) or None
    hint = "no MPI plugin is needed: mpirun starts its own daemons"
    return check_finding(LOGIN, "mpi plugins", True if found else None, "known", found, hint)


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
    hint = "ask the administrator for an account, or name another one with --account"
    status: Status = "failed" if is_enforced or account else "warning"
    yield check_finding(LOGIN, "account", bool(own), expected, names or "none", hint, status)
    wanted = options.get("qos", "")
    usable = list(dict.fromkeys(name for row in own for name in row[3].split(",") if name))
    if wanted:
        found, hint = ", ".join(usable) or "none", "name another quality of service with --qos"
        yield check_finding(LOGIN, "qos", wanted in usable, wanted, found, hint)
    limits = [(f"account {row[1]}", row[4], row[5]) for row in own]
    known = [wanted] if wanted else usable
    qualities = [row for row in _table(told["qos"]) if row[0] in known]
    limits += [(f"qos {row[0]}", row[1], row[2]) for row in qualities]
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
    yield check_finding(where, "state", state == "UP", "UP", state, hint)
    for key, option in (("AllowAccounts", "account"), ("AllowQos", "qos")):
        allowed, given = own.get(key, "ALL"), options.get(option, "")
        if given and allowed != "ALL":
            is_good = given in allowed.split(",")
            yield check_finding(
                where, option, is_good, f"one of {allowed}", given, f"set --{option}"
            )
    longest = own.get("MaxTime", "")
    found = f"{longest}, by default {own.get('DefaultTime', 'NONE')}"
    found += f", on up to {own['MaxNodes']} nodes" if own.get("MaxNodes", "").isdigit() else ""
    is_long = longest in _UNLIMITED or seconds(longest) >= SHORTEST_S
    expected = f"at least {SHORTEST_S // 60} minutes"
    hint = "choose a partition with a longer time limit"
    yield check_finding(where, "time limit", is_long, expected, found, hint, "warning")
    rows = [row for row in _nodes(told) if row[0] == name]
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


def _unusable(told: Mapping[str, Said], partition: str) -> Iterator[Finding]:
    rows = [row for row in _nodes(told) if partition in ("", row[0]) and not _is_usable(row[2])]
    # A node may be in several partitions.
    for _, node, state, _, user, since, reason in {row[1]: row for row in rows}.values():
        told_state = f"{state[:-1]}, not responding" if state.endswith("*") else state
        why = "" if reason == "none" else f": {reason} ({user}, {since})"
        hint = f"scontrol show node {node} says more; the administrator can resume it"
        yield Finding(node, "state", "warning", "usable", f"{told_state}{why}", hint)
