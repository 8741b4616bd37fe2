"""What tests of several files start from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("no-deadline", deadline=None)
hypothesis.settings.load_profile("no-deadline")

if TYPE_CHECKING:
    from dlperf_runner.catalog.reader import Catalog
    from dlperf_runner.commands.report import Report


@pytest.fixture(scope="session", autouse=True)
def _one_process_draws() -> Iterator[None]:
    """All pictures of the session, once one is wanted: a new process loads for a second."""
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(
            "dlperf_runner.report.charts.ProcessPoolExecutor", lambda *_, **__: nullcontext(pool)
        )
        yield


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, to which results of logs go."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    """The shipped catalogue."""
    from dlperf_runner.catalog.reader import load_catalog

    return load_catalog()


@pytest.fixture(scope="session")
def several(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of campaigns of three frameworks. Tests only read it."""
    from report_examples import mxnet_campaign, paddle_campaign, tensorflow_campaign

    from dlperf_runner.commands.report import make_report

    root = tmp_path_factory.mktemp("several")
    campaigns = [
        mxnet_campaign(root / "mxnet"),
        tensorflow_campaign(root / "tensorflow"),
        paddle_campaign(root / "paddle"),
    ]
    return make_report(campaigns, root / "report")


@pytest.fixture(scope="session")
def report_folder(several: Report) -> Path:
    return several.paths[0].parent


@pytest.fixture(scope="session")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A Chinese report of the campaign `mxnet`, which lies beside it. Tests only read both."""
    from report_examples import mxnet_campaign

    from dlperf_runner.commands.report import make_report

    root = tmp_path_factory.mktemp("chinese")
    return make_report([mxnet_campaign(root / "mxnet")], root / "report", "zh")


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results with one finished campaign. Tests read them; what they change is `campaign`."""
    from recorded_campaign import finished_campaign

    return finished_campaign(tmp_path_factory.mktemp("made") / "results")


@pytest.fixture
def campaign(finished: Path, tmp_path: Path) -> Path:
    """A copy: the manifest does not depend on where the campaign lies."""
    shutil.copytree(finished, tmp_path / "results")
    return tmp_path / "results" / "one"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's folder of the catalogue, which the environment names; the tests before have left
    nothing. Beside it, an inventory and a program to describe."""
    from own_workload import NODES, PROGRAM

    from dlperf_runner.catalog import reader

    monkeypatch.setenv("DLPERF_CATALOG", str(tmp_path / "catalog"))
    reader.forget()
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "hosts.json").write_text(json.dumps(NODES))
    yield tmp_path / "catalog"
    reader.forget()


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every inventory has the nodes of the lab."""
    from plan_examples import lab_nodes

    from dlperf_runner.plan import inventory

    monkeypatch.setattr(inventory, "read_inventory", lambda *_, **__: lab_nodes())


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The site file of a cluster with stand-ins for Slurm's commands."""
    from job_campaigns import make_site

    return make_site(tmp_path, monkeypatch)
