"""Tell apart logs that claim to be the same repeat of the same case.

Logs with the same bytes are one run, and so are logs with the same rates, such as a copy whose ends
of lines were converted. Of logs named after the ranks of one run, that of the lowest rank counts.
Directories that hold the same repeat twice, as V100_LOG and A100_LOG beside each other do, are
separate groups, and those named after runs, jobs and dates are repeats. Two logs in one directory
cannot be told apart.
Logs of one table whose directories or names have other words of unknown meaning may be of other
machines or settings, and are separate groups, too.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter, itemgetter
from pathlib import Path

from ..core.case import Topology
from ..core.errors import UserError
from ..core.identity import parameters_text, read_parameters
from ..core.lists import grouped, natural, shortened
from .log_head import same_network
from .log_name import (
    PRODUCT,
    is_of_repeat,
    job_of,
    rank_of,
    setting_of,
    telling_words,
    topology_of_directory,
)
from .run_log import Reading
from .run_record import FoundRun

Parts = tuple[str, ...]
_OF_RANKS = " (another rank of its run)"


def told_apart(readings: Iterable[Reading], root: Path) -> list[Reading]:
    """The readings with copies marked, with the directories that tell runs apart, and with a
    problem instead of a measurement where nothing does."""
    marked = _as_one_run(list(_with_copies(_as_bases(list(readings)), root)), root)
    splits = _splits(_claimed(marked), root)
    apart = _by_words([_in_directory(reading, splits, root) for reading in marked], root)
    apart = _numbered(apart, root)
    paths = {
        run.path: [str(other.path) for other in several]
        for several in _claimed(apart)
        for run in several
    }
    return [
        _refused(reading, reading.run, paths[reading.run.path])
        if reading.run and _counts(reading) and reading.run.path in paths
        else reading
        for reading in apart
    ]


def _numbered(readings: Sequence[Reading], root: Path) -> list[Reading]:
    """The readings, in which logs of a case that claim the same repeat are numbered in the order of
    what tells nothing else of them: directories of repeats, numbers of jobs, and dates."""
    cases = grouped((r.run for r in readings if r.run and _counts(r)), attrgetter("case"))
    numbered: dict[Path, FoundRun] = {}
    for case in {several[0].case: None for several in _claimed(readings)}:
        runs = cases[case]
        words = sorted({_words_of_repeat(run, root) for run in runs}, key=natural)
        if len(words) == len(runs):
            repeats = ((run, words.index(_words_of_repeat(run, root)) + 1) for run in runs)
            numbered |= {run.path: run.but(repeat=number) for run, number in repeats}
    return _with_runs(readings, numbered)


def _words_of_repeat(run: FoundRun, root: Path) -> str:
    directories = filter(is_of_repeat, _below(run.path.parent, root))
    return "/".join((*directories, run.other_words, str(run.repeat), job_of(run.path.name)))


def about_copies(readings: Iterable[Reading]) -> Iterator[str]:
    """Notes on logs that exist several times, and on those of ranks of one run."""
    readings = [*readings]
    ranks = [reading.run for reading in readings if reading.run and _is_of_rank(reading.run)]
    for lowest, others in grouped(ranks, attrgetter("copy_of")).items():
        first, paths = str(lowest).removesuffix(_OF_RANKS), [str(run.path) for run in others]
        yield f"ranks of the run of {first}, which is counted once: {shortened(paths)}"
    same = grouped((reading for reading in readings if reading.log_sha256), _content)
    for several in same.values():
        what = _same(*several)
        runs = [reading.run for reading in several if reading.run]
        counted = [str(run.path) for run in runs if run.copy_of is None]
        originals = [str(run.path) for run in runs if run.copy_of is None or _is_of_rank(run)]
        copies = [str(run.path) for run in runs if run.copy_of and not _is_of_rank(run)]
        if copies:
            yield f"copies of {originals[0]} ({what}), which is counted once: {shortened(copies)}"
        if len(counted) > 1:
            yield f"the same log is counted for several cases ({what}): {shortened(counted)}"
    yield from _about_same_rates(readings)


def _about_same_rates(readings: Iterable[Reading]) -> Iterator[str]:
    """Notes on repeats that may be copies: they have the same rate, and nothing tells."""
    repeats: dict[object, list[FoundRun]] = {}
    for reading in readings:
        run, measured = reading.run, reading.measured
        is_alone = run is None or run.expected_by == "the plan" or reading.rates is not None
        if run and measured and _counts(reading) and not is_alone:
            repeats.setdefault((run.case, measured.measurements[0]), []).append(run)
    for runs in repeats.values():
        if len(runs) > 1:
            paths = shortened([str(run.path) for run in runs])
            yield f"{runs[0]}: these have the same rate in all digits, as copies have: {paths}"


def _is_of_rank(run: FoundRun) -> bool:
    return run.copy_of is not None and run.copy_of.endswith(_OF_RANKS)


def about_names(runs: Iterable[FoundRun]) -> Iterator[str]:
    """Notes on repeats of a case whose names differ in words of unknown meaning."""
    for several in grouped(runs, attrgetter("case")).values():
        words = sorted({run.other_words for run in several})
        if len(words) > 1:
            shown = shortened([word or "none" for word in words])
            yield f"{several[0]}: pooled, although the names of the logs have other words: {shown}"


def about_lengths(runs: Iterable[FoundRun]) -> Iterator[str]:
    """Notes on repeats of a case, known by the rate of the whole run, that have other numbers of
    steps."""
    for several in grouped(runs, attrgetter("case")).values():
        steps = sorted({run.rule.total_steps for run in several if run.rule})
        if len(steps) > 1:
            lengths = f"{', '.join(map(str, steps[:-1]))} and {steps[-1]} steps"
            yield (
                f"{several[0]}: pooled, although the runs have {lengths}: the start, which the rate"
                " of a whole run counts, weighs more in a short one"
            )


def about_starts(runs: Iterable[FoundRun]) -> Iterator[str]:
    """Notes on repeats of a case of which PMIx started some and mpirun others."""
    for several in grouped(runs, attrgetter("case")).values():
        by = {way: [f"r{run.repeat}" for run in same] for way, same in _by_start(several).items()}
        if len(by) > 1:
            started = " and ".join(f"{way} started {shortened(same)}" for way, same in by.items())
            yield f"{several[0]}: pooled, although {started}"


def about_other_starts(*campaigns: Iterable[FoundRun]) -> Iterator[str]:
    """Notes on cases whose MPI processes were started otherwise in the second of two campaigns."""
    first, second = (
        {case: " and ".join(_by_start(same)) for case, same in grouped(runs, str).items()}
        for runs in campaigns
    )
    for case, way in first.items():
        if second.get(case, way) != way:
            yield f"{case}: started by {way} in the first campaign, by {second[case]} in the second"


def _by_start(runs: Iterable[FoundRun]) -> dict[str, list[FoundRun]]:
    """The runs by what started their processes; a program that does not use MPI has one way."""
    groups = grouped(runs, lambda run: "PMIx" if run.by_pmix else "mpirun")
    return dict(sorted(groups.items()))


def _as_bases(readings: Sequence[Reading]) -> Iterator[Reading]:
    """The readings, in which a run whose devices are one part of what runs on more devices share
    has the same parallelism: one device, for `fsdp`; 8 devices with `tp 8`, for `fsdp, tp 8`. It is
    the base of their speed-up."""
    topologies: dict[object, dict[str, set[Topology]]] = {}
    for reading in readings:
        if reading.run and (parallel := _parallel(reading.run)):
            alike = topologies.setdefault(_but_parallelism(reading.run), {})
            alike.setdefault(parallel, set()).add(reading.run.topology)
    for reading in readings:
        if not topologies:
            yield reading
            continue
        run = reading.run
        alike = topologies.get(_but_parallelism(run), {}) if run else {}
        parallel = _parallel(run) if run else None
        whole = _all_degrees(parallel, run.topology.world_size) if run and alike else set()
        wider = [text for text in alike if set(text.split(", ")[1:]) == whole]
        is_alone = len(alike.get(parallel or "", ())) < 2
        if run and len(wider) == 1 and parallel not in wider and is_alone:
            parameters = {**read_parameters(run.parameters), "parallel": wider[0]}
            yield _with_run(reading, run.but(parameters=parameters_text(parameters)))
        else:
            yield reading


def _parallel(run: FoundRun) -> str | None:
    return read_parameters(run.parameters).get("parallel")


def _but_parallelism(run: FoundRun) -> object:
    """The key of runs that differ at most in topology, repeat and parallelism."""
    parameters = {**read_parameters(run.parameters), "parallel": ""}
    batch = run.precision, run.batch_size_per_device
    return run.workload, run.model, run.source, run.accelerator, *batch, parameters_text(parameters)


def _all_degrees(parallel: str | None, world_size: int) -> set[str]:
    """The axes of a run with their degrees, as log_head gives them, the outermost one included."""
    axes = parallel.split(", ") if parallel else []
    inner = [axis for axis in axes if axis.split()[-1].isdigit()]
    others = (int(axis.split()[-1]) for axis in inner if axis.split()[0] not in ("ep", "vp"))
    degree = world_size // math.prod(others)
    outer = [f"{axis} {degree}" for axis in axes if axis not in inner and degree > 1]
    return {*inner, *outer}


def _content(reading: Reading) -> object:
    """The hash of the rates and steps, which only copies of a log have in common. The rate
    of a whole run may stand in several JSON files: all_results.json, trainer_state.json."""
    run, measured = reading.run, reading.measured
    if reading.rates is None and run and measured and run.path.suffix == ".json":
        return run.path.parent, measured.measurements[0]
    return reading.log_sha256 if reading.rates is None else reading.rates


def _same(*readings: Reading) -> str:
    digests = {reading.log_sha256 for reading in readings}
    return "same SHA-256" if len(digests) == 1 else "same rates"


def _with_copies(readings: Iterable[Reading], root: Path) -> Iterator[Reading]:
    firsts: dict[tuple[object, object], Reading] = {}
    for reading in readings:
        run = reading.run
        if run is None or reading.log_sha256 is None:
            yield reading
            continue
        first = firsts.setdefault((run.case, _content(reading)), reading)
        if first is reading or first.run is None:
            yield reading
            continue
        copy_of = _shown(first.run.path, root)
        yield replace(reading, run=run.but(copy_of=f"{copy_of} ({_same(first, reading)})"))


def _as_one_run(readings: Sequence[Reading], root: Path) -> list[Reading]:
    """The readings, in which one rank counts of those of a run that have a log each: the lowest."""
    ranks: dict[object, list[tuple[int, FoundRun]]] = {}
    for run in (reading.run for reading in readings if reading.run and _counts(reading)):
        of_rank = None if run.expected_by == "the plan" else rank_of(run.path, run.topology)
        if of_rank:
            ranks.setdefault((run.case, of_rank[0]), []).append((of_rank[1], run))
    others: dict[Path, FoundRun] = {}
    for several in ranks.values():
        (_, counted), *rest = sorted(several, key=itemgetter(0))
        copy_of = f"{_shown(counted.path, root)}{_OF_RANKS}"
        others |= {run.path: run.but(copy_of=copy_of) for _, run in rest}
    return _with_runs(readings, others)


def _shown(path: Path, root: Path) -> Path:
    return path.relative_to(root) if path.is_relative_to(root) else path


def _counts(reading: Reading) -> bool:
    return reading.measured is not None and reading.run is not None and not reading.run.copy_of


def _claimed(readings: Iterable[Reading]) -> list[list[FoundRun]]:
    """The runs that claim to be the same repeat of the same case."""
    claims = (reading.run for reading in readings if reading.run and _counts(reading))
    same = grouped(claims, attrgetter("case", "repeat"))
    return [several for several in same.values() if len(several) > 1]


def _splits(claimed: Iterable[Sequence[FoundRun]], root: Path) -> set[Parts]:
    """The directories in which sub-directories repeat the same run."""
    places = (
        {_place_of(run, root) for run in several if run.expected_by != "the plan"}
        for several in claimed
    )
    # Neighbours in sorted order share every prefix at which two of them part.
    return {a[: _common(a, b)] for several in places for a, b in pairwise(sorted(several))}


def _common(a: Parts, b: Parts) -> int:
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


def _place_of(run: FoundRun, root: Path) -> Parts:
    return _place(run.path.parent, root, run.topology)


@functools.lru_cache(maxsize=1024)
def _place(parent: Path, root: Path, topology: Topology) -> Parts:
    """The directories of a log in `parent` below the root, without those named after its topology
    or its repeat."""

    def says(directory: str) -> bool:
        named = topology_of_directory(directory)
        return bool(named) and (named == topology or not PRODUCT.fullmatch(directory))

    return tuple(p for p in _below(parent, root) if not says(p) and not is_of_repeat(p))


def _below(parent: Path, root: Path) -> Parts:
    return parent.relative_to(root).parts if parent.is_relative_to(root) else parent.parts


def _in_directory(reading: Reading, splits: set[Parts], root: Path) -> Reading:
    """The reading of a run with the directory that tells it from others, if one is needed."""
    run = reading.run
    if run is None or not splits or run.expected_by == "the plan":
        return reading
    place = _place_of(run, root)
    depths = [len(split) for split in splits if place[: len(split)] == split]
    if not depths:
        return reading
    # Beside such directories, those of repeats tell more than none.
    place = place or tuple(filter(is_of_repeat, _below(run.path.parent, root)))
    directory = "/".join(place[: max(depths) + 1]) or "."
    return _with_run(reading, run.but(directory=directory))


def _with_runs(readings: Iterable[Reading], runs: Mapping[Path, FoundRun]) -> list[Reading]:
    """The readings with other runs, by the paths of their logs."""
    others = ((reading, reading.run and runs.get(reading.run.path)) for reading in readings)
    return [_with_run(reading, run) if run else reading for reading, run in others]


def _with_run(reading: Reading, run: FoundRun) -> Reading:
    return replace(reading, run=run, series=reading.series and reading.series._replace(run=run))


def _by_words(readings: Sequence[Reading], root: Path) -> list[Reading]:
    """The readings, with the words that tell the runs of a table apart."""
    counting = (reading.run for reading in readings if reading.run and _counts(reading))
    runs = [run for run in counting if run.expected_by != "the plan"]
    return _with_runs(readings, dict(_apart_by_words(runs, root)))


def _apart_by_words(runs: Iterable[FoundRun], root: Path) -> Iterator[tuple[Path, FoundRun]]:
    for table in grouped(runs, attrgetter("framework", "settings")).values():
        places = [_place_of(run, root) for run in table]
        of_places = [
            tuple(w for w in telling_words(" ".join(place)) if not _repeats_setting(w, run))
            for run, place in zip(table, places, strict=True)
        ]
        of_names = [telling_words(run.other_words) for run in table]
        by_place, by_name = len(set(of_places)) > 1, len(set(of_names)) > 1
        several = Counter(words for words, _ in set(zip(of_places, places, strict=True)))
        for run, place, above, words in zip(table, places, of_places, of_names, strict=True):
            directory = run.directory
            if by_place and (directory or several[above] == 1):
                directory = "/".join(place) or "."
            elif by_place:  # the same words in several directories, such as those of repeats
                directory = _named_after(above)
            parts = [directory, _named_after(words) if by_name else None]
            if by_place or by_name:
                yield run.path, run.but(directory="/".join(filter(None, parts)) or None)


def _repeats_setting(word: str, run: FoundRun) -> bool:
    """True if a word says of a run what its identity has anyway: rn50, b128 or fp32."""
    field, value = setting_of(word) or ("", None)
    settings = {"batch_size": run.batch_size_per_device, "precision": run.precision}
    if field in settings:
        return settings[field] == value
    return len(word) > 2 and same_network(word, run.model)


def _named_after(words: Sequence[str]) -> str | None:
    return f"*{'_'.join(words)}*" if words else None


def _refused(reading: Reading, run: FoundRun, paths: Sequence[str]) -> Reading:
    problem = UserError(
        "several different logs are the same repeat of the same case",
        where=str(run.path),
        expected=f"one log of {run} r{run.repeat}",
        found=shortened(paths),
        hint="number the repeats in the file names, or move the logs into separate directories",
    )
    return replace(reading, measured=None, problem=problem)
