"""Find the possible runs in campaigns, directories of logs and single files.

A campaign has runs/<case>/r<k>/run.json and logs. In other directories, and in archives, every file
counts that can be a log by its name; `named_run` identifies its run.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from .. import logs
from ..campaign.directory import read_plan, require_existing, run_directory
from ..catalog.entry import validated
from ..catalog.log_pattern import SECONDS, LogPattern
from ..catalog.validity import ValidityRules, rules_of
from ..catalog.workload import Model
from ..core.case import SCHEMA
from ..core.errors import UserError, as_user_error
from ..core.files import is_campaign, is_guarded, read_json
from ..core.lists import grouped, natural
from ..core.units import SAMPLES
from ..logs import mllog
from ..logs.pattern import DURATION, counted_in, counts_steps, of_pattern, seconds_of
from ..logs.running_means import with_differences
from ..logs.tqdm_bars import with_bars
from .archives import Member, laid_out, members_of, stem_of_archive
from .log_file import EMPTY, NO_RATE, LogFile
from .log_name import directories_above, is_of_other_rank, stem_of
from .named_run import Candidates, is_named_like_a_run, named_formats, named_run, words_at
from .run_record import FoundRun, planned_run
from .statement import NOTHING, Statement, Statements

NAME = "regex"
WITHOUT_MATCH = "the expression matches no line of some logs, which known formats read"
_ABOUT = ("unit", "rates_are_per", "step_time_unit")
_STEPS = "steps"
_OF_ENVIRONMENTS = (
    "if each step is one sample of all devices, as in reinforcement learning:"
    " --unit steps --rates-are-per step --global-batch-size 1"
)


def sample_of(log: LogFile, statement: Statement) -> str | None:
    """The first line of a log that the stated expression matches; None if none is stated, or if
    another format reads the log. Raises UserError if nothing reads it."""
    stated = statement.get("regex")
    if stated is None:
        return None
    form = of_pattern(NAME, stated.value, "")
    with log.errors():
        sample = logs.first_line(form, log.pieces())
    if sample is None:
        try:
            _ = log.form
        except UserError as error:
            raise UserError(
                "the expression matches no line of the log",
                where=str(log.path),
                expected=f"lines that match {stated.value}",
                found=error.found,
                hint="RE2 searches it in each line, without labels of launchers and colours; the"
                " step is an integer",
            ) from None
    return sample


def stated_format(statement: Statement, sample: str, where: str) -> logs.Format:
    """The format that the user states for a log. The unit of the sample is that of all rates.
    Raises UserError if nothing says what the rates are."""
    regex = statement["regex"]
    pattern = LogPattern.model_construct(regex=regex.value, sample=sample)
    unit, stated = pattern.unit, pattern.unit_words
    about = {field: statement[field].value for field in _ABOUT if field in statement}
    is_duration = f"(?P<{DURATION}>" in regex.value
    of_time = about.get("step_time_unit", "s")
    if is_duration and "step_time_unit" not in about:
        of_time = next((n for n, s in SECONDS.items() if s == seconds_of(stated.seconds)), None)
    described = {"regex": regex.value, "sample": sample, "step_time_unit": of_time or "s"}
    form = validated(described, LogPattern, f"{where}: {regex.by}").format_named(NAME)
    # 88us/sample: the time of a sample, not that of a step.
    timed = counted_in(unit.partition("/")[2]) if is_duration else None
    whose = _whose(about, per_step=(is_duration and timed is None) or counts_steps(unit))
    for name, value in (("unit", stated.counted), ("rates_are_per", stated.whose)):
        if value and about.get(name, value) != value:
            option = f"--{name.replace('_', '-')}"
            raise UserError(
                "the line with a rate says otherwise",
                where=f"{where}: {option}",
                expected=f"{option} {value}, as in {sample}",
                found=about[name],
                hint=_OF_ENVIRONMENTS if value == "step" else None,
            )
    counted = about.get("unit", timed or counted_in(unit) or stated.counted or None)
    if counted == _STEPS or (whose == "step" and counted is None):
        counted = SAMPLES  # of which a step has as many as the batch
    if missing := [*_missing(counted, whose, of_time)]:
        raise UserError(
            "nothing says what the rates of the expression are",
            where=where,
            expected=", ".join(missing),
            found=sample,
            hint="state it with these options, or in mapping.yml",
        )
    return replace(form, unit=counted, rates_are_per=whose)


def _whose(about: dict[str, Any], *, per_step: bool) -> Any:
    """Whose rates they are; None if nothing says it. Raises UserError if they are those of steps,
    and something else is stated."""
    whose = about.get("rates_are_per")
    per_step = per_step or about.get("unit") == _STEPS
    if per_step and whose not in (None, "step"):
        raise UserError(
            "the rates are those of steps",
            where="--rates-are-per",
            expected="step, because the lines or --unit say so",
            found=whose,
            hint=_OF_ENVIRONMENTS,
        )
    return "step" if per_step else whose


def _missing(unit: str | None, whose: str | None, seconds: str | None) -> Iterator[str]:
    if seconds is None:
        yield "--step-time-unit s, ms, us, or s/100 of 100 steps"
    if unit is None:
        yield "--unit samples or tokens"
    if whose is None:
        yield "--rates-are-per world (all devices), node, device or step (steps per second)"


# Archives and compressed files of kinds that are not read.
_PACKED = re.compile(r"\.(?:bz2|xz|zst|lz4|lzma|7z|rar|Z|t[bx]z2?|tzst)$", re.IGNORECASE)
# Files of this tool in a directory of logs.
_OWN = re.compile(
    r"summary\.(csv|json|md)|measurements\.csv|bz\d+_result\.json|source\.json|mapping\.yml"
    r"|manifest\.jsonl(\.sig)?|(campaign|plan|run)\.json",
    re.ASCII,
)
BANDWIDTH_LOG = "nccl_tests"  # its format
CAMPAIGNS = "campaigns"  # a view
_VIEWS = {
    CAMPAIGNS: "campaigns, which have tables of their own (dlperf summarize)",
    "mlperf": "results of MLPerf, which have a table of their own (dlperf mlperf)",
    "bandwidth": "logs of nccl-tests, which have tables of their own (dlperf bandwidth)",
}
# Files of a campaign that are no logs and count.
_counts = re.compile(r"(?:campaign|plan|run)\.json|telemetry-.+\.csv(?:\.gz)?", re.DOTALL).fullmatch
# What a scheduler writes besides the output, usually nothing: train.err, train.e4711.
_OF_ERRORS = re.compile(r"\.(?:err|e\d{1,12}(?:[-.]\d{1,9})?)(?:\.gz)?$", re.ASCII)
_RESULT = re.compile(r"result_\d{1,4}\.txt", re.ASCII)
Scratch = Callable[[], Path]  # gives a private directory, which is removed at the end


class Place(NamedTuple):
    """The place of a possible run: a run record in a campaign, with the validity rules of the
    campaign, or a log. `directories` are the names of its parent directories, from the nearest up
    to the directory that was given. `statement` is what the user states about the log. `is_given`:
    the user named the file itself. `files`: the names of the files beside a record that count; None
    for all. `content`: where the bytes of a member of an archive are. `is_plain`: no directory
    above it is that of a campaign."""

    path: Path
    is_record: bool
    rules: ValidityRules | None = None
    directories: tuple[str, ...] = ()
    statement: Statement | None = None
    is_given: bool = False
    files: frozenset[str] | None = None
    content: Path | None = None
    is_plain: bool = False

    def size(self) -> int:
        """Approximate number of bytes to read."""
        try:
            if not self.is_record:
                return os.stat(self.content or self.path).st_size  # noqa: PTH116  faster
            return sum(entry.stat().st_size for entry in os.scandir(self.path.parent))
        except OSError:
            return 0  # the error is reported when the file is read


@dataclass(frozen=True)
class Skipped:
    """A file that is not read as the log of a training run, and why. `error`: what to do if it is
    one. `view`: the feature that shows it, if it has results of another kind. `content`: where its
    bytes are, or the files of a campaign, if it is in an archive."""

    path: Path
    reason: str
    error: UserError | None = None
    view: str | None = None
    content: Path | None = None


@dataclass
class Found:
    """All that was found: the places in a stable order, the planned runs of a campaign that have no
    record, the files that were skipped, errors of a campaign itself or of statements, and the
    patterns of the mapping that match no log."""

    places: list[Place] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    problems: list[UserError] = field(default_factory=list)
    unused_patterns: list[str] = field(default_factory=list)


def find(
    sources: Sequence[Path],
    statements: Statements = NOTHING,
    recorded: Collection[str] | None = None,
    scratch: Scratch | None = None,
) -> Found:
    """Find the runs in a campaign, or in directories, archives and files of logs. `recorded`: the
    only files of a campaign that count; by default all. `scratch` gives a directory for the members
    of archives. Raises UserError if a source does not exist, or if a campaign is given together
    with something else."""
    discovered = Found()
    for source in sources:
        _check(source, sources, statements)
    if is_campaign(sources[0]):
        _find_records(sources[0], discovered, recorded)
        return discovered
    seen: set[Path] = set()
    is_stated = statements != NOTHING
    matched: list[str] = []
    for source in sources:
        is_directory = holds_logs(source)
        # All directories of a file that the user named can say something about it.
        above = directories_above(source.resolve().parent.parts[1:])
        given = [Place(source, is_record=False, directories=above, is_given=True)]
        inside = _in_directory(source, discovered, statements, scratch) if is_directory else given
        for place in inside:
            if len(sources) > 1:
                before = len(seen)
                seen.add(place.path.resolve())
                if len(seen) == before:
                    continue
            if not is_stated:
                discovered.places.append(place)
                continue
            base = source if is_directory else source.parent
            below = place.path.relative_to(base).as_posix()
            matched.append(below)
            try:
                is_alone = not is_directory and len(sources) == 1
                statement = statements.about(below, is_alone=is_alone)
                discovered.places.append(place._replace(statement=statement))
            except UserError as error:
                discovered.problems.append(error)
    discovered.unused_patterns = statements.unused(matched)
    return discovered


def _find_records(campaign: Path, discovered: Found, recorded: Collection[str] | None) -> None:
    rules = _rules(campaign, discovered.problems)
    records = sorted(_records(campaign, discovered.problems), key=natural)
    files = None if recorded is None else grouped(recorded, os.path.dirname)
    for path in records:
        place = Place(path, is_record=True, rules=rules)
        if files is None:
            discovered.places.append(place)
            continue
        folder = path.parent.relative_to(campaign).as_posix()
        names = frozenset(map(os.path.basename, files.get(folder, ())))
        if path.name in names:
            discovered.places.append(place._replace(files=names))
    if (campaign / "campaign.json").exists() and (campaign / "plan.json").exists():
        try:
            planned = read_plan(campaign)["runs"]
        except UserError as error:
            discovered.problems.append(error)
            return
        directories = {path.parent for path in records}
        discovered.missing += [
            str(run["id"]) for run in planned if run_directory(campaign, run) not in directories
        ]


def _records(campaign: Path, problems: list[UserError]) -> Iterator[Path]:
    cases = _entries(campaign / "runs", problems) if (campaign / "runs").is_dir() else []
    for case in (entry for entry in cases if entry.is_dir()):
        for run in (entry for entry in _entries(Path(case), problems) if entry.is_dir()):
            if any(entry.name == "run.json" for entry in _entries(Path(run), problems)):
                yield Path(run, "run.json")


def holds_logs(source: Path) -> bool:
    return source.is_dir() or stem_of_archive(source.name) is not None


def _in_directory(
    directory: Path, discovered: Found, statements: Statements, scratch: Scratch | None
) -> Iterator[Place]:
    """The possible logs in a directory or an archive, in a stable order: files named like logs, and
    those that a pattern of the mapping names."""

    def is_wanted(path: Path) -> bool:
        name = path.name
        is_no_log = _OWN.fullmatch(name) or _HIDDEN.search(name)
        return _is_wanted(name) or (
            not is_no_log and statements.names(path.relative_to(directory).as_posix())
        )

    of_directory = directory.is_dir()
    listed_files = _files if of_directory else _members
    files = listed_files(directory, discovered.problems, scratch, is_wanted)
    depth, parts = len(directory.parts), directory.resolve().parts
    above = parts[-1:] if of_directory else directories_above(parts[1:])
    # A campaign below is not entered.
    is_plain = of_directory and not is_guarded(directory / "log")
    for file in sorted(files, key=lambda file: natural(file.path)):
        path = file.path
        if isinstance(file, Skipped):
            discovered.skipped.append(file)
        elif is_wanted(path):
            names = (*path.parts[depth:-1][::-1], *above)
            directories = tuple(stem_of_archive(name) or name for name in names)
            yield file._replace(directories=directories, is_plain=is_plain and not file.content)
        elif not _OWN.fullmatch(path.name):
            packed = _PACKED.search(path.name)
            reason = f"compressed as {packed[0]}; unpack it" if packed else "not the name of a log"
            discovered.skipped.append(Skipped(path, reason))


_HIDDEN = re.compile(r"^\.|~$")  # also the copies that editors leave


def _is_wanted(name: str) -> bool:
    return stem_of(name) is not None and not _OWN.fullmatch(name) and not _HIDDEN.search(name)


def of_each(sources: Sequence[Path], statements: Statements) -> Iterator[tuple[Path, Statements]]:
    """Each source with what is stated about it: nothing about a campaign beside other logs."""
    of_logs = [not is_campaign(source) for source in sources]
    for source, has_logs in zip(sources, of_logs, strict=True):
        yield source, statements if has_logs or not any(of_logs) else NOTHING


def _check(source: Path, sources: Sequence[Path], statements: Statements) -> None:
    require_existing(source)
    if not (source.is_file() or source.is_dir()):  # a pipe could be read only once, or never end
        raise UserError(
            "logs are read from files",
            where=str(source),
            expected="a file or a directory",
            found="a pipe, a socket or a device",
            hint="save what it prints as a file",
        )
    if not is_campaign(source):
        return
    if len(sources) > 1:
        raise UserError(
            "a campaign is summarized alone",
            where=str(source),
            expected="one campaign, or files and directories of logs",
            found=f"{len(sources)} arguments",
            hint="`report` and `compare` take several campaigns",
        )
    if statements != NOTHING:
        raise UserError(
            "nothing can be stated about a campaign",
            where=str(source),
            expected="no options and no mapping, because its records say what ran",
        )


def run_at(place: Place, candidates: Candidates) -> tuple[FoundRun, LogFile] | Skipped:
    """The run at a place and its log. Raises UserError if the run cannot be identified."""
    if place.is_record:
        run = replace(
            planned_run(place.path, candidates.models), rules=place.rules, files=place.files
        )
        if run.why_not is None and not run.has(run.path.name):
            raise UserError("the log is not recorded in the manifest", where=str(run.path))
        return run, LogFile(run.path, candidates.user_formats.get(run.log_format))
    if _is_power_of_mlperf(place.path) and not place.is_given:
        return Skipped(place.path, "power that a result of MLPerf drew, no run")
    statement = place.statement or {}
    path_words = words_at(place.path, place.directories)
    first = named_formats(path_words, candidates, statement)
    # A user's expression may match lines of other formats, too.
    formats, is_plain = (first, _formats(), candidates.user_formats), place.is_plain
    log = LogFile(place.path, content=place.content, formats=formats, is_plain=is_plain)
    try:
        sample = sample_of(log, statement)
        if sample is None and (_is_of_mlperf(place.path) or log.form is mllog.LINES):
            return of_view(place, "mlperf")
    except UserError as error:
        is_nothing = error.problem == EMPTY and _OF_ERRORS.search(place.path.name) is not None
        # Many programs print rates on rank 0 only.
        is_nothing |= error.problem in (EMPTY, NO_RATE) and is_of_other_rank(place.path)
        if place.is_given or (is_named_like_a_run(path_words) and not is_nothing):
            raise
        shown = None if error.problem == NO_RATE else error
        return Skipped(place.path, error.problem, shown, content=place.content)
    if sample is not None:
        form = with_bars(stated_format(statement, sample, str(place.path)), log.pieces)
        form = with_differences(form, log.pieces)
        log = LogFile(place.path, form, place.content)
    try:
        run = named_run(log, path_words, candidates, statement)
        if "regex" in statement and sample is None:
            run = run.but(assumed=(*run.assumed, WITHOUT_MATCH))
        return run, log
    except UserError as error:
        if is_no_run(place, log, candidates.models):
            return of_view(place, "bandwidth", error)
        raise


@functools.cache
def _formats() -> dict[str, logs.Format]:
    """The formats of logs outside campaigns."""
    return {**logs.formats(), mllog.LINES.name: mllog.LINES}


def _is_of_mlperf(path: Path) -> bool:
    folders = [name for name in path.parts if name not in ("strong", "weak")]  # of MLPerf HPC
    return bool(_RESULT.fullmatch(path.name)) and folders[-4:-3] == ["results"]


def _is_power_of_mlperf(path: Path) -> bool:
    """True for results/<system>/<benchmark>/power/result_<n>/node_<n>.txt."""
    return path.parts[-3:-2] == ("power",) and path.parts[-6:-5] == ("results",)


def is_no_run(place: Place, log: LogFile, models: Sequence[Model]) -> bool:
    """True for a log of nccl-tests, which stands for itself, unless the user states which
    collective operation it is."""
    if place.is_record or log.form.name != BANDWIDTH_LOG:
        return False
    stated = (place.statement or {}).get("model")
    of_format = [model for model in models if model.workload.log_format == BANDWIDTH_LOG]
    return stated is None or all(stated.value not in model.names for model in of_format)


def of_view(place: Place, view: str, error: UserError | None = None) -> Skipped:
    """A log of another kind than those of training runs. `error`: why it is none of them."""
    return Skipped(place.path, _VIEWS[view], error, view, place.content)


def _rules(directory: Path, problems: list[UserError]) -> ValidityRules | None:
    path = directory / "campaign.json"
    try:
        document = read_json(path) if path.exists() else None
    except UserError as error:
        problems.append(error)
        return None
    if document is None:
        return None
    schema = document.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise UserError(
            "a newer version of this program made this campaign",
            where=f"{path}: schema",
            expected=f"at most {SCHEMA}",
            found=str(schema),
        )
    try:
        return rules_of(document, path)
    except UserError as error:
        problems.append(error)
        return None


def _entries(directory: Path, problems: list[UserError]) -> list[os.DirEntry[str]]:
    """The entries of a directory. None of one that cannot be read, which is a problem."""
    try:
        with as_user_error("the directory cannot be read", directory):
            return list(os.scandir(directory))
    except UserError as error:
        problems.append(error)
        return []


_Files = Iterator[Place | Skipped]  # those with any name


def _campaign(path: Path, content: Path | None = None) -> Skipped:
    return Skipped(path, _VIEWS[CAMPAIGNS], view=CAMPAIGNS, content=content)


def _files(
    directory: Path,
    problems: list[UserError],
    scratch: Scratch | None,
    is_wanted: Callable[[Path], bool],
) -> _Files:
    """The files below a directory, and in its archives."""
    for entry in _entries(directory, problems):
        path = Path(entry)
        if entry.is_dir(follow_symlinks=False):
            if is_campaign(path):
                yield _campaign(path)
            else:
                yield from _files(path, problems, scratch, is_wanted)
        elif not entry.name.startswith("."):
            if not (entry.is_file(follow_symlinks=False) or path.is_file()):
                yield Skipped(path, "a link to a directory" if path.is_dir() else "not a file")
            elif stem_of_archive(entry.name) is not None:
                yield from _members(path, problems, scratch, is_wanted)
            else:
                yield Place(path, is_record=False)


def _members(
    archive: Path,
    problems: list[UserError],
    scratch: Scratch | None,
    is_wanted: Callable[[Path], bool],
) -> _Files:
    """The files in an archive; none of one that cannot be read, which is a problem."""
    if scratch is None:
        yield Skipped(archive, "an archive")
        return
    try:
        members = members_of(
            archive, lambda m: is_wanted(archive / m) or bool(_counts(m.name)), scratch
        )
        campaigns = {root: laid_out(members, root, scratch()) for root in _campaigns_in(members)}
    except UserError as error:
        problems.append(error)
        return
    for root, content in campaigns.items():
        yield _campaign(archive / root, content)
    for member in members:
        path = archive / member.name
        if not campaigns.keys().isdisjoint(PurePosixPath(member.name).parents):
            continue
        if member.reason is None and stem_of_archive(path.name) is not None:
            yield Skipped(path, "an archive in an archive")
        elif member.reason is not None and not path.name.startswith("."):
            yield Skipped(path, member.reason)
        elif not path.name.startswith("."):
            yield Place(path, is_record=False, content=member.content)


def _campaigns_in(members: Iterable[Member]) -> list[PurePosixPath]:
    """The directories of an archive that are campaigns, without those inside others."""
    paths = [PurePosixPath(member.name) for member in members]
    roots = {path.parent for path in paths if path.name == "campaign.json"}
    roots |= {path.parents[3] for path in paths if path.match("runs/*/*/run.json")}
    return sorted(root for root in roots if roots.isdisjoint(root.parents))
