"""Settings that a log states before its first steps, and the names that its program has for the
network, the data and the options."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .. import logs
from ..catalog.accelerators import may_use_tf32
from ..catalog.workload import Model, workload_name
from ..core.errors import UserError
from ..core.identity import (
    as_batch_size,
    data_of,
    parameters_text,
    precision_of_recipe,
    read_parameters,
)
from ..measure.settings import first_stated
from .log_file import LogFile
from .run_record import FoundRun
from .statement import Stated

ASSUMED_GLOBAL = (
    "a batch size such as bs64 in a name is taken as that of all devices, not of one, because the"
    " log of that name states it so"
)
ASSUMED_SHARED = (
    "by the batch sizes in the log, {} devices share a batch, as with tensor or sequence"
    " parallelism; without these, the stated topology is wrong"
)
ASSUMED_FP32 = (
    "precision: neither the logs nor the accelerator say whether the products of matrices in runs"
    " named fp32 were FP32 or TF32, the default of A100 and newer GPUs in most frameworks; state it"
    " with --precision, or an older GPU with --accelerator"
)
# The model of a table of collectives whose log does not name the program.
UNKNOWN_COLLECTIVE = "unknown-collective"
_FIELDS = ("world_size", "nodes", "precision")
# Degrees of parallelism in logs, as publications call them.
_DEGREES = re.compile(r"mesh_(\w+)")
# Axes whose devices train on samples of their own, the outermost first.
DATA_AXES = ("dcn_ddp", "dcn_fsdp", "ddp", "fsdp")
# Scalings of FP8 in Megatron-LM, as its publications call them; that without a suffix is delayed.
_SCALINGS = {"delayed": "", "tensorwise": "-cs", "mxfp8": "-mx", "blockwise": "-sc"}
_COUNT = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
# What a step counts.
_COUNTED = frozenset(("accumulation_steps", "sequence_length"))
# Parameters that programs print as the plan has them.
_PLANNED = (
    *("accumulation_steps", "classes", "image_size", "message_bytes", "noise", "parallel"),
    *("recipe", "recompute", "sample_rate", "sequence_length"),
)
# What logs state and campaigns do not choose.
_PRINTED = (
    *_PLANNED,
    *("augmentation", "channel_last", "data_backend", "embedding_size", "fuse_bn_add_relu"),
    *("fuse_bn_relu", "gradient_acc", "jit", "memonger", "memory_format", "mixup"),
    *("optimizer_batch_size", "pad_output", "quantize", "use_se"),
    *("aggregated_iterations", "blocking", "cuda_graphs"),
)


def headers_of(log: LogFile, rank: str | None = None) -> list[logs.Header]:
    """The headers before the first steps of a log. Raises UserError if a line is invalid."""
    return log.read(0, rank)[0].headers


def head_of(headers: Iterable[logs.Header]) -> Mapping[str, Stated]:
    """The settings that the headers of a log state, by field; `by` names the line."""
    settings: dict[str, Stated] = {}
    for header in headers:
        for field in _FIELDS:
            if (value := getattr(header, field)) is not None:
                settings.setdefault(field, Stated(value, f"line {header.line} of the log"))
    return settings


def batch_of(
    headers: Sequence[logs.Header], form: logs.Format, world_size: int
) -> tuple[Stated | None, float | None]:
    """The batch size per device that a log states, and that of one of the accumulated batches, as
    far as the program shares it among the devices."""
    by = "line {} of the log".format
    printed = _printed(headers)
    micro = printed.get("micro_batch_size")
    of_log = next((h for h in headers if h.batch_size_per_device is not None), None)
    one = int(micro) if micro and _COUNT.fullmatch(micro) else None
    of_all = ((h.line, h.global_batch_size) for h in headers if h.global_batch_size is not None)
    shared = next((Stated(as_batch_size(n / world_size), by(line)) for line, n in of_all), None)
    if not form.batch_of_step:
        stated = Stated(of_log.batch_size_per_device, by(of_log.line)) if of_log else shared
        return stated, one
    if shared:
        return shared, one
    if of_log is None or of_log.batch_size_per_device is None:
        return _batch_of_replica(headers, printed, one), one
    one_batch = of_log.batch_size_per_device
    number = int(printed.get("accumulation_steps", "1"))
    return Stated(as_batch_size(one_batch * number), by(of_log.line)), as_batch_size(one_batch)


def _batch_of_replica(
    headers: Iterable[logs.Header], printed: Mapping[str, str], batch: int | None
) -> Stated | None:
    """The batch size per device where a log states only that of a data-parallel rank, as
    Megatron-LM did before it accumulated batches: the devices of the rank share it."""
    line = next((h.line for h in headers if "micro_batch_size" in dict(h.parameters)), None)
    if batch is None or line is None or "accumulation_steps" in printed:
        return None
    shared = math.prod(int(printed.get(f"mesh_{axis}", "1")) for axis in ("tp", "pp", "cp"))
    return Stated(as_batch_size(batch / shared), f"line {line} of the log")


def _printed(headers: Iterable[logs.Header]) -> dict[str, str]:
    """The parameters that the headers state; the first line counts."""
    return dict(pair for header in reversed([*headers]) for pair in header.parameters)


def accumulation_of(headers: Iterable[logs.Header]) -> int | None:
    """The batches that a step accumulates, if the log states it."""
    number = _printed(headers).get("accumulation_steps", "")
    return int(number) if _COUNT.fullmatch(number) else None


def check_network(
    headers: Iterable[logs.Header], run: FoundRun, entry: Model, form: logs.Format
) -> None:
    """Raise UserError if the log states another network than that of its run."""
    for header in headers:
        if header.network is None:
            continue
        candidates = [*map(_plain, header.network.split("|"))]
        is_program = entry.workload.name == workload_name(form)
        if is_program and any(same_network(entry.name, name) for name in candidates):
            continue
        if is_program and len(candidates) > 1 and entry.name == UNKNOWN_COLLECTIVE:
            continue
        if not is_network_of(header.network, entry):
            raise UserError(
                f"the network contradicts {run.source_of('network')}",
                where=f"{run.path}:{header.line}",
                expected=entry.name,
                found=header.network,
            )


def is_network_of(network: str, entry: Model) -> bool:
    """True if a network, as a program calls it, or one of several, is that of an entry."""
    return not {*map(_plain, network.split("|"))}.isdisjoint(map(_plain, entry.names))


@functools.cache
def _plain(name: str) -> str:
    """A name without what programs write differently: resnet50v1b for resnet50_v1b, vitb16 for
    vit_base_patch16, and llama8b for llama-3.1-8b, the network of llama-3-8b and llama-8b."""
    name = re.sub(r"llama-?3([._]\d)?[-_ ]?(?=\d+b)", "llama", name.lower())
    name = re.sub(r"(?<=[a-z_-])([tsblh])(?:iny|mall|ase|arge|uge)(?![a-z])", r"\1", name)
    return re.sub(r"patch(?=\d)|[^a-z0-9.]", "", name)


def same_network(word: str, network: str) -> bool:
    """True if a word of a user can name a network: rn50 that of resnet50, bert-large-uncased that
    of bertlarge, and r50 both resnet50 and r50, which ArcFace's programs call another one."""
    first, second = (re.sub(r"^rn(?=\d)", "resnet", _plain(name)) for name in (word, network))
    names = (first, re.sub(r"^r(?=\d)", "resnet", first))
    return any(name.startswith(second) or second.startswith(name) for name in names)


