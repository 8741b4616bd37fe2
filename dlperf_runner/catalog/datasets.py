"""The data sets that published programs read, as catalog/datasets.yml lists them, and the keys with
which an inventory says where each lies (`dlperf_datasets`)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from .entry import CATALOG, load_entry
from .types import Count, Entry, Name, entry_error

Absolute = Annotated[str, Field(pattern=r"^/[^:{}\x00-\x1f]*$")]


class SyntheticImage(Entry):
    """What synthetic images are like."""

    width: Count
    height: Count
    mean_bytes: Count


class DataSet(Entry):
    """A data set. `files` are templates for `part` and `parts`. `pattern` is the glob by which a
    program finds them. `synthetic` is the path of the synthetic one on nodes. `faces`: with the
    records of identities that insightface reads."""

    title: str
    format: Literal["recordio", "tfrecord", "ofrecord"]
    files: Annotated[tuple[str, ...], Field(min_length=1)]
    parts: Count | None = None
    pattern: str | None = None
    records: Count
    classes: Count
    image: SyntheticImage
    faces: bool = False
    synthetic: Absolute


class DataSets(Entry):
    name: Name
    datasets: dict[Name, DataSet]


class DataSetPlace(Entry):
    """An entry of `dlperf_datasets`: where a data set lies on the nodes, and what the role makes it
    of. Without `archive`, `images` and `synthetic`, it is there already."""

    path: Absolute | None = None
    shared: bool = False
    parts: Count | None = None
    records: Count | None = None
    archive: str | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    images: Absolute | None = None
    synthetic: bool = False
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> DataSetPlace:
        given = [n for n in ("archive", "images", "synthetic") if getattr(self, n)]
        if len(given) > 1:
            raise entry_error("more than one origin", "one of archive, images, synthetic", given)
        if self.synthetic == (self.path is not None):
            found = "path and synthetic" if self.path else "neither"
            raise entry_error("unclear place", "either path, or synthetic: true", found)
        if (self.archive is None) != (self.sha256 is None):
            raise entry_error(
                "an archive needs its checksum", "archive and sha256", given or "sha256"
            )
        return self


@functools.cache
def datasets() -> Mapping[str, DataSet]:
    return load_entry(CATALOG / "datasets.yml", DataSets).datasets
