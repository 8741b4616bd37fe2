"""Releases of Debian and Ubuntu, as catalog/suites.yml lists them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .reader import CATALOG, load_entry
from .types import Entry, Name

Number = Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")]


class Suite(Entry):
    """A release. `python` is the version of the interpreter that it ships."""

    distribution: Literal["debian", "ubuntu"]
    version: Number
    python: Number
    glibc: Number

    @property
    def system(self) -> str:
        """The name that the roles use, such as ubuntu18.04."""
        return self.distribution + self.version


class Suites(Entry):
    name: Name
    suites: dict[Name, Suite]


SUITES = load_entry(CATALOG / "suites.yml", Suites).suites
# The names that the roles use, by code name.
SYSTEMS = {name: suite.system for name, suite in SUITES.items()}
