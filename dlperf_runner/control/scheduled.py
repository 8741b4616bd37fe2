"""Plans campaigns for a scheduler's nodes, and runs them as its jobs."""

from __future__ import annotations

import functools
import os
import shutil
import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from ..campaign import directory as campaigns
from ..campaign import job_files, jobs, lock
from ..catalog.reader import load_catalog
from ..core.errors import UserError, lacks_nodes, unknown_name
from ..core.files import open_read, read_text, write_whole
from ..core.lists import shortened
from ..core.node import ENVIRONMENTS, JOB_ENGINES, Node
from ..core.paths import shipped
from ..plan import inventory
from ..plan.campaign_file import CampaignFile
from ..plan.choice import Choice
from ..plan.sources import PreparedSource, prepare_source
from ..schedulers import Allocation, Offer, Scheduler, here, scheduler
from ..schedulers.job import node_script, placeholder
from .campaigns import planned
from .rounds import (
    AS_PLANNED,
    RETRY,
    SHRINK,
    STOP,
    Execution,
    Policy,
    execute_campaign,
    refuse_others,
    run_rounds,
)

# Variables of an inventory that say nothing about a node that a scheduler chooses.
_NOT_HERE = ("dlperf_address", "dlperf_container_engine")
_ON_NODES = Path(__file__).parents[1] / "schedulers" / "on_nodes"
OF_ROLES = ("benchmark_source/files/versions.py", "openmpi/files/mpi_sum.py")
_AGENT = "run_agent"  # the package in module_utils


def read_site(path: Path | None) -> dict[str, Any]:
    """The variables of the nodes, from a YAML file. Raises UserError on an unknown one."""
    if path is None:
        return {}
    try:
        variables = yaml.safe_load(read_text(path)) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError("cannot read the site's file", where=str(path), found=str(error)) from None
    allowed = [name for name in inventory.VARIABLES if name not in _NOT_HERE]
    allowed += ["dlperf_datasets", "dlperf_environments", "dlperf_prologue", "dlperf_source_mirror"]
    if not isinstance(variables, dict) or (unknown := [n for n in variables if n not in allowed]):
        raise UserError(
            "the site's file has something else than the variables of nodes",
            where=f"--site {path}",
            expected=f"some of {', '.join(allowed)}",
            found=", ".join(map(str, unknown)) if isinstance(variables, dict) else "no mapping",
        )
    lines = variables.get("dlperf_prologue", [])
    if not isinstance(lines, list) or not all(isinstance(x, str) and "\n" not in x for x in lines):
        raise UserError(
            "dlperf_prologue is no list of commands",
            where=f"--site {path}",
            expected="dlperf_prologue: [module load cuda/12.4]",
            found=repr(lines),
        )
    return variables


def offers_of(
    name: str,
    options: Mapping[str, str],
    site: Mapping[str, Any],
    planned_nodes: int = 0,
    say: Callable[[str], None] = print,
) -> tuple[Offer, ...]:
    """The nodes of the partition. Where the scheduler's programs are not, a plan is made for
    `planned_nodes`, with the devices of the site's file."""
    target = here(name, os.environ)
    argv = target.offers_argv(options)
    if not planned_nodes or shutil.which(argv[0]):
        return _on_hosts(target, target.offers(job_files.output(argv), options), options)
    gpus = site.get("dlperf_devices_per_node")
    if not isinstance(gpus, int):
        raise UserError(
            f"{argv[0]} is not on this machine, so nothing says how many devices a node has",
            where="--site",
            expected="dlperf_devices_per_node: 8 in the site's file; or a login node",
        )
    say(f"{argv[0]} is not on this machine: planned for {planned_nodes} nodes with {gpus} devices")
    return (Offer(planned_nodes, gpus),)


def _on_hosts(
    target: Scheduler, offers: tuple[Offer, ...], options: Mapping[str, str]
) -> tuple[Offer, ...]:
    """The offers to a user who names nodes. Raises UserError if one of them is not there."""
    names = [offer.name for offer in offers if offer.name]
    if not (text := options.get("nodelist")) or not target.hosts_argv or not names:
        return offers
    hosts = job_files.output(target.hosts_argv(text)).split()
    is_given = target.steps is None
    if unknown := [host for host in hosts if host not in names]:
        place = f"the {'allocation' if is_given else 'partition'}"
        raise lacks_nodes(place, names, ", ".join(unknown), "--nodelist")
    return tuple(offer for offer in offers if offer.name in hosts) if is_given else offers


