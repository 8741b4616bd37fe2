"""The published sources: their catalogue entries, plans and files."""

import os
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from dlperf_runner.catalog.reader import Catalog
from dlperf_runner.catalog.source import UpstreamSource
from dlperf_runner.core.case import Run
from dlperf_runner.core.node import Node
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan

SRC = "/opt/dlperf/src"
PYTHON = ("/opt/dlperf/envs/pytorch/bin/python", "-u")
MEETING = ("--master-addr=10.11.0.2", "--master-port=29500")


def source_mirror() -> str:
    """The directory of git mirrors. Without one, the test is skipped."""
    mirror = os.environ.get("DLPERF_SOURCE_MIRROR")
    if not mirror:
        pytest.skip("DLPERF_SOURCE_MIRROR names no directory of git mirrors")
    return mirror


def upstream(catalog: Catalog, workload: str) -> UpstreamSource:
    source = catalog.workload(workload).sources.upstream
    assert source
    return source


def plan(catalog: Catalog, on: tuple[Node, ...], *parameters: str, **options: Any) -> list[Run]:
    texts = {"source": "upstream", **{name: str(value) for name, value in options.items()}}
    return list(make_plan(parse_choice(texts, list(parameters)), catalog, on))


def added(catalog: Catalog, workload: str, name: str) -> dict[str, Any]:
    """What the stand-in defines."""
    (content,) = (
        file.content
        for file in upstream(catalog, workload).added_files
        if PurePosixPath(file.file).name == name
    )
    namespace: dict[str, Any] = {"__name__": name, "__file__": f"/source/{name}"}
    exec(content, namespace)  # noqa: S102  this project's own text
    return namespace


def texts_of(source: Path) -> dict[str, str]:
    """The Python and YAML files of a source's tar, by name."""
    with tarfile.open(source) as tar:
        members = [m for m in tar if m.isfile() and m.name.endswith((".py", ".yml"))]
        readers = {member.name: tar.extractfile(member) for member in members}
        return {name: reader.read().decode() for name, reader in readers.items() if reader}
