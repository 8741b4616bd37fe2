"""A log on disk: examined and read in pieces, of which one at a time is in memory. One that gzip
compressed is expanded."""

from __future__ import annotations

import hashlib
import shlex
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from io import BufferedReader
from pathlib import Path
from typing import Any

from .. import logs
from ..core.errors import UserError, as_user_error
from ..core.files import open_gzip, open_read, read_start
from ..core.lists import counted
from ..logs.likely_lines import LikelyLine, likely_line
from ..logs.pattern import DURATION, Lines, seconds_of, words_of_rate, words_of_time
from ..logs.unrated_lines import unrated_line

PIECE = 2**20
NO_RATE = "no line has a known format"
EMPTY = "the log is empty"
HINT_OF_FORMATS = (
    "known formats: `dlperf list formats`; "
    "`dlperf summarize --regex` or `dlperf init-workload` reads others"
)
_UNITS = "UNIT: samples, tokens or steps"
_WHOSE = "WHOSE: world (all devices), node, device or step"
_OPTIONS_OF_RATE = f"--unit UNIT --rates-are-per WHOSE\n  {_UNITS}; {_WHOSE}"
_TIMES_OF_STEP = "UNIT\n  UNIT: s, ms or us; s/100"
_OPTIONS_OF_TIME = f"""--step-time-unit {_TIMES_OF_STEP} if each is the time of 100 steps
  and --accumulation-steps N if a step accumulates N batches"""
_FORM_OF_LINES = r"step (?P<step>\d+) .* (?P<rate>[\d.]+) samples/s"
_NO_GUESS = (
    "with an expression like this; if none has a rate or the time of a step, let the program"
    " print one"
)
# Its lines have the mean time of the steps since the line before, up to the end of an epoch.
_TIMES = """if the time stamps are enough, write what a step takes on average between two lines:
  LC_ALL=C awk 'match($0, /[0-9][0-9]:[0-9][0-9]:[0-9][0-9]([.,][0-9]+)?/) {{
    split(substr($0, RSTART, RLENGTH), c, ":"); sub(",", ".", c[3])
    s = 3600 * c[1] + 60 * c[2] + c[3]
    if (!match($0, /{word}[0-9]+/)) next
    n = substr($0, RSTART, RLENGTH); gsub(/[^0-9]/, "", n); n += 0
    if (m != "" && n < m) exit
    if (m != "" && (n == m || s == t)) next
    if (m != "") printf "step %d took %.5f s\\n", n, (s - t + 86400 * (s < t)) / (n - m)
    m = n; t = s }}' {log} > {times}
and give {times} with
  --regex 'step (?P<step>\\d+) took (?P<step_time>[\\d.]+) s' --step-time-unit s
  and --accumulation-steps N if a step accumulates N batches"""
_SHOWN = 200  # letters of a line in messages
_PIECES_SEARCHED = 2  # for the most likely line of an unknown program
_GZIP = b"\x1f\x8b"
_PACKED = {  # the first bytes of files that hold others or are compressed, and are not read
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"\xfd7zXZ\0": "xz",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"Rar!\x1a\x07": "RAR",
}