def nodes_of(offers: Sequence[Offer], site: Mapping[str, Any]) -> tuple[Node, ...]:
    """A node for each node of the partition. The scheduler will choose which ones they are."""
    of_nodes = (*inventory.VARIABLES, "dlperf_datasets")
    given = {key: value for key, value in site.items() if key in of_nodes}
    hosts = {
        placeholder(number): ({"dlperf_devices_per_node": gpus} if gpus else {}) | given
        for number, gpus in enumerate((o.gpus for o in offers for _ in range(o.nodes)), start=1)
    }
    try:
        nodes = inventory.nodes_of({"nodes": {"hosts": list(hosts)}, "_meta": {"hostvars": hosts}})
        return tuple(replace(node, container_engine=_engine_here()) for node in nodes)
    except UserError as error:
        if error.where == f"host {placeholder(1)}":
            error.where, error.hint = "--site", "set it in the file that --site names"
        raise


def _engine_here() -> str:
    """The container engine that is found on this machine; empty if there is none."""
    for name in JOB_ENGINES:
        program = "srun" if name == "enroot" else name  # enroot needs Slurm's plugin pyxis
        if shutil.which(program) and (
            name != "enroot" or "--container-image" in job_files.output(["srun", "--help"])
        ):
            return name
    return ""


def settings_of(
    name: str,
    options: Mapping[str, str],
    site: Mapping[str, Any],
    nodes: Sequence[Node],
    allocation: str,
    max_wait_s: int,
    offers: Sequence[Offer],
) -> job_files.SchedulerSettings:
    if allocation not in job_files.ALLOCATIONS:
        raise unknown_name("allocation", allocation, job_files.ALLOCATIONS, "--allocation")
    target = here(name, os.environ)
    without_effect = [*(name for name in options if name != "nodelist"), "max-wait"]
    if target.steps is None and target.given and (without_effect[1:] or max_wait_s):
        raise UserError(
            "this option has no effect within an allocation",
            where=f"--{without_effect[0]}",
            found=f"{target.given}={os.environ[target.given]}",
        )
    return job_files.SchedulerSettings(
        scheduler=name,
        options=dict(options),
        environments=str(site.get("dlperf_environments") or ENVIRONMENTS),
        mirror=str(site.get("dlperf_source_mirror") or ""),
        mpirun=nodes[0].mpirun,
        has_gpus=nodes[0].accelerator != "cpu" and all(offer.gpus for offer in offers),
        # Where there is one, all runs use it, one after another.
        allocation="campaign" if target.steps is None and target.given else allocation,
        max_wait_s=max_wait_s,
        prologue=site.get("dlperf_prologue", []),
    )


def in_order_of_jobs(
    choice: Choice, settings: job_files.SchedulerSettings, is_given: bool
) -> Choice:
    """The choice with the order in which the jobs do the runs. Raises UserError if the user gave
    another one (`is_given`)."""
    if settings.allocation != "case" or choice.order == "grouped":
        return choice
    if is_given:
        raise UserError(
            "a job for each case does all runs of the case before the next case",
            where="--order",
            expected="grouped",
            found=choice.order,
            hint="omit --order, or choose --allocation campaign or run",
        )
    return replace(choice, order="grouped")


def scripts(
    directory: Path, settings: job_files.SchedulerSettings, runs: Sequence[Mapping[str, Any]]
) -> dict[str, str]:
    """All scripts of the jobs that would be submitted, by path."""
    texts: dict[str, str] = {}
    for number, of_job in enumerate(job_files.allocations(runs, settings.allocation), start=1):
        place = directory / "jobs" / str(number)
        before = f"@job{number - 1}@" if number > 1 else ""
        request = job_files.allocation_request(settings, f"dlperf-{number}", place, of_job, before)
        files = job_files.scripts(directory, settings, request, of_job)
        texts |= {str(path): text for path, text in files.items()}
    return texts


def create(
    directory: Path,
    choice: Choice,
    nodes: Sequence[Node],
    settings: job_files.SchedulerSettings,
    say: Callable[[str], None],
    file: CampaignFile | None = None,
) -> None:
    """Write a new campaign for a scheduler. Its directory must be one that the nodes see, too."""
    campaigns.create_campaign(directory, *planned(choice, nodes, say), file=file)
    job_files.record(directory, settings)


