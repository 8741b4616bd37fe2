"""Checks a cluster from a login node of its scheduler, as an ordinary user."""

from __future__ import annotations

import getpass
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.errors import UserError
from ..core.files import write_whole
from ..doctor import slurm, slurm_probe
from ..schedulers import scheduler
from ..schedulers.job import PATH
from .findings import Finding

ANSWER_S = 60.0
PROBE_S = 180.0
# A shared file system may show what a node wrote only after a while.
LAG_S = 20.0


def examine_cluster(name: str, options: Mapping[str, str], folder: Path) -> list[Finding]:
    """The findings for a login node and the scheduler's nodes. `options`: those of its jobs.
    `folder`: where campaigns would be; a short job on the idle nodes tests whether they share it.
    """
    if scheduler(name).name != "slurm":
        raise UserError(
            f"the doctor cannot check the scheduler {name!r}",
            where="--scheduler",
            expected="slurm",
        )
    program = slurm.COMMANDS["nodes"][0]
    if not shutil.which(program):
        raise UserError(
            f"{program} not found",
            where="--scheduler",
            expected="a login node of the scheduler",
            hint="log in to one, or load its module",
        )
    told = {
        key: output_of([word.replace("@user@", getpass.getuser()) for word in argv], ANSWER_S)
        for key, argv in slurm.COMMANDS.items()
    }
    partition = slurm.partition_of(told, options)
    # Only Slurm knows how many idle nodes have the features or are in the reservation.
    is_narrow = any(options.get(name) for name in ("constraint", "reservation"))
    idle = 1 if is_narrow else slurm.idle_nodes(told, partition)
    return slurm.findings(told, options, _probe(told, options, idle, folder) if idle else None)


def _probe(
    told: Mapping[str, slurm_probe.Said], options: Mapping[str, str], nodes: int, folder: Path
) -> slurm_probe.Probe:
    token = secrets.token_hex(8)
    try:
        own = Path(tempfile.mkdtemp(prefix=".dlperf-doctor-", dir=folder))
    except OSError as error:
        raise UserError(
            "cannot write into the current directory",
            where=str(folder),
            found=str(error),
            hint="start dlperf in a directory that all nodes share",
        ) from None
    try:
        write_whole(own / "login", token + "\n")
        done = output_of(
            slurm_probe.probe_argv(
                slurm.plugin_folder(told), options, nodes, str(folder), own.name, PATH
            ),
            PROBE_S,
        )
        names = {line.split("|")[1] for line in done.output.splitlines() if "|written|" in line}
        deadline = time.monotonic() + LAG_S
        while True:
            wrote = frozenset(path.name.removeprefix("node.") for path in own.glob("node.*"))
            if names <= wrote or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        can = slurm_probe.has_pmix(done)
        pmix = output_of(slurm_probe.pmix_argv(options, nodes), PROBE_S) if can else None
        return slurm_probe.Probe(done, str(folder), token, wrote, pmix)
    finally:
        shutil.rmtree(own, ignore_errors=True)


def output_of(argv: Sequence[str], seconds: float) -> slurm_probe.Said:
    """What a command prints on both streams. It gets TERM when its time is over: srun then ends its
    job."""
    try:
        process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace",
        )  # fmt: skip
    except OSError as error:
        return slurm_probe.Said(None, f"{argv[0]}: {error.strerror}")
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return slurm_probe.Said(None, f"{argv[0]}: no end after {seconds:g} s")
    return slurm_probe.Said(process.returncode, output)
