"""A short job of Slurm on idle nodes, and what it finds: the shared folder, container engines and
PMIx."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..core.lists import counted
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
    pmix: Said | None = None


def probe_argv(
    plugins: str, options: Mapping[str, str], nodes: int, folder: str, own: str, path: str
) -> tuple[str, ...]:
    """The srun command that runs the probe once on each of `nodes` idle nodes. `plugins`: the
    folder of Slurm's plugins."""
    values = (folder, own, path, " ".join(ENGINES), plugins)
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


def has_pmix(said: Said) -> bool:
    """Whether each node of the probe has what PMIx needs, so that a test of it cannot hang."""
    own = [facts.get("pmix") for facts in _by_node(said).values()]
    return bool(own) and all(own)


# ---- what the job on the nodes found


def on_nodes(where: str, probe: Probe | None, has_pyxis: bool) -> Iterator[Finding]:
    """The findings of the job: `where` is the partition, `probe` None if no node was idle."""
    if probe is None:
        hint = "run the doctor again when a node is idle, or with another --partition"
        found = "no idle node"
        yield Finding(where, "test job", "warning", "runs on the idle nodes", found, hint)
        return
    facts = _by_node(probe.said)
    if probe.said.status != 0 or not facts:
        others = [x for x in probe.said.output.splitlines() if not x.startswith("dlperf|")]
        is_busy = "Immediate" in probe.said.output
        hint = "another job took the nodes; run the doctor again" if is_busy else "see the message"
        found = "; ".join(others[-3:]) or f"exit status {probe.said.status}"
        otherwise: Status = "warning" if is_busy else "failed"
        yield check_finding(where, "test job", False, "runs", found, hint, otherwise)
    else:
        yield Finding(where, "test job", "ok", "runs", f"on {counted(len(facts), 'node')}")
    yield from _pmix(where, probe)
    for node, own in facts.items():
        yield from _folder(node, own, probe)
        yield _engines(node, own, has_pyxis)
    kinds = {tuple((name, own.get(name)) for name in ENGINES) for own in facts.values()}
    if len(facts) > 1:
        is_good = len(kinds) == 1
        found = "the same" if is_good else "different versions"
        yield check_finding("", "container engines", is_good, SAME, found, OF_ONE_KIND, "warning")


def _by_node(said: Said) -> dict[str, dict[str, str]]:
    """`dlperf|node1|written|`: what each node found, among messages of srun."""
    facts: dict[str, dict[str, str]] = {}
    for line in said.output.splitlines():
        mark, _, rest = line.partition("|")
        if mark == "dlperf" and rest.count("|") >= 2:
            node, key, value = rest.split("|", 2)
            facts.setdefault(node, {})[key] = value
    return facts


def _pmix(where: str, probe: Probe) -> Iterator[Finding]:
    """PMIx, where Slurm has a plugin for it. Without it, jobs start MPI programs by mpirun."""
    own = _by_node(probe.said)
    if not any("pmix" in facts for facts in own.values()):
        return
    without = ", ".join(node for node, facts in own.items() if not facts.get("pmix"))
    hint = (
        "do not use srun --mpi=pmix: its steps would hang. The library is in libpmix-dev (Debian)"
    )
    if without:
        found = f"libpmix.so is missing on {without}"
        yield Finding(where, "pmix", "warning", "starts processes", found, hint)
    elif probe.pmix is not None:
        ranks = sorted(facts.get("rank", "") for facts in _by_node(probe.pmix).values())
        is_good = bool(ranks) and ranks == [str(number) for number in range(len(ranks))]
        said = probe.pmix.output.strip() or "nothing"
        found = f"yes, on {counted(len(ranks), 'node')}" if is_good else said
        hint = "do not use srun --mpi=pmix"
        yield check_finding(where, "pmix", is_good, "starts processes", found, hint, "warning")


def _folder(node: str, own: Mapping[str, str], probe: Probe) -> Iterator[Finding]:
    hint = "start dlperf in a directory that all nodes share, such as your home or scratch folder"
    expected = f"sees {probe.folder} as the login node does"
    found = "yes" if own.get("read") == probe.token else own.get("read") or "another content"
    yield check_finding(node, "shared folder", found == "yes", expected, found, hint)
    if found == "yes":
        is_there = node in probe.wrote
        told = own.get("written") or ("yes" if is_there else "the login node does not see the file")
        expected = f"can write into {probe.folder}"
        yield check_finding(node, "writes", is_there and told == "yes", expected, told, hint)


def _engines(node: str, own: Mapping[str, str], has_pyxis: bool) -> Finding:
    """`apptainer version 1.3.4`, `podman version 4.3.1`; enroot prints only `3.5.0`."""
    found = []
    for name in ENGINES:
        if name in own:
            version = re.search(r"\d[\w.+-]*", own[name])
            found.append(f"{name} {version[0] if version else '(does not start)'}")
    found += ["pyxis"] if has_pyxis else []
    return Finding(node, "container engines", "ok", "any or none", ", ".join(found) or "none")
