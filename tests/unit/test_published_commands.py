"""The plan of each reproduced report is the report's own command, but for declared differences."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from make_logs import ROOT
from upstream_sources import source_mirror

from dlperf_runner.catalog.publication import Reproduction
from dlperf_runner.catalog.published_numbers import reproduced_reports
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.case import Run
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan
from tools.reproducing_pages import (
    NODES,
    declared_differences,
    flags_of,
    pages,
    published_runs,
)

REPORTS = {report.name: report for report in reproduced_reports()}


def reproduction_of(name: str) -> Reproduction:
    reproduction = REPORTS[name].reproduction
    assert reproduction
    return reproduction


def published_matrix(workload: str) -> tuple[Run, ...]:
    runs = published_runs(workload, 1)
    if not any(run.container for run in runs):
        return runs
    # Without a digest of the image, it runs in the environment on the nodes.
    bare = [replace(node, container_images={}) for node in NODES]
    return (*runs, *published_runs(workload, 1, bare))


@pytest.mark.parametrize("name", REPORTS)
def test_the_plan_is_the_published_command_but_for_the_declared_differences(name: str) -> None:
    report, reproduction = REPORTS[name], reproduction_of(name)
    assert report.workload and report.logs
    workload = load_catalog().workload(report.workload)
    seen = []
    runs = published_matrix(workload.name)
    for run, gap, declared in declared_differences(reproduction, workload, runs):
        assert len(declared) == 1, f"{run.case}: {gap}"
        assert run.nodes > 1 or not declared[0].between_nodes
        seen += declared
    assert [each for each in reproduction.differences if each not in seen] == []


@pytest.mark.parametrize("name", REPORTS)
def test_the_pages_are_what_the_catalogue_and_the_plan_say(name: str) -> None:
    page = ROOT / "docs/reproducing" / f"{name}.md"
    again = "python -m tools.reproducing_pages docs/reproducing"
    assert page.read_text("utf-8") == pages()[page.name], f"{page.name} is old; {again}"
    assert f"reproducing/{page.name}" in (ROOT / "mkdocs.yml").read_text("utf-8")


@pytest.mark.parametrize("name", REPORTS)
def test_the_software_is_what_the_catalogue_installs(name: str) -> None:
    """Every version of a package among ours is the one in the requirements of the environment."""
    report, catalog = REPORTS[name], load_catalog()
    stack, framework = catalog.stacks["v100-cuda10.2"], catalog.framework(report.framework)
    assert stack.openmpi
    assert stack.python
    versions = {"openmpi": stack.openmpi.version, "python": stack.python.version}
    source = catalog.workload(report.workload or "").sources.upstream
    assert source
    own = framework.environment_name(stack.name, source.flavor)
    for environment in [framework.environments_on(stack.name)[own or ""]]:
        for lock in (environment.requirements, getattr(environment.horovod, "requirements", None)):
            text = (ROOT / lock).read_text("utf-8") if lock else ""
            versions |= dict(re.findall(r"^([\w.-]+)==([\w.+!-]+)", text, re.MULTILINE))
    checked = 0
    for software in reproduction_of(name).software:
        version = versions.get(software.item.lower())
        if version is not None and software.ours != "none":
            assert software.ours == version, software.item
            checked += 1
    assert checked > 0 or framework.name in ("tensorflow", "oneflow")


def test_flags_are_compared_whatever_their_spelling() -> None:
    theirs = "mpirun -np 2 -H a:2 -mca btl ^openib -x PATH -x A python3 t.py --lr=1 --rec --name="
    ours = "/opt/m/mpirun --host a:2 -np 2 --mca btl ^openib -x PATH -x A"
    ours += " /opt/e/bin/python s/t.py --rec --lr 1 --name"
    assert flags_of(theirs.split(), {"A": "1"}) == flags_of(ours.split(), {"A": "1"})
    assert ("launcher", "--x PATH") in flags_of(ours.split(), {"A": "1"})
    assert ("launcher", "--x A") not in flags_of(ours.split(), {"A": "1"})


@pytest.mark.parametrize("name", REPORTS)
def test_the_cited_scripts_hold_the_commands(name: str) -> None:
    mirror = source_mirror()
    for command in reproduction_of(name).commands:
        repository = Path(mirror) / command.repository.replace("/", "+") / "repo"
        if not repository.exists():
            pytest.skip(f"no mirror of {command.repository}")
        git = ("git", "-c", "safe.directory=*", "-C", str(repository), "show")
        shown = subprocess.run(
            [*git, f"{command.commit}:{command.script}"], capture_output=True, text=True, check=True
        )
        words = [*command.argv, *sum(command.on_precision.values(), ()), *command.environment]
        for word in words:
            # A value may be a variable of the script.
            flag = re.split(r"[={]", word)[0]
            assert flag in shown.stdout or not word.startswith("-"), word


@pytest.mark.parametrize("name", REPORTS)
def test_the_command_of_a_page_gives_a_verdict(name: str) -> None:
    """Fewer than 3 runs of a case have none. OneFlow and TensorFlow published one."""
    page = pages()[f"{name}.md"]
    command = re.search(r"^ {4}dlperf run (.*)$", page, re.MULTILINE)
    assert command
    words = re.findall(r"--(workload|source|matrix|repeats) (\S+)", command[1])
    runs = make_plan(parse_choice(dict(words)), load_catalog(), NODES)
    assert max(run.repeat for run in runs) >= 3
    assert f"Time: {len(runs)} runs" in page
