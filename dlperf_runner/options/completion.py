"""Shell completion for names in the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def completes(kind: str | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A completion function for one name of this kind of entry, or of the given names, or for
    several separated by commas."""

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        try:
            known = sorted(set(_names(kind) if isinstance(kind, str) else kind()))
        except Exception:  # a shell cannot show errors during completion
            return []
        return [before + comma + name for name in known if name.startswith(last)]

    return complete


def _names(kind: str) -> Iterable[str]:
    from ..catalog.reader import load_catalog
    from ..core.node import CONTAINER_CHOICES
    from ..plan.choice import SOURCE_NAMES

    catalog = load_catalog()
    workloads = catalog.workloads.values()
    names: dict[str, Iterable[str]] = {
        "model": (name for workload in workloads for name in workload.model_names),
        "framework": catalog.frameworks,
        "workload": catalog.workloads,
        "stack": catalog.stacks,
        "precision": (
            batch.precision for w in workloads for m in w.matrices.values() for batch in m.batches
        ),
        "matrix": (name for workload in workloads for name in workload.matrices),
        "source": SOURCE_NAMES,
        "container": CONTAINER_CHOICES,
    }
    return names[kind]
