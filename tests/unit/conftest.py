"""What tests of several files start from."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest


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
