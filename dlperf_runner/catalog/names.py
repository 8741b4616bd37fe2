"""Words in the names of logs, as catalog/names.yml lists them: what a word says about a run."""

from __future__ import annotations

import functools
import re
from functools import cached_property

from .entry import CATALOG, load_entry
from .types import Entry, Name

SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32)


class Names(Entry):
    """The words by what they name. `frameworks`: the short names of each framework. `models`: the
    first part of the names of models. `sized_models`: those whose name goes on with a size, as
    vit-b16 and efficientnet-b4 do."""

    name: Name
    frameworks: dict[Name, tuple[Name, ...]]
    models: tuple[Name, ...]
    accelerators: tuple[Name, ...]
    precisions: tuple[Name, ...]
    sized_models: tuple[Name, ...]

    def of_framework(self, framework: str) -> tuple[str, ...]:
        """All words that name this framework."""
        return framework, *self.frameworks.get(framework, ())

    def framework_of(self, word: str) -> str | None:
        """The framework that a word names."""
        return next((f for f in self.frameworks if word in self.of_framework(f)), None)

    def has_size(self, model: str, word: str) -> bool:
        """True if a word like b16 is the size of a model rather than a batch size."""
        return model.split("-")[-1] in self.sized_models and int(word.lstrip("bs")) in SIZES

    def is_model(self, word: str) -> bool:
        """True if a word names a model: vgg, vgg16 or bert-large."""
        return self._of_models.fullmatch(word) is not None

    @cached_property
    def _of_models(self) -> re.Pattern[str]:
        return re.compile(rf"(?:{'|'.join(map(re.escape, self.models))})(?:[-.\dv].*)?")


@functools.cache
def names() -> Names:
    return load_entry(CATALOG / "names.yml", Names)