def check_parameters(headers: Iterable[logs.Header], run: FoundRun) -> None:
    """Raise UserError if the log states another parameter than that of its planned run."""
    planned = read_parameters(run.parameters)
    for header in headers:
        for name, value in header.parameters:
            if name in _PLANNED and planned.get(name, value) != value:
                raise UserError(
                    f"the parameter {name} contradicts {run.source_of('parameters')}",
                    where=f"{run.path}:{header.line}",
                    expected=planned[name],
                    found=value,
                )


def with_options(
    run: FoundRun, headers: Iterable[logs.Header], entry: Model, form: logs.Format
) -> FoundRun:
    """A run that is no part of a campaign, with what its log states: the parameters, the device,
    and the number of steps and warm-up steps. Without a published rule, the number of steps is
    enough; the share of the warm-up is that of the catalogue."""
    headers = list(headers)
    printed = _printed(headers)
    if "measured_bytes" in printed:  # where no plan states another largest message
        printed["message_bytes"] = printed["measured_bytes"]
    if entry.workload.log_pattern is not None:  # of the user, whose file states what no log does
        for name in _COUNTED.intersection(entry.workload.parameters):
            printed.setdefault(name, str(entry.workload.parameters[name]))
    for name, value in run.stated_parameters:
        if printed.setdefault(name, value) != value:
            raise UserError(
                f"the {name.replace('_', ' ')} in the log contradicts {run.source_of(name)}",
                where=str(run.path),
                expected=value,
                found=printed[name],
            )
    batch, one_batch = batch_of(headers, form, run.topology.world_size)
    run = _with_sharing(run, printed, headers)
    # It is named after one of the accumulated batches, or after the global one.
    named = run.batch_size_per_device
    if batch and named in (one_batch, batch.value * run.topology.world_size):
        if named not in (one_batch, batch.value):
            run = run.but(assumed=(*run.assumed, ASSUMED_GLOBAL))
        run = run.but(batch_size_per_device=batch.value)
    parameters = dict(_parameters(printed, entry, run, one_batch, form))
    # The other operations of a recipe have the precision that the log states.
    recipe = precision_of_recipe(parameters.get("recipe"))
    if recipe and run.precision in (recipe, recipe.removeprefix("mx")):
        stated_precision = head_of(headers).get("precision")
        run = run.but(precision=stated_precision.value if stated_precision else "bf16")
    if parameters:
        run = run.but(parameters=parameters_text(parameters))
    if printed.get("cpu") == "True":
        if run.accelerator not in (None, "cpu"):
            raise UserError(
                "the log contradicts the stated or named accelerator: it is of a CPU",
                where=str(run.path),
                expected=run.accelerator,
                found="cpu : True",
            )
        asserted = tuple(item for item in run.asserted if item[0] != "accelerator")
        run = run.but(accelerator="cpu", asserted=asserted)
    stated = dict(run.stated_by)
    if not form.is_fp32 and _may_be_tf32(run, headers):
        run = run.but(assumed=(*run.assumed, ASSUMED_FP32))
    total, warmup = (
        getattr(run.rule, field) if field in stated else first_stated(headers, field)
        for field in ("total_steps", "warmup_steps")
    )
    if total is not None and warmup is None and not entry.is_published:
        warmup = entry.workload.rule.warmup_of(total)
    if total is None or warmup is None or warmup >= total:
        return run
    return run.but(rule=entry.rule_of(total, warmup))