class LogFile:
    """The log at a path. Raises UserError if the file cannot be read. `form`: its format, if that
    is known, which is so for planned runs with a format of the user. `content`: where its bytes
    are, if it is a member of an archive. `formats`: those that are tried, one set after the
    other. `is_plain`: the file is in no campaign."""

    def __init__(
        self,
        path: Path,
        form: logs.Format | None = None,
        content: Path | None = None,
        formats: Sequence[Mapping[str, logs.Format]] = (),
        *,
        is_plain: bool = False,
    ) -> None:
        self.path = path
        self._form = form
        self._formats = formats or (logs.formats(),)
        self._content = content or path
        self._is_plain = is_plain
        self._read: dict[str | None, tuple[logs.Log, str]] = {}

    @cached_property
    def _head(self) -> tuple[bytes, bool]:
        """The first piece, and whether there is more. Of most logs, it is all."""
        with as_user_error("the log cannot be read", self.path):
            return read_start(self._content, PIECE, is_plain=self._is_plain)

    def pieces(self) -> Iterator[bytes]:
        """Its bytes from the beginning."""
        head, more = self._head
        if head.startswith(_GZIP):
            yield from self._expanded()
            return
        yield head
        if more:
            with self._file() as file:
                file.seek(len(head))
                while piece := file.read(PIECE):
                    yield piece

    def _expanded(self) -> Iterator[bytes]:
        """The content of a compressed log. Raises UserError if the file is damaged or expands
        beyond the limit: a small file can expand to any size."""
        try:
            with open_gzip(self._content, self.path) as file:
                while piece := file.read(PIECE):
                    yield piece
        except (EOFError, OSError, zlib.error) as error:
            raise UserError(
                "the compressed log is damaged",
                where=str(self.path),
                expected="a complete file of gzip",
                found=str(error),
            ) from None

    @cached_property
    def form(self) -> logs.Format:
        """Its format. Raises UserError if the format is unknown or the file is not text."""
        if self._form is not None:
            return self._form
        if self._head[0].startswith(b'{"log":') and b'"stream":' in self._head[0]:
            raise UserError(
                "the log is in JSON lines of Docker",
                where=str(self.path),
                expected="what the program printed",
                found=self._head[0][:_SHOWN].decode("utf-8", "replace"),
                hint=f"take it out: jq -rj .log {shlex.quote(str(self.path))} > train.log",
            )
        with self.errors():
            for forms in filter(None, self._formats):
                if (form := logs.detect(self.pieces(), forms)) is not None:
                    return form
        raise self._nothing_found()

    def read(self, most: int | None, rank: str | None) -> tuple[logs.Log, str]:
        """Its content up to more than `most` lines with a rate, or all of it, and the SHA-256 of
        that. Raises UserError if a line is invalid or another program wrote into the log."""
        if rank not in self._read or not self._read[rank][0].is_whole:
            digest, last = hashlib.sha256(), deque[bytes](maxlen=2)
            with self.errors():
                log = logs.parse(self.form, _digested(self.pieces(), digest, last), most, rank)
            if most != 0 or log.is_whole:
                other = logs.other_at_end(self.form, b"".join(last))
                if other is not None:
                    raise self._of_two_programs(other)
            self._read[rank] = log, digest.hexdigest()
        return self._read[rank]

    def _of_two_programs(self, other: logs.Format) -> UserError:
        line, others = (logs.line_of(form, self.pieces(), 0) for form in (self.form, other))
        return UserError(
            "two programs wrote into this log",
            where=f"{self.path}:{others}",
            expected=f"rates of {self.form.name} only, as in line {line}",
            found=f"a rate of {other.name}",
            hint="save the output of each program in its own file",
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Add the name of the log to errors of its lines."""
        try:
            yield
        except logs.LineError as error:
            raise UserError(
                error.problem,
                where=f"{self.path}:{error.line}",
                expected=error.expected,
                found=error.found,
                hint=error.hint,
            ) from None

    def _file(self) -> BufferedReader:
        with as_user_error("the log cannot be read", self.path):
            return open_read(self._content, is_plain=self._is_plain)

    def _nothing_found(self) -> UserError:
        """The error of a log without a rate that a format knows."""
        head, _ = self._head
        if packed := next((name for start, name in _PACKED.items() if head.startswith(start)), ""):
            return UserError(
                "the file is compressed in a way that is not read",
                where=str(self.path),
                expected="a log, as it is or by gzip, or an archive .tar, .tar.gz, .tgz or .zip",
                found=packed,
                hint=f"unpack {self.path.name} and give what was in it",
            )
        start: list[bytes] = []
        lines, last = 0, b"\n"
        for piece in self.pieces():
            start += [piece] if len(start) < _PIECES_SEARCHED else []
            lines, last = lines + piece.count(b"\n"), piece[-1:] or last
        lines += last != b"\n"
        if rate := logs.rate_of_epoch(self.pieces()):
            return UserError(
                "the log has rates of whole epochs only",
                where=f"{self.path}:{rate[0]}",
                expected="rates of steps, so that the warm-up can be left out",
                found=rate[1].expandtabs(1),
                hint="use a version of the program that prints a rate in each log interval",
            )
        likely = likely_line(start)
        has_rate = likely and likely.regex and not likely.is_mean and not likely.besides
        regex = shlex.quote(likely.regex or _FORM_OF_LINES) if likely else ""
        options = _options(likely) if likely else ""
        unrated = unrated_line(start)
        if unrated and (not has_rate or unrated.refusal.is_certain):
            why = unrated.refusal
            of_bar = (
                f"\nor describe its bar, whose rates are smoothed:\n  --regex {regex} {options}"
            )
            return UserError(
                why.problem,
                where=f"{self.path}:{unrated.line}",
                expected=why.expected,
                found=unrated.text[:_SHOWN],
                hint=why.hint + (of_bar if "it/s|s/it" in regex else ""),
            )
        if likely is None:
            return UserError(
                NO_RATE if lines else EMPTY,
                where=str(self.path),
                expected="lines with a rate in a known format",
                found=f"{counted(lines, 'line')} without one" if lines else "no lines",
                hint=HINT_OF_FORMATS,
            )
        return self._of_unknown_program(likely, f"  --regex {regex} {options}")

    def _of_unknown_program(self, likely: LikelyLine, described: str) -> UserError:
        name = shlex.quote(f"times_{self.path.name}")
        by_stamps = likely.stamped and _TIMES.format(
            word=likely.stamped, log=shlex.quote(str(self.path)), times=name
        )
        such_as = "this expression is a guess" if likely.regex else _NO_GUESS
        such_as += ", and takes a mean or a smoothed rate" if likely.is_mean else ""
        such_as += f", and takes {likely.besides}" if likely.besides else ""
        return UserError(
            "no known format reads this log",
            where=str(self.path),
            expected="a rate of a known format, or an expression for the lines",
            found=likely.line[:_SHOWN],
            hint=(
                by_stamps or f"describe its lines ({such_as}), and what its rates are:\n{described}"
            )
            + "\nor describe the program as a workload: dlperf init-workload",
        )


def _options(likely: LikelyLine) -> str:
    """The options beside a guess, with what the words beside the number say."""
    if likely.regex is None:
        return _OPTIONS_OF_RATE
    around = Lines(likely.regex).around(likely.line)
    if f"(?P<{DURATION}>" in likely.regex:
        seconds = seconds_of(words_of_time(*around).seconds)
        unit = next((unit for unit in ("s", "ms", "us") if seconds_of(unit) == seconds), None)
        stated = f"{unit}\n  {unit}/100" if unit else _TIMES_OF_STEP
        return _OPTIONS_OF_TIME.replace(_TIMES_OF_STEP, stated)
    words = words_of_rate(*((likely.column, "") if likely.column else around))
    unit = words.counted or ("steps" if words.whose == "step" else "")
    options = _OPTIONS_OF_RATE
    if unit:
        options = options.replace("UNIT ", f"{unit} ").replace(f"{_UNITS}; ", "")
    if whose := words.whose or ("device" if "device" in likely.column else ""):
        options = options.replace("WHOSE\n", f"{whose}\n").replace(f"{_WHOSE}", "")
    return options.rstrip("; \n")


def _digested(pieces: Iterable[bytes], digest: Any, last: deque[bytes]) -> Iterator[bytes]:
    """The pieces, which are added to the digest and to the last pieces."""
    for piece in pieces:
        digest.update(piece)
        last.append(piece)
        yield piece
