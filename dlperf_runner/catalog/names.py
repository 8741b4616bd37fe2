"""Words in the names of logs, as catalog/names.yml lists them: what a word says about a run."""

from __future__ import annotations

import functools
import re

from .entry import CATALOG, load_entry
from .types import Entry, Name


class Names(Entry):
    """The words by what they name. `frameworks`: the short names of each framework. `models`: the
    first part of the names of models."""

    name: Name
    frameworks: dict[Name, tuple[Name, ...]]
    models: tuple[Name, ...]
    accelerators: tuple[Name, ...]
    precisions: tuple[Name, ...]

    def of_framework(self, framework: str) -> tuple[str, ...]:
        """All words that name this framework."""
        return framework, *self.frameworks.get(framework, ())

    def framework_of(self, word: str) -> str | None:
        """The framework that a word names."""
        return next((f for f in self.frameworks if word in self.of_framework(f)), None)

    def is_model(self, word: str) -> bool:
        """Whether a word names a model: vgg, vgg16 or bert-large."""
        return any(re.fullmatch(rf"{re.escape(m)}([-.\dv].*)?", word) for m in self.models)


@functools.cache
def names() -> Names:
    return load_entry(CATALOG / "names.yml", Names)
