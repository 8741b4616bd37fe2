"""Plans campaigns, runs them, and says which runs are done."""

from __future__ import annotations

import json
import os
import pwd
import re
import secrets
import shlex
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign import directory as campaigns
from ..campaign import lock
from ..catalog.reader import load_catalog
from ..core.case import Run
from ..core.errors import UserError
from ..core.files import json_text
from ..core.node import Node
from ..core.paths import shipped
from ..plan import inventory
from ..plan.campaign_file import CampaignFile, located, of_variables
from ..plan.cases import not_planned
from ..plan.choice import Choice, choice_of_variables, choice_options, option_name, parse_wait
from ..plan.make import make_plan, plan_document

if TYPE_CHECKING:
    from ..catalog.workload import Workload


SEEDS = 10**9
# Prefixes of playbook variables that are not options of a campaign. Role names are also prefixes.
PREFIXES = ("ansible", "dlperf", "bench", "provision", "preflight")


def choice_of_playbook(
    variables: Mapping[str, Any], inventories: Sequence[str]
) -> tuple[Choice, CampaignFile | None]:
    """The choice in the extra variables of bench.yml, and the campaign file that says the same."""
    roles = (path.name for path in (shipped() / "roles").iterdir())
    choice = choice_of_variables(variables, (*PREFIXES, *roles))
    return choice, of_variables(variables, choice, inventories)


def plan_of_playbook(
    variables: Mapping[str, Any],
    inventories: Sequence[str] = (),
    limit: str = "",
    wait: str = "",
    campaign: str = "",
    resume: str = "",
) -> dict[str, Any]:
    """The document that bench.yml loops over. `plan`: the plan of a new campaign, or the remaining
    one of a resumed one, for the extra variables; `notes`, such as workloads that it leaves out;
    `lock`: the lock on the campaign's nodes."""
    notes: list[str] = []
    choice, file = choice_of_playbook(variables, inventories)
    refuse_rounds(choice, inventories, limit)
    where = ("" if resume else campaign, resume)
    document = plan(choice, inventories, limit, *where, wait, notes.append, variables, file)
    wait_s = document.get("wait_s", 0)
    holder = {
        "token": secrets.token_hex(20),
        "hosts": list(dict.fromkeys(host for run in document["runs"] for host in run["hosts"])),
        "owner": pwd.getpwuid(os.getuid()).pw_name,
        "host": socket.gethostname(),
        "wait_s": wait_s,
        "deadline": int(time.time()) + wait_s,
    }
    return {"plan": json.loads(json_text(document)), "notes": notes, "lock": holder}


def plan(
    choice: Choice,
    inventories: Sequence[str] = (),
    limit: str = "",
    campaign: str = "",
    resume: str = "",
    wait: str = "",
    say: Callable[[str], None] = print,
    extra: Mapping[str, Any] | None = None,
    file: CampaignFile | None = None,
) -> dict[str, Any]:
    """The plan document: of a new campaign in the directory `campaign`, of the unfinished runs of
    the campaign `resume`, or, with neither, of runs for which nothing is written. `say` gets
    warnings. `extra`: variables that take precedence over the inventory's. `file`: where the choice
    is from."""
    wait_s = parse_wait(wait)
    if resume:
        campaigns.read_campaign(Path(resume))
        if _lock_for_playbook(Path(resume)):
            campaigns.record_rest(Path(resume))
        document = campaigns.remaining_plan(Path(resume))
    else:
        with located(file):
            nodes = _read_nodes(inventories, limit, extra)
            parts = planned(choice, nodes, say)
        if campaign:
            document = campaigns.create_campaign(Path(campaign), *parts, file=file)
            _lock_for_playbook(Path(campaign))
        else:
            document = plan_document(*parts)
    if directory := resume or campaign:
        document |= {"campaign": str(Path(directory).resolve()), "wait_s": wait_s}
    return document


def retry_failed_runs(directory: Path) -> None:
    """Plan the failed runs of a campaign again."""
    for record in campaigns.read_records(directory):
        if campaigns.is_failed(record):
            campaigns.retry(directory, record)


