"""Statements of the lines of a log about its run: settings, and the rate over the whole run."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from . import text
from .reader import Block
from .records import Format, Header, LineError, Statement

# Pairs in argparse.Namespace(batch_size=128, dtype='float32', ...) {'max_steps': 120, ...}
NAMESPACE = re.compile(
    r"\b(\w{1,64}+)(?:=|': )('[^']{0,1000}+'|\"[^\"]{0,1000}+\"|[^,(){}]{0,1000}+)"
)
_COUNTS = {
    "batch_size_per_device": "batch size",
    "global_batch_size": "global batch size",
    "world_size": "world size",
    "devices_per_node": "number of devices",
    "nodes": "number of nodes",
    "total_steps": "number of steps",
    "log_every": "log interval",
}
_OF_COUNTS = {"whole_mesh", "iterations", "updates", "samples_per_s", "step_ms"}
_FIELDS = {*_COUNTS, *Header.__dataclass_fields__, *_OF_COUNTS}
_EXACT_BATCH = 0.4  # samples
_CHANGED = "changed"  # the accumulation, as in a run resumed on another number of devices
# Groups whose product is the world size; experts and virtual stages are spread over these devices.
_MESH = ("mesh_pp", "mesh_ddp", "mesh_fsdp", "mesh_cp", "mesh_tp")
# The hardware, the framework and an environment variable decide on TF32.
EXACT = "fp32|tf32"
_DTYPES = {"float32": EXACT, "float16": "fp16", "bfloat16": "bf16"}
_BATCH = re.compile(r"\d{1,9}(?:\.\d{1,18})?", re.ASCII)
_INTEGER = re.compile(r"\d{1,18}|\d{1,3}(?:,\d{3}){1,5}", re.ASCII)
_WRAPPED = re.compile(text.WRAPPED)
_DIGITS = re.compile(rb"\r?\n\d{1,18}+%s" % text.END)  # the rest of a count
LONGEST = 2**12  # a printed namespace has about 2000 characters


def headers(form: Format, block: Block, of_rank: Block) -> list[Header]:
    """The headers in a block, in the order of the log. The rate over the whole run is taken from
    `of_rank`, the lines of the rank whose steps count."""
    by_line: dict[int, dict[Statement, str]] = {}
    of_marker: dict[tuple[str, bool], list[tuple[int, str]]] = {}
    for statement in form.statements:
        key = (statement.marker, statement.is_final)
        if key not in of_marker:
            of_marker[key] = list(_lines(*key, of_rank if statement.is_final else block))
        for line, text_of_line in of_marker[key]:
            by_line.setdefault(line, {})[statement] = text_of_line
    stated = (_header(form, line, tuple(by_line[line].items())) for line in sorted(by_line))
    return [header for header in stated if header]


def _lines(text_of: str, is_final: bool, block: Block) -> Iterator[tuple[int, str]]:
    """The lines with a marker, each with its number. Raises LineError if a number is wrapped."""
    data, marker = block.data, text_of.encode()
    last = data.rfind(marker) + len(marker)  # found fast: see reader.holds
    at = data.find(marker, 0, last)
    while at >= 0:
        start, end = max(0, at - LONGEST), min(at + LONGEST, len(data))
        for newline in (b"\n", b"\r"):
            start = data.rfind(newline, start, at) + 1 or start
            after = data.find(newline, at, end)
            end = after if after >= 0 else end
        if is_final and (wrapped := _WRAPPED.match(data, end)):
            end = wrapped.end()
        elif data[end - 1 : end].isdigit() and (wrapped := _DIGITS.match(data, end)):
            raise LineError(
                block.line(at),
                "the line is wrapped within a number",
                expected="the number in one line",
                found=repr(data[at : wrapped.end()].decode("utf-8", "replace")[-40:]),
            )
        yield block.line(at), data[start:end].decode("utf-8", "replace")
        at = data.find(marker, end, last)


def _fields(statement: Statement, line: str) -> dict[str, str]:
    if statement.options:
        pairs = statement.pattern.findall(line[line.index(statement.marker) :])
        named = {k: v.strip("'\"") for k, v in reversed(pairs)}  # the first one counts
        fields = {f: named[option] for option, f in statement.options.items() if option in named}
    else:
        match = statement.pattern.search(line)
        if match and (refusal := statement.refusal):
            raise LineError(
                0,
                refusal.problem,
                expected=refusal.expected,
                found=match[0].strip(),
                hint=refusal.hint,
            )
        groups = match.groupdict() if match else {}
        fields = {name: value for name, value in groups.items() if value is not None}
    return {name: statement.values.get(value, value) for name, value in fields.items()}


@functools.lru_cache(maxsize=256)  # the logs of a tree repeat the same lines
def _header(form: Format, line: int, texts: tuple[tuple[Statement, str], ...]) -> Header | None:
    """The header for a line of the log; None if no statement matches it."""
    stated: dict[str, str] = {}
    try:
        for statement, text_of_line in texts:
            stated = _fields(statement, text_of_line) | stated
        return _header_of(form, line, stated) if stated else None
    except LineError as error:
        raise error.at(line) from None


def _header_of(form: Format, line: int, stated: dict[str, str]) -> Header:
    counts: dict[str, Any] = {
        name: (_batch if name == "batch_size_per_device" else _count)(_COUNTS[name], stated[name])
        for name in _COUNTS
        if name in stated
    }
    if "whole_mesh" in stated:
        degrees = (stated[name] for name in _MESH if name in stated)
        counts["world_size"] = math.prod(_count("degree of parallelism", n) for n in degrees)
    if "tokens_per_step" in stated:
        tokens = _count("number of tokens", stated["tokens_per_step"])
        if "sequence_length" in stated:
            counts["global_batch_size"] = _samples(tokens, stated["sequence_length"])
        else:
            counts["tokens_per_step"] = tokens
    if "step_ms" in stated:
        rate, seconds = float(stated["samples_per_s"]), float(stated["step_ms"]) / 1000
        # The digits say which whole number their product is.
        if 0.0005 * seconds + 0.00005 * rate < _EXACT_BATCH and rate * seconds > _EXACT_BATCH:
            counts["global_batch_size"] = round(rate * seconds)
    if "updates" in stated:
        iterations = int(stated["iterations"]) + form.zero_based
        batches, rest = divmod(iterations, _count("number of updates", stated["updates"]))
        stated = {**stated, "accumulation_steps": _CHANGED if rest else str(batches)}
    if "devices_per_node" in counts:
        counts["world_size"] = counts["nodes"] * counts.pop("devices_per_node")
    precision, final, writer = map(stated.get, ("precision", "final_samples_per_second", "writer"))
    warmup = stated.get("warmup_steps")
    return Header(
        line,
        **counts,
        precision=_DTYPES.get(precision, precision) if precision else None,
        final_samples_per_second=None if final is None else text.rate(final.encode(), form),
        writer=None if writer is None else int(writer),
        warmup_steps=None if warmup is None else int(warmup),
        network=stated.get("network"),
        parameters=tuple((name, stated[name]) for name in sorted(stated.keys() - _FIELDS)),
    )


def without_changed(headers: list[Header]) -> list[Header]:
    """The headers; without the accumulated batches if a line shows that their number changed."""
    changed = ("accumulation_steps", _CHANGED)
    if not any(changed in header.parameters for header in headers):
        return headers
    kept = [[p for p in header.parameters if p[0] != changed[0]] for header in headers]
    changes = zip(headers, kept, strict=True)
    others = [replace(header, parameters=tuple(parameters)) for header, parameters in changes]
    return [header for header in others if header != Header(header.line)]


def _batch(what: str, printed: str) -> float:
    """A printed batch size per device, which may be a fraction."""
    if not _BATCH.fullmatch(printed) or not float(printed):
        problem = f"the {what} is not a positive number"
        raise LineError(0, problem, expected="a number above 0", found=repr(printed))
    return int(float(printed)) if float(printed).is_integer() else float(printed)


def _samples(tokens: int, length: str) -> int:
    """The samples of a step with so many tokens."""
    of_sample = _count("sequence length", length)
    if tokens % of_sample:
        problem = "the tokens of a step are no whole number of sequences"
        raise LineError(0, problem, expected=f"a multiple of {of_sample}", found=str(tokens))
    return tokens // of_sample


def _count(what: str, printed: str) -> int:
    """A printed count of 1 or more; `what` names it in errors."""
    value = int(printed.replace(",", "")) if _INTEGER.fullmatch(printed) else 0
    if value < 1:
        problem = f"the {what} is not a positive integer"
        raise LineError(0, problem, expected="1 or more", found=repr(printed))
    return value
