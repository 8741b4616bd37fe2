"""What the parsers make of a log, line by line, for tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dlperf_runner import logs

TAG = "Tue Jun 14 15:40:21 2022[1,0]<stdout>:"
# What launchers write before each line of a rank, and of how many ranks that tells.
LABELS = {
    "srun": ("{}: ", 2),
    "srun, padded": (" {}: ", 2),
    "PyTorch": ("[rank{}]:", 2),
    "torchrun": ("[default{}]:", 2),
    "torchrun, of a replica": ("[trainer0|{}]:", 2),
    "kubectl": ("[pod/llama-worker-{}/pytorch] ", 2),
    "Ray": ("(RayTrainWorker pid=4711{}, ip=10.0.0.2) ", 2),
    "SkyPilot": ("(worker{0}, rank={0}, pid=4711) ", 2),
    "docker compose": ("trainer-{}  | ", 2),
    "Primus": ("[20260929 19:48:42][rank-{}/2][INFO]     ", 2),
    "mpirun": ("[1,{}]<stdout>:", 2),
    "time stamps": ("2026-11-20T13:40:15.997123456Z ", 1),
    "ts": ("Nov 20 13:40:15 ", 1),
    "both": ("2026-11-20T13:40:15Z [rank{}]: ", 2),
    "colours": ("\x1b[32m[rank{}]:\x1b[0m ", 2),
}


class Step(NamedTuple):
    """A line with a rate."""

    step: int
    samples_per_second: float
    line: int
    loss: float | None = None
    unix_time: float | None = None


def pieces(content: str | bytes, size: int | None = None) -> list[bytes]:
    """The content in pieces of that many bytes."""
    data = content.encode() if isinstance(content, str) else content
    return [data[at : at + size] for at in range(0, len(data), size)] if size else [data]


def read(
    log_format: str, content: str | bytes, size: int | None = None
) -> tuple[list[logs.Header], list[Step]]:
    """The headers and steps of a log, which may be of a variant of the format."""
    main, parts = logs.formats()[log_format], pieces(content, size)
    entry = logs.detect(parts, {log_format: main}) or main
    log = logs.parse(entry, parts)
    columns = log.columns
    lines = (logs.line_of(entry, parts, index) for index in range(len(columns.steps)))
    rows = zip(
        *(columns.steps, columns.samples_per_second, lines, columns.losses, columns.unix_times),
        strict=True,
    )
    return log.headers, [Step(*row) for row in rows]


def steps(log_format: str, content: str | bytes) -> list[tuple[int, float]]:
    return [(step.step, step.samples_per_second) for step in read(log_format, content)[1]]


def stated(headers: Iterable[logs.Header]) -> list[dict[str, Any]]:
    """What each header states."""
    return [
        {key: value for key, value in vars(header).items() if value not in (None, ())}
        | ({"parameters": dict(header.parameters)} if header.parameters else {})
        for header in headers
    ]


def together(headers: Iterable[logs.Header]) -> dict[str, Any]:
    """What all headers state together; where two differ, the later one."""
    found: dict[str, Any] = {}
    for one in stated(headers):
        parameters = {**found.get("parameters", {}), **one.get("parameters", {})}
        found |= {**one, "parameters": parameters}
    return found


def confirm(
    log_format: str, content: str, steps: list[tuple[int, float, float | None]], **settings: Any
) -> None:
    """Assert that a log is read as these steps, rates and losses, and states these settings."""
    headers, rows = read(log_format, content)
    assert [(row.step, row.samples_per_second, row.loss) for row in rows] == steps
    whole = together(headers)
    assert {name: whole.get(name) for name in settings} == settings