def _with_sharing(
    run: FoundRun, printed: Mapping[str, str], headers: Iterable[logs.Header]
) -> FoundRun:
    """The run, with a note if several devices share a batch, as far as its log states how many
    batches a step has. Raises UserError if the log states other devices than its topology."""
    world, of_node = run.topology.world_size, printed.get("devices_of_node")
    if of_node and int(of_node) != run.topology.gpus_per_node:
        raise _of_other_devices(run, "devices of a node", of_node)
    batches, shown = _batches_of_step(printed, headers)
    if batches is None or world == batches or (_parallel(printed, world) and world % batches == 0):
        return run
    if world % batches:
        what = f"{batches} devices, or a multiple of which several share a batch{shown}"
        raise _of_other_devices(run, "batch sizes", what)
    return run.but(assumed=(*run.assumed, ASSUMED_SHARED.format(world // batches)))


def _batches_of_step(
    printed: Mapping[str, str], headers: Iterable[logs.Header]
) -> tuple[int | None, str]:
    """The batches that devices take at once, if the log states it, and the numbers that show it."""
    texts = {
        name: printed.get(name, "")
        for name in ("data_parallel", "micro_batch_size", "accumulation_steps", "sequence_length")
    }
    counts = {name: int(text) for name, text in texts.items() if _COUNT.fullmatch(text)}
    if "data_parallel" in counts:
        return counts["data_parallel"], ""
    of_all = 0
    for header in headers:
        of_all = of_all or header.global_batch_size or 0
        if header.tokens_per_step and "sequence_length" in counts:
            of_all = of_all or header.tokens_per_step // counts["sequence_length"]
    if not of_all or not counts.keys() >= {"micro_batch_size", "accumulation_steps"}:
        return None, ""
    one, accumulated = counts["micro_batch_size"], counts["accumulation_steps"]
    batches, rest = divmod(of_all, one * accumulated)
    shown = f", because it states {of_all} = {one} x {accumulated} (accumulated) x {batches}"
    return (None, "") if rest or not batches else (batches, shown)


def _of_other_devices(run: FoundRun, what: str, expected: str) -> UserError:
    return UserError(
        f"the {what} in the log contradict the number of devices",
        where=str(run.path),
        expected=expected,
        found=str(run.topology),
        hint="rename it, or state --topology",
    )


def _parallel(printed: Mapping[str, str], world_size: int) -> str | None:
    """The way in which the devices share the work: `fsdp`, or `fsdp, tp 8`; None if the log does
    not state it, or they do not share it. The outermost data axis has no degree, which the number
    of devices gives: the same settings on more nodes have the same text. In MaxText, -1 stands for
    all other devices."""
    sizes = {m[1]: int(size) for name, size in printed.items() if (m := _DEGREES.fullmatch(name))}
    if not sizes:
        return None
    of_devices = [size for name, size in sizes.items() if name not in ("ep", "vp")]
    left = max(1, world_size // math.prod(size for size in of_devices if size > 0))
    degrees = {name: left if size < 0 else size for name, size in sizes.items()}
    shared = {name: size for name, size in sorted(degrees.items()) if size != 1}
    data = [name for name in DATA_AXES if name in shared][:1]
    rest = [f"{name.replace('_', ' ')} {shared[name]}" for name in shared if name not in data]
    return ", ".join([name.replace("_", " ") for name in data] + rest) or None


def _recipe(printed: Mapping[str, str]) -> str:
    """The recipe of Megatron-LM: `fp8` is that of its publications, hybrid with delayed scaling."""
    nothing = ("None", "False")
    if (printed.get("fp4", "None")) not in nothing:
        return "nvfp4"
    if printed["fp8"] in nothing:
        return "none"
    scaling = printed.get("fp8_recipe", "delayed")
    kind = "" if printed["fp8"] in ("hybrid", "True") else f"-{printed['fp8']}"
    return f"fp8{_SCALINGS.get(scaling, f'-{scaling}')}{kind}"


def _may_be_tf32(run: FoundRun, headers: Iterable[logs.Header]) -> bool:
    """True if a run that only its name calls fp32 may be one of TF32."""
    if run.precision != "fp32" or "precision" in dict(run.stated_by):
        return False
    if not may_use_tf32(run.accelerator):
        return False
    return all(header.precision != "fp32" for header in headers)


def stated_counts(run: FoundRun, headers: Iterable[logs.Header]) -> dict[str, int]:
    """The parameters that are numbers above 0, as the plan or the log states them."""
    stated = dict(pair for header in headers for pair in header.parameters)
    stated |= read_parameters(run.parameters)
    return {name: int(text) for name, text in stated.items() if _COUNT.fullmatch(text)}


def _parameters(
    printed: Mapping[str, str],
    entry: Model,
    run: FoundRun,
    one_batch: float | None,
    form: logs.Format,
) -> Iterator[tuple[str, str]]:
    of_step = form.batch_of_step
    usual = {"accumulation_steps": "1"} if of_step or form.counts_batches else {}
    # As in the identity of planned runs.
    usual |= {n: str(entry.workload.parameters[n]) for n in entry.workload.if_changed}
    for name in _PRINTED:
        if name in printed and printed[name] != usual.get(name):
            yield name, printed[name]
    if of_step and one_batch is not None and one_batch != run.batch_size_per_device:
        yield "micro_batch_size", f"{one_batch:g}"
    if parallel := _parallel(printed, run.topology.world_size):
        yield "parallel", parallel
    if "fp8" in printed:
        yield "recipe", _recipe(printed)
    if "data" in printed:
        data = data_of(printed["data"], entry.synthetic_data)
        yield "data", data
        if data != "synthetic" and "dali" in printed:
            yield "input_pipeline", "DALI" if printed["dali"] == "True" else "framework"
    if "xla" in printed:
        yield "xla", printed["xla"].lower()
