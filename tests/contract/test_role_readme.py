"""A role's README says its variables as its argument specs say them, and says more than them."""

from pathlib import Path

import pytest

from tools.role_readme import BEGIN, ROLES, readme


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_table_of_variables_is_that_of_the_argument_specs(role: Path) -> None:
    assert (role / "README.md").read_text() == readme(role), "run make docs"


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_there_is_a_text_by_hand(role: Path) -> None:
    text = (role / "README.md").read_text().partition(BEGIN)[0]
    assert len(text.split()) > 20