def create_case(
    directory: Path,
    choice: Choice,
    nodes: Sequence[Node],
    settings: job_files.SchedulerSettings | None,
    say: Callable[[str], None],
    where: str,
) -> None:
    """Write a new campaign with one run, or leave the one that exists. Raises UserError if the
    choice has several cases, or if that campaign has other runs."""
    choice, nodes, runs = planned(replace(choice, repeats=1), nodes, say)
    if len(cases := list(dict.fromkeys(run.case for run in runs))) > 1:
        raise UserError(
            "the choice has several cases",
            where=where,
            expected="one: name workload, model, precision, batch-size, nodes, gpus-per-node",
            found=shortened(cases),
        )
    if directory.exists():
        refuse_others(directory, runs)
        return
    campaigns.create_campaign(directory, choice, nodes, runs)
    if settings:
        job_files.record(directory, settings)


def run(directory: Path, say: Callable[[str], None], policy: Policy = AS_PLANNED) -> list[str]:
    """Run the unfinished runs of a campaign as jobs. Returns what went wrong outside the runs."""
    stop_at = policy.stop_at()
    prepare = functools.cache(functools.partial(_prepared, directory))

    def further_files(request: Allocation, runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        return _node_files(directory, request, runs, prepare)

    def execute() -> list[str]:
        return jobs.execute(directory, further_files, say, stop_at)

    write_programs(Path(job_files.places_of(directory, _settings(directory)).programs))
    problems = execute() if job_files.unfinished(directory) else []
    return problems + run_rounds(directory, execute, say, policy, stop_at)


def execute(directory: Path, place: Execution) -> list[str]:
    """Run the unfinished runs of a campaign: with bench.yml, or as jobs if it is a scheduler's."""
    if not job_files.read_settings(directory):
        return execute_campaign(directory, place)
    with lock.held(directory):
        return run(directory, place.say)


def refuse_policy(policy: Policy) -> None:
    """Raise UserError if a campaign of jobs cannot follow the policy."""
    if policy.on_node_loss == SHRINK:
        raise UserError(
            "a scheduler's jobs have no nodes of their own that could be removed from the plan",
            where=f"--on-node-loss {SHRINK}",
            expected=f"{RETRY}: the scheduler chooses other nodes; or {STOP}",
        )


def write_programs(place: Path) -> None:
    """Write what runs on nodes: the programs of jobs, and the node agent that they share with runs
    by SSH."""
    agent = shipped() / "module_utils" / _AGENT
    for path in [*_ON_NODES.glob("*.py"), *(shipped() / "roles" / name for name in OF_ROLES)]:
        write_whole(place / path.name, read_text(path))
    for path in agent.glob("*.py"):
        write_whole(place / _AGENT / path.name, read_text(path))


def _settings(directory: Path) -> job_files.SchedulerSettings:
    settings = job_files.read_settings(directory)
    assert settings is not None  # noqa: S101  the campaign is a scheduler's
    return settings


def _prepared(directory: Path, workload: str, source: str, environment: str) -> PreparedSource:
    settings = _settings(directory)
    made = prepare_source(
        load_catalog(), workload, source, settings.mirror or None, environment=environment
    )
    _unpack(made, Path(job_files.places_of(directory, settings).sources))
    return made


def _node_files(
    directory: Path,
    request: Allocation,
    runs: Sequence[Mapping[str, Any]],
    prepare: Callable[[str, str, str], PreparedSource],
) -> dict[str, str]:
    """Further files of a job, by name: what each of its nodes executes first."""
    settings = _settings(directory)
    kinds = dict.fromkeys((r["workload"], r["source"], r["environment"]) for r in runs)
    commands = [(each.argv, each.creates) for kind in kinds for each in prepare(*kind).prepare]
    target, places = scheduler(settings.scheduler), job_files.places_of(directory, settings)
    text = node_script(target, request, runs, settings.mpirun, commands, places)
    return {"node.sh": text}


def _unpack(made: PreparedSource, sources: Path) -> None:
    """Unpack a source where the nodes see it, once for each of its contents."""
    target = sources / Path(made.directory).name
    marker = target / ".digest"
    if marker.is_file() and read_text(marker) == made.digest:
        return
    new = target.with_name(f".{os.urandom(8).hex()}")  # what lies at the target may be links
    write_whole(new / marker.name, made.digest)
    with open_read(made.path) as file, tarfile.open(fileobj=file) as tar:
        tar.extractall(new)  # noqa: S202  this program made the tar
    with suppress(FileNotFoundError):
        shutil.rmtree(target)
    new.rename(target)
