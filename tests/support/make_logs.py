"""Logs made for tests: whose runs have given speeds, and campaigns around them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from csv_tables import table

from dlperf_runner.catalog.workload import Model, Workload
from dlperf_runner.measure.estimators import Rule

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "dlperf_runner" / "catalog" / "published"

_mean = partial(Rule, estimator="mean_of_rates")
RULES = {
    "mxnet-resnet50v1b.md": _mean(total_steps=120, warmup_steps=20),
    "mxnet-insightface-arcface.md": _mean(
        total_steps=120, warmup_steps=20, log_every=20, rates_are_per="node", round_rates_to=1
    ),
    # The program prints the line of batch 150 before it stops.
    "paddle-plsc-arcface.md": _mean(total_steps=150, warmup_steps=50, surplus_steps=1),
}
ONEFLOW = _mean(total_steps=200, warmup_steps=20, log_every=20, round_value_to=3)
TENSORFLOW = _mean(
    total_steps=500,
    warmup_steps=200,
    log_every=10,
    drop_first_values=5,
    final_value_from_world_size=32,
)
LLAMA = _mean(total_steps=100, warmup_steps=20, log_every=10, rates_are_per="device")
MAXTEXT = _mean(total_steps=30, warmup_steps=10, rates_are_per="device")
MEGATRON = _mean(
    estimator="harmonic_mean_of_rates",
    total_steps=100,
    warmup_steps=20,
    log_every=10,
    rates_are_per="step",
)
ARCFACE_TORCH = _mean(total_steps=100, warmup_steps=20, log_every=10)
CONVNETS = _mean(total_steps=100, warmup_steps=20, log_every=10)


def known_model(workload: str, model: str, short_name: str, log_format: str, rule: Rule) -> Model:
    """A model whose rule is that of a publication."""
    own = {"name": workload, "model": model, "short_name": short_name, "rule": rule}
    own |= {"framework": workload.partition("-")[0], "log_format": log_format, "published": ""}
    return Model(Workload.model_construct(**own), model, short_name)


RESNET = known_model(
    "mxnet-resnet50v1b", "resnet50v1b", "rn50", "gluoncv_horovod", RULES["mxnet-resnet50v1b.md"]
)
ARCFACE = known_model(
    *("mxnet-arcface", "arcface-r100", "r100", "mxnet_speedometer"),
    RULES["mxnet-insightface-arcface.md"],
)
PLSC = known_model("paddle-arcface", "arcface-r50", "r50", "plsc", RULES["paddle-plsc-arcface.md"])
NGC = known_model("tensorflow-resnet50v1.5", "resnet50v1.5", "rn50", "dllogger", TENSORFLOW)
KNOWN = (RESNET, ARCFACE, PLSC, NGC)


def published(name: str) -> list[dict[str, str]]:
    return table(PUBLISHED / f"{name}.csv")


def gluoncv(
    speed: float,
    *,
    batch: int | None = 128,
    world: int | None = None,
    dtype: str = "float32",
    steps: int = 120,
    warmup: int = 20,
) -> list[str]:
    """A log of GluonCV. The rates vary, their mean inside the window is `speed`; those of the
    warm-up and of the epoch are far off, so that counting one of them is noticed."""
    lines = ["INFO:root:ResNetV1b("]
    if batch is not None:
        lines.append(f"INFO:root:Namespace(batch_size={batch}, dtype='{dtype}', log_interval=1)")
    if world is not None:
        lines.append(f"INFO:root:world_size={world}")
    for step in range(1, steps + 1):
        rate = 7.5 if step <= warmup else speed + (0.25 if step % 2 else -0.25)
        lines.append(f"INFO:root:Epoch[0] Batch[{step}] Loss[{8 - step / 100:.3f}]")
        lines.append(f"INFO:root:Epoch[0] Rank[0] Batch[{step}]\taccuracy=0.000000\tlr=0.000000")
        lines.append(f"INFO:root:Epoch[0] Batch[{step}]\tSpeed: {rate:.2f} samples/sec")
    return [*lines, "INFO:root:Epoch[0]\tSpeed: 3.00 samples/sec"]


def speedometer(speed: float) -> list[str]:
    """A log of ArcFace, whose rates become five of one digit, 0.2 apart, with the mean `speed`."""
    tenths = round(speed * 50)  # the sum of the five
    rates = [tenths // 5 + delta for delta in (-2, 2, 0, 0, 0)]
    rates[2] += tenths % 5
    lines = ["INFO:root:Epoch[0] Batch [0-20]\tSpeed: 12.34 samples/sec\tacc=0.0\tlossvalue=41.5"]
    for number, rate in enumerate(rates, start=1):
        # 0.02 and 0.04 vanish in the rounding to one digit.
        printed = rate / 10 + 0.02 * (number % 3)
        batches = f"{20 * number}-{20 * number + 20}"
        lines.append(f"INFO:root:Epoch[0] Batch [{batches}]\tSpeed: {printed:.2f} samples/sec")
    return lines


def plsc(speed: float) -> list[str]:
    return [
        f"INFO 2021-03-12 10:{n // 60:02d}:{n % 60:02d},250 entry.py:1029] "
        f"Pass:0 batch:{n} lr:0.00039063 loss:{40.5 - n / 100:.6f} "
        f"qps:{1.5 if not 50 <= n < 150 else speed + (0.25 if n % 2 else -0.25):.2f}"
        for n in range(151)
    ]


def plsc_of(trainers: int, every: int = 1, lose: int | None = None) -> list[str]:
    """The log of a node whose trainers all print: trainer k says 100 + k; the line of that number
    is lost."""
    stamp = "INFO 2021-03-12 10:00:00,000 entry.py:203]"
    lines = [f"{stamp} trainer_id: {k}, num_trainers: {trainers}" for k in range(trainers)]
    lines.append(f"{stamp} Set log period to {every}.")
    for batch in range(0, 151, every):
        time = f"INFO 2021-03-12 10:{batch // 60:02d}:{batch % 60:02d},000 entry.py:1029]"
        # Who comes first differs from batch to batch, and one may be a line late.
        order = sorted(range(trainers), key=lambda k: (k + batch) % trainers)
        lines += [f"{time} Pass:0 batch:{batch} lr:0.1 loss:40.5 qps:{100 + k}.00" for k in order]
        if batch % (7 * every) == 0 and batch:
            lines[-trainers], lines[-trainers - 1] = lines[-trainers - 1], lines[-trainers]
    return [line for number, line in enumerate(lines, 1) if number != lose]


def oneflow(speed: float, *, times: bool = False) -> list[str]:
    """A log of OneFlow: the first of ten rates is far off, the mean of the others is `speed`."""
    deltas = (0.25, -0.25) * 4 + (0.0,)
    rates = [7.5, *(speed + delta for delta in deltas)]
    return [
        f"train: epoch 0, iter {20 * n}, loss: {7 - n / 10:.6f}, top_1: 0.000000, top_k: 0.000000,"
        f" samples/s: {rate:.3f}" + (f" {1597050000 + 7 * n}.123456" if times else "")
        for n, rate in enumerate(rates, start=1)
    ]


def dllogger(
    speed: float,
    devices: int,
    *,
    amp: bool,
    final: float,
    batch: int = 256,
    tag: str = "",
    mode: str = "training_benchmark",
) -> list[str]:
    """A log of DLLogger: five rates that are far off, then `speed`; `final` is the program's own
    mean. Only the mode train prints losses."""
    rate, rest = "total_ips", ""
    if mode == "train":
        rate, rest = "imgs_per_sec", " cross_entropy : {}  l2_loss : 0.98  total_loss : 7.5 "
    stamp = f"{tag}DLL 2022-06-14 15:40:21.026182 -"
    return [
        f"{stamp} PARAMETER batch_size : {batch}  num_iter : 500  iter_unit : batch"
        f"  warmup_steps : 200  display_every : 10  amp : {amp} ",
        f"{tag}Num GPUs {devices}",
        *(
            f"{stamp} (0, {n}) {rate} : {1.0 if n < 250 else speed} {rest.format(7 - n / 1000)}"
            for n in range(200, 500, 10)
        ),
        f"{stamp} () train_throughput : {final} images/s",
    ]


def torchtitan(
    tokens: int,
    *,
    batch: int = 2,
    length: int = 8192,
    world: int = 1,
    steps: int = 100,
    every: int = 10,
    warmup: int = 20,
) -> list[str]:
    """A log of torchtitan: `tokens` per second and device after the warm-up."""
    start = "[titan] 2025-12-01 12:{:02d}:{:02d},123 - root - INFO - "
    per_step = batch * length / tokens
    lines = [
        f"{start.format(0, 0)}Building device mesh with parallelism: pp=1, dp_replicate=1,"
        f" dp_shard={world}, cp=1, tp=1, ep=1",
        f"{start.format(0, 0)}Trainer is initialized with local batch size {batch}, global batch"
        f" size {batch * world}, gradient accumulation steps 1, sequence length {length}, total"
        f" steps {steps} (warmup 2)",
    ]
    for step in sorted({1, *range(every, steps + 1, every)}):
        second = round(step * per_step)
        rate = tokens if step > warmup else tokens // 3
        lines.append(
            f"{start.format(second // 60, second % 60)}step: {step:2}  loss: {8 - step / 100:8.5f}"
            f"  grad_norm:  1.2345  memory: 40.50GiB(51.20%)  tps: {rate:,}  tflops: 12.30"
            "  mfu: 1.20%"
        )
    lines.insert(
        5, f"{start.format(9, 0)}validate step: 20  loss:  8.1  memory: 40.50GiB(51.20%)  tps: 9"
    )
    return lines


def dllogger_pytorch(
    speed: float, *, batch: int = 256, world: int = 1, as_json: bool = False
) -> list[str]:
    """A log of DLLogger as PyTorch ConvNets print it, 100 steps; `speed` after the first 20."""
    stamp = "DLL 2022-06-14 15:{:02d}:{:02d}.026182 - "
    options = {"data": "/data", "arch": "resnet50", "print_freq": 10, "prof": 100}
    options |= {"batch_size": batch, "amp": True, "world_size": world}
    if as_json:
        started = {"timestamp": "1655221200.5", "elapsedtime": "1.0", "type": "LOG"}
        lines = [json.dumps({**started, "step": "PARAMETER", "data": options})]
        for step in range(10, 101, 10):
            rate = speed if step > 20 else speed / 3
            data = {"train.loss": 7 - step / 100, "train.total_ips": rate, "train.lr": 0.1}
            stamped = {"timestamp": f"{1655221200 + step}.5", "type": "LOG", "step": [0, step]}
            lines.append(json.dumps({**stamped, "data": data}))
        return [f"DLLL {line}" for line in lines]
    shown = " ".join(f"{name} : {value} " for name, value in options.items())
    lines = [f"{stamp.format(0, 0)}PARAMETER {shown}"]
    for step in range(10, 101, 10):
        rate = speed if step > 20 else speed / 3
        lines.append(
            f"{stamp.format(step // 60, step % 60)}Epoch: 0 Iteration: {step} "
            f" train.loss : {7 - step / 100:.5f}  train.compute_ips : {rate + 9:.2f} img/s"
            f" train.total_ips : {rate:.2f} img/s train.lr : 0.10000 "
        )
    mean = (
        f"train.loss : 6.50000  train.compute_ips : {speed:.2f} img/s train.total_ips : 1.00 img/s"
    )
    return [
        *lines,
        f"{stamp.format(2, 0)}Epoch: 0  {mean} ",
        f"{stamp.format(2, 0)}Summary: {mean} ",
    ]


def arcface_torch(
    speed: float, *, batch: int = 128, world: int = 8, classes: int = 93431, every: int = 10
) -> list[str]:
    """A log of insightface's arcface_torch, 100 steps; `speed` after the first 20. The first
    interval has no line."""
    start = "Training: 2022-03-01 10:{:02d}:{:02d},123-"
    options = {"network": "r50", "sample_rate": 0.1, "fp16": True, "batch_size": batch}
    options |= {"rec": "synthetic", "num_classes": classes, "frequent": every, "dali": False}
    options |= {"total_batch_size": batch * world, "total_step": 100}
    lines = [f"{start.format(0, 0)}: {name:<25}{value}" for name, value in options.items()]
    for step in range(2 * every, 101, every):
        rate = speed if step > 20 else speed / 3
        lines.append(
            f"{start.format(step // 60, step % 60)}Speed {rate:.2f} samples/sec"
            f"   Loss {40 - step / 100:.4f}   LearningRate 0.100000   Epoch: 0"
            f"   Global Step: {step}   Fp16 Grad Scale: 65536   Required: 1 hours"
        )
    return lines


def maxtext(
    tokens: float, *, batch: int = 4, length: int = 2048, world: int = 1, steps: int = 30
) -> list[str]:
    """A log of MaxText: `tokens` per second and device after the first third."""
    options = {"dtype": "bfloat16", "max_target_length": length, "steps": steps}
    lines = [f"Config param {k}: {v}" for k, v in options.items()]
    lines += [f"Config param per_device_batch_size: {batch}.0", f"Num_devices: {world}, shape (1,)"]
    for step in range(steps):
        rate = tokens if 3 * step >= steps else 20 * tokens
        lines.append(
            f"completed step: {step}, seconds: {batch * length / rate:.3f}, TFLOP/s/device: 134.9"
            f"09, Tokens/s/device: {rate:.3f}, total_weights: {batch * length * world},"
            f" loss: {10 - step / 100:.3f}"
        )
    return lines


def megatron(
    milliseconds: float, *, batch: int = 16, length: int = 4096, world: int = 8, steps: int = 100
) -> list[str]:
    """A log of Megatron-LM: steps of that duration after the first fifth."""
    arguments = {"bf16": True, "fp16": False, "global_batch_size": batch, "log_interval": 10}
    arguments |= {"seq_length": length, "train_iters": steps, "world_size": world}
    lines = ["------------------------ arguments ------------------------"]
    lines += [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in arguments.items()]
    for step in (1, *range(10, steps + 1, 10)):
        duration = milliseconds if 5 * step > steps else 5 * milliseconds
        lines.append(
            f" [2026-04-27 00:00:{step // 2:02d}.123456] iteration {step:8d}/{steps:8d} | consumed "
            f"samples: {step * batch:12d} | elapsed time per iteration (ms): {duration:.1f} |"
            f" learning rate: 1.000000E-04 | global batch size: {batch:5d} |"
            f" lm loss: {8 - step / 100:.6E} | loss scale: 1.0 | grad norm: 1.000 |"
        )
    return lines


MAKE = {
    "mxnet-resnet50v1b.md": gluoncv,
    "mxnet-insightface-arcface.md": speedometer,
    "paddle-plsc-arcface.md": plsc,
    "oneflow-resnet50v1.5.md": oneflow,
}


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def published_tree(directory: Path, source: str) -> None:
    """The tree of one published report, with its runs' speeds."""
    for run in published("published_runs"):
        if run["source"] == source:
            path = directory / run["log_path"]
            write(path, MAKE[source](float(run["samples_per_second"])))