def prepare(
    choice: Choice,
    inventories: Sequence[str],
    limit: str,
    wait: str,
    say: Callable[[str], None],
    campaign: str = "",
    resume: str = "",
    file: CampaignFile | None = None,
) -> Path:
    """Create a new campaign, unless `resume` names one. Returns its directory. `say` gets
    warnings. `file`: where the choice is from."""
    directory = Path(resume or campaign or campaigns.new_directory()).resolve()
    parse_wait(wait)
    if resume:
        campaigns.read_campaign(directory)
    else:
        with located(file):
            nodes = _read_nodes(inventories, limit, connects=True)
            parts = planned(choice, nodes, say)
        campaigns.create_campaign(directory, *parts, file=file)
    return directory


def _read_nodes(
    inventories: Sequence[str],
    limit: str,
    extra: Mapping[str, Any] | None = None,
    *,
    connects: bool = False,
) -> tuple[Node, ...]:
    """The nodes of the inventory. The catalogue loads while Ansible reads them, which takes it
    seconds with 1,000 nodes."""
    with ThreadPoolExecutor(1) as reader:
        nodes = reader.submit(
            inventory.read_inventory, inventories, limit or None, extra, connects=connects
        )
        load_catalog()
        return nodes.result()


def _lock_for_playbook(directory: Path) -> bool:
    """If bench.yml asks for the plan: lock the campaign until the playbook ends."""
    if playbook := int(os.environ.get("DLPERF_PLAYBOOK_PID") or 0):
        runner = int(os.environ.get("DLPERF_RUNNER_PID") or playbook)
        lock.acquire(directory, runner, playbook)
    return bool(playbook)


def planned(
    choice: Choice, nodes: Sequence[Node], say: Callable[[str], None]
) -> tuple[Choice, Sequence[Node], tuple[Run, ...]]:
    """Choice, nodes and runs. A random order without a seed gets a new one, for the plan to
    record."""
    if choice.order == "random" and choice.seed is None:
        choice = replace(choice, seed=secrets.randbelow(SEEDS))
    catalog = load_catalog()
    runs = make_plan(choice, catalog, nodes)
    names = {run.workload for run in runs}
    for name, why in not_planned(choice, catalog, nodes, names).items():
        say(f"not planned: {name}: {why}")
    for line in memory_warnings(runs, catalog.workloads):
        say(line)
    return choice, nodes, runs


def refuse_rounds(choice: Choice, inventories: Sequence[str], limit: str) -> None:
    """Raise UserError if bench.yml alone shall add repeats: a playbook cannot loop over rounds."""
    if choice.until_ci is None:
        return
    options = [f"{option_name(name)}={text}" for name, text in choice_options(choice).items()]
    options += [f"--parameter={name}={text}" for name, text in choice.parameters.items()]
    options += [f"--inventory={path}" for path in inventories]
    options += [f"--limit={limit}"] if limit else []
    raise UserError(
        "bench.yml alone cannot add repeats",
        where=f"-e until_ci={choice.until_ci}",
        hint=f"`dlperf run` does: {shlex.join(['dlperf', 'run', *options])}",
    )


_MEMORY = re.compile(r"(\d+) ?G[Bi]", re.ASCII)


def memory_warnings(runs: Iterable[Run], workloads: Mapping[str, Workload]) -> list[str]:
    """A line for each batch that was published on GPUs with more memory than those of its runs.
    The memory of a GPU is that in its name."""
    lines: dict[str, None] = {}
    for run in runs:
        memory = _MEMORY.search(run.accelerator)
        published = _published(run, workloads)
        if memory and published and int(memory[1]) < published:
            lines[
                f"warning: {run.workload} with batch {run.batch_size_per_device} in"
                f" {run.precision} was published on GPUs with {published} GB; on"
                f" {run.accelerator} it may end without memory (--batch-size takes another)"
            ] = None
    return list(lines)


def _published(run: Run, workloads: Mapping[str, Workload]) -> int | None:
    key = run.precision, run.batch_size_per_device
    workload = workloads[run.workload]
    sizes = (
        entry.published_gpu_memory_gb
        for matrix in workload.matrices.values()
        for entry in matrix.batches
        if (entry.precision, entry.batch_size_per_device) == key
    )
    return next((memory for memory in sizes if memory), None)
