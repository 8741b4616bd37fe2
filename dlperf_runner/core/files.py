"""Atomic reading and writing of files: a reader never sees a partly written file. A file of a
campaign may be compressed by `archive`, which appends .gz to its name."""

from __future__ import annotations

import gzip
import json
import math
import os
from collections.abc import Iterator
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from .errors import UserError, as_user_error


def write_whole(path: Path, content: str | bytes, mode: int = 0o666) -> Path:
    """Write a temporary file, then rename it. Creates parent directories. The umask restricts
    `mode`. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.touch(mode)
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return path


def write_result(path: Path, content: str | bytes) -> Path:
    """Write a file that the user requested. Raises UserError if that fails."""
    hint = "choose another directory, for example with --output-dir"
    with as_user_error("cannot write the result", path, hint):
        return write_whole(path, content)


def stored(path: Path) -> Path:
    """The file, or the compressed one that took its place."""
    packed = path.with_name(f"{path.name}.gz")
    return packed if packed.is_file() and not path.is_file() else path


def open_stored(path: Path) -> BufferedReader | gzip.GzipFile:
    """Open a file for reading, as it was before it was compressed. Raises OSError; reading a
    damaged one raises EOFError or zlib.error, too."""
    place = stored(path)
    return place.open("rb") if place == path else gzip.open(place)


def json_text(value: object) -> str:
    """The value as indented JSON, with a newline at the end. Raises ValueError on NaN."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: object) -> Path:
    """Write a JSON file with `write_whole`."""
    return write_whole(path, json_text(value))


def decoded(content: bytes, where: str) -> str:
    """The content of a file as text. Raises a UserError if it is not UTF-8."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        found = f"an invalid byte at {error.start}"
        raise UserError("the file is not UTF-8", where=where, found=found) from None


def parse_json(content: bytes, where: str) -> Any:
    """The value of a JSON document. Raises UserError if it is invalid, or if a number of it is not
    finite: NaN, Infinity, 1e999. `where` names the file."""
    try:
        value = json.loads(decoded(content, where))
    except json.JSONDecodeError as error:
        raise UserError(f"invalid JSON: {error.msg}", where=f"{where}:{error.lineno}") from None
    except (RecursionError, ValueError) as error:  # too deep, or an integer of too many digits
        raise UserError("invalid JSON", where=where, found=str(error)) from None
    for key, number in _not_finite(value, ""):
        problem = "a number of the record is not finite"
        raise UserError(problem, where=f"{where}: {key}", expected="a number", found=str(number))
    return value


def _not_finite(value: object, key: str) -> Iterator[tuple[str, float]]:
    """The numbers that are not finite, each with its key, such as `outcome.hosts[0]`."""
    if isinstance(value, float) and not math.isfinite(value):
        yield key, value
    elif isinstance(value, dict):
        for name, item in value.items():
            if isinstance(item, float | dict | list):
                yield from _not_finite(item, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if isinstance(item, float | dict | list):
                yield from _not_finite(item, f"{key}[{index}]")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises a UserError with file and line if the file has none."""
    try:
        value = parse_json(path.read_bytes(), str(path))
    except FileNotFoundError:
        raise UserError("file not found", where=str(path)) from None
    except OSError as error:
        raise UserError(
            "cannot read the file", where=str(path), found=error.strerror or str(error)
        ) from None
    if not isinstance(value, dict):
        raise UserError(
            "the file does not contain a JSON object", where=str(path), found=type(value).__name__
        )
    return value


def readable_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one if there is none that can be read."""
    with suppress(UserError, ValueError):
        return read_json(path)
    return {}


def as_object(value: object) -> dict[str, Any]:
    """The value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}