def campaign_run(
    campaign: Path, topology: str, repeat: int, lines: list[str] | None, **changes: object
) -> Path:
    """One run of a campaign: run.json, and its log where there are lines; returns its folder."""
    nodes, devices = (int(number) for number in topology.rstrip("g").split("n"))
    case = f"mxnet-resnet50v1b-builtin_fp32_b128_{topology}"
    document = {
        "id": f"{case}/r{repeat}",
        "case": case,
        "repeat": repeat,
        "workload": "mxnet-resnet50v1b",
        "framework": "mxnet",
        "model": "resnet50v1b",
        "source": "builtin",
        "precision": "fp32",
        "batch_size_per_device": 128,
        "nodes": nodes,
        "gpus_per_node": devices,
        "world_size": nodes * devices,
        "total_steps": 120,
        "warmup_steps": 20,
        "stack": "cpu",
        "accelerator": "cpu",
        "environment": "mxnet",
        "log_format": "gluoncv_horovod",
        "log_name": f"rn50_b128_fp32_{repeat}.log",
        "timeout_s": 60,
        "hung_after_s": 30,
        "hung_after_lines": 20,
        "first_step_s": 60,
        "hosts": ["node1"],
        "parameters": {},
        "commands": [],
        "outcome": {
            "status": "done",
            "exit_status": 0,
            "message": None,
            "hosts": {"node1": {"hostname": "node1"}},
            "versions": {"mxnet": "1.9.1", "numpy": "1.23.5"},
        },
        **changes,
    }
    folder = campaign / "runs" / case / f"r{repeat}"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    if lines is not None:
        write(folder / str(document["log_name"]), lines)
    return folder
