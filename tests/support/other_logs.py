"""Logs of others for tests: made, loaded, and what became of them."""

from __future__ import annotations

from pathlib import Path

from make_logs import dllogger, gluoncv

from dlperf_runner.core.errors import UserError
from dlperf_runner.results.load import Results, load_results
from dlperf_runner.results.statement import statements_of

GOOD = gluoncv(50.0)


def load(*sources: Path, mapping: Path | None = None, **options: str) -> Results:
    return load_results(sources, statements=statements_of(options, mapping), jobs=1)


def only(results: Results) -> UserError:
    (problem,) = results.problems
    return problem


def cases(results: Results) -> list[tuple[str, str, int, str, int]]:
    return [
        (run.workload, run.precision, run.batch_size_per_device, str(run.topology), run.repeat)
        for run in results.counted
    ]


def speedometer(network: str, *, parallel: bool = False) -> list[str]:
    """A log of ArcFace as its programs print it, with the line of their options."""
    head = (
        f"Called with argument: Namespace(batch_size=2, ctx_num=1,"
        f"{' ctx_num_classes=10,' if parallel else ''} frequent=20, network='{network}',"
        f" per_batch_size=2) {{'max_steps': 120}}"
    )
    step = "Iter[0] Batch [{1}]" if parallel else "Epoch[0] Batch [{0}-{1}]"
    return [
        head,
        *(
            f"INFO:root:{step.format(n - 20, n)}\tSpeed: 2{n % 7}.5 samples/sec"
            for n in range(20, 121, 20)
        ),
    ]


PARAMETER = (
    "DLL 2022-11-24 03:54:04.072998 - PARAMETER arch : {arch}  batch_size : 256  num_iter : {steps}"
    "  iter_unit : batch  warmup_steps : {warmup}  display_every : 10  data_dir : {data}"
    "  dali : {dali}  synthetic_data_size : 224  xla : {xla}  amp : True  cpu : {cpu} "
)
STATED = {
    "arch": "resnet50",
    "steps": 500,
    "warmup": 200,
    "data": "/data/tfrecords",
    "dali": False,
    "xla": True,
    "cpu": False,
}


def stating(**changes: object) -> list[str]:
    """A log of DLLogger with all that its program states."""
    _, *rest = dllogger(9400.0, 8, amp=True, final=9400.0)
    return [PARAMETER.format(**{**STATED, **changes}), *rest]
