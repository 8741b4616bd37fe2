"""Labs for tests, each with a directory of its own: a lab that a user has up is left alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab_under_test import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Two nodes, up for the whole session; whatever a test changes on them, later tests find."""
    made = Lab(tmp_path_factory.mktemp("session") / "lab")
    made.up(lab_nodes=2)
    yield made
    made.down()
