"""The texts of a report in each language: labels/<language>.yml."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from ..catalog.entry import LOADER
from ..core.errors import unknown_name
from ..core.files import read_text

_DIRECTORY = Path(__file__).parent / "labels"
_BETWEEN = re.compile(r"(?<=\))[,;] (?=[^,;()]+ \()")
LANGUAGES = tuple(sorted(path.stem for path in _DIRECTORY.glob("*.yml")))


@dataclass(frozen=True)
class Labels:
    """The texts of a language; called with a key, it gives the text with its blanks filled."""

    language: str
    texts: dict[str, str]

    def __call__(self, key: str, /, **values: object) -> str:
        return self.texts[key].format(**values) if values else self.texts[key]

    def optional(self, key: str, default: str) -> str:
        """The text where there is one: of columns and verdicts, which others may add to."""
        return self.texts.get(key, default)

    def conditions(self, text: str | None) -> str | None:
        """`data (synthetic, real), XLA (unknown, yes)` in this language: names of conditions and
        plain words; what a log or a publication says is left as it is."""
        return None if text is None else _conditions(text, self.language)

    def place(self, nodes: int, devices: int) -> str:
        """The number of devices and nodes, in words."""
        if devices == 1:
            return self("on_one_device")
        return self("on_one_node" if nodes == 1 else "on_devices", nodes=nodes, devices=devices)


@cache
def _conditions(text: str, language: str) -> str:
    """Kept: many cases of a report are of the same conditions."""
    english, texts = load_labels("en").texts, load_labels(language).texts
    factors = {english[key]: texts[key] for key in english if key.startswith("factor_")}
    words = {english[key]: texts[key] for key in english if key.startswith("word_")}
    text = re.sub(
        rf"(?:^|(?<=, ))({_any(factors)})(?= \(|, |$)", lambda match: factors[match[1]], text
    )
    text = re.sub(rf"(?<= \()({_any(words)})(?=, )", lambda match: words[match[1]], text)
    text = re.sub(rf"(?<=, )({_any(words)})(?=\))", lambda match: words[match[1]], text)
    by = {f"({english[key]})": f"({texts[key]})" for key in english if key.startswith("source_")}
    return re.sub(_any(by), lambda match: by[match[0]], text)


def each_condition(text: str) -> list[str]:
    """The parts of `accelerator (V100, --condition), topology (the directory name)`."""
    return _BETWEEN.split(text) if text else []


def _any(names: Iterable[str]) -> str:
    return "|".join(map(re.escape, names))


@cache
def load_labels(language: str = "en") -> Labels:
    """The labels of a language; a UserError where there are none."""
    if language not in LANGUAGES:
        raise unknown_name("language", language, LANGUAGES, "--lang")
    path = _DIRECTORY / f"{language}.yml"
    return Labels(language, yaml.load(read_text(path), LOADER))  # noqa: S506  a safe one
