"""The fetched part of the vendors as apt takes it on nodes: repositories in a folder, pins, and the
packages that are asked for. What these depend on in the distribution, apt alone can say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from ..catalog.stack import Stack
from ..core.errors import UserError
from .apt import Choice
from .archives import Source
from .fetch import Fetcher, FetchError, quoted
from .manifest import Manifest
from .vendor import VendorRepository, of_the_roles, wanted
from .vendor_repository import OPENPGP


@dataclass(frozen=True)
class Vendors:
    """Of nobody, or of a stack: `packages` by role as apt-get takes them, `sha256` of all packages
    that are in the folder. `mirror` is where more of them comes from."""

    folder: Path = Path()
    mirror: str = ""
    repositories: tuple[VendorRepository, ...] = ()
    packages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    preferences: str = ""
    sha256: frozenset[str] = frozenset()

    def sources(self, keyrings: Path) -> tuple[Source, ...]:
        """In the order of the files that nodes have; the keys go into `keyrings`."""
        keyrings.mkdir(parents=True, exist_ok=True)
        found = []
        fetcher = Fetcher(self.folder)
        for one in self.repositories:
            ring = keyrings / f"{one.name}.gpg"
            key = (self.folder / fetcher.path(one.key)).read_bytes()
            ring.write_bytes(of_the_roles(OPENPGP).dearmored(key))
            uri = f"file:{quoted(str(self.folder / fetcher.path(one.uri)))}/"
            found.append(Source(uri, (one.suite,), one.components, str(ring)))
        return tuple(found)

    def path(self, choice: Choice) -> str | None:
        """Where below the folder a package of theirs lies; None of one of the distribution."""
        url, start = unquote(choice.url), f"file:{self.folder}/"
        # Flat repositories have their packages at ./
        return PurePosixPath(url.removeprefix(start)).as_posix() if url.startswith(start) else None

    def bring(self, path: str, sha256: str, say: Callable[[str], None]) -> bool:
        """Have a package in the folder that apt takes, and that nobody thought of: say, because
        two vendors have it. Whether it had to be fetched."""
        fetcher = Fetcher(self.folder, self.mirror, say)
        base, uri = next(
            (base, one.uri)
            for one in self.repositories
            if path.startswith(base := fetcher.path(one.uri))
        )
        try:
            fetcher.bring(uri + quoted(path.removeprefix(base)), sha256)
        except FetchError as error:
            raise UserError(f"{Path(path).name}, a package of a vendor, {error}") from None
        return bool(fetcher.fetched)


def of_stack(
    stack: Stack,
    suite: str,
    folder: Path,
    made: Manifest,
    mirror: str = "",
    keys: Mapping[str, list[str]] | None = None,
) -> Vendors:
    """As far as `made` says that it was had; `keys` are dlperf_vendor_keys."""
    families = [one for one in wanted(stack, suite, keys) if isinstance(one, VendorRepository)]
    indexes = {item.why for item in made.files if item.kind == "index"}
    had = [one for one in families if f"repository {one.name}" in indexes]
    debs = {(item.name, item.version): item.sha256 for item in made.files if item.kind == "deb"}
    packages: dict[str, tuple[str, ...]] = {}
    for one in had:
        names = tuple(
            f"{name}={version}" for name, version in one.packages if (name, version) in debs
        )
        packages[one.wanted_by] = packages.get(one.wanted_by, ()) + names
    preferences_text = of_the_roles("module_utils/deb_family.py").preferences_text
    return Vendors(
        folder.resolve(),
        mirror,
        tuple({one.name: one for one in sorted(had, key=lambda one: one.name)}.values()),
        packages,
        "\n".join(
            preferences_text(
                dict(one.packages),
                [{"packages": list(names), "version": version} for names, version in one.pins],
            )
            for one in families
        ),
        frozenset(debs.values()),
    )
