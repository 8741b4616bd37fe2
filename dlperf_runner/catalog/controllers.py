"""Which Pythons on nodes run the modules of a release of ansible-core: catalog/controllers.yml."""

from __future__ import annotations

from .entry import CATALOG, load_entry
from .suites import Number
from .types import Entry, Name


class Controller(Entry):
    oldest: Number
    newest: Number
    python2: bool = False


class Controllers(Entry):
    name: Name
    controllers: dict[Number, Controller]


CONTROLLERS = load_entry(CATALOG / "controllers.yml", Controllers).controllers
