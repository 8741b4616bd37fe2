"""Which Pythons on nodes run the modules of a release of ansible-core: catalog/controllers.yml."""

from __future__ import annotations

from .entry import CATALOG, load_entry
from .suites import Number, numbers
from .types import Entry, Name


class Controller(Entry):
    """The oldest and newest Python 3 on nodes, and whether Python 2.7 will do as well."""

    oldest: Number
    newest: Number
    python2: bool = False

    def fits(self, version: str) -> bool:
        """Whether a node's Python runs the modules."""
        python = numbers(version)
        if python == (2, 7):
            return self.python2
        return numbers(self.oldest) <= python <= numbers(self.newest)

    def __str__(self) -> str:
        also = "2.7 or " if self.python2 else ""
        return f"{also}{self.oldest} to {self.newest}"


class Controllers(Entry):
    name: Name
    controllers: dict[Number, Controller]


CONTROLLERS = load_entry(CATALOG / "controllers.yml", Controllers).controllers


def controller(core: str) -> Controller | None:
    """The entry of a release of ansible-core, such as 2.19.14; None if it is unknown."""
    return CONTROLLERS.get(".".join(core.split(".")[:2]))
