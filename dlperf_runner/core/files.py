"""Files that other programs read while they are written: each appears whole or not at all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from .errors import UserError


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file by a temporary name and a rename; parents are made. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return path


def write_result(path: Path, content: str | bytes) -> Path:
    """Write a file that the user asked for; a UserError where that fails."""
    try:
        return write_whole(path, content)
    except OSError as error:
        raise UserError(
            "the result cannot be written",
            where=str(path),
            found=error.strerror or str(error),
            hint="name another place, for instance with --output-dir",
        ) from None


def json_text(value: object) -> str:
    """How this project writes JSON, with a line end. Raises ValueError on NaN, which is no JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path, value: object) -> Path:
    """Write a JSON file as `write_whole` does."""
    return write_whole(path, json_text(value))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; a UserError that names file and line where it is none."""
    try:
        value = json.loads(path.read_bytes().decode())
    except FileNotFoundError:
        raise UserError("this file is missing", where=str(path)) from None
    except OSError as error:
        raise UserError(
            "this cannot be read", where=str(path), found=error.strerror or str(error)
        ) from None
    except UnicodeDecodeError as error:
        raise UserError("this is not UTF-8", where=str(path), found=f"byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise UserError(f"this is not JSON: {error.msg}", where=f"{path}:{error.lineno}") from None
    if not isinstance(value, dict):
        raise UserError("this is no JSON object", where=str(path), found=type(value).__name__)
    return value
