"""Logs made for tests of the examples: whose runs have given speeds, and campaigns around them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from csv_tables import table
from log_examples import lines_of, reworded, setting

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
    options, places, loss, accuracy, rate, *_, epoch = lines_of(
        "gluoncv_horovod/rn50_b2_fp32_2n2g_builtin_cpu"
    )
    stated = ("batch_size", batch), ("dtype", dtype), ("log_interval", 1)
    own = ", ".join(reworded(setting(options, name), {name: value}) for name, value in stated)
    lines = [lines_of("gluoncv_horovod/rn50_upstream_b2_fp32_1n2g_cpu")[2]]
    lines += [f"INFO:root:Namespace({own})"] if batch is not None else []
    lines += [reworded(places, {"world_size": world})] if world is not None else []
    for step in range(1, steps + 1):
        of_step = 7.5 if step <= warmup else speed + (0.25 if step % 2 else -0.25)
        lines += [
            reworded(loss, {"Batch": step, "Loss": f"{8 - step / 100:.3f}"}),
            reworded(accuracy, {"Batch": step, "lr": "0.000000"}),
            reworded(rate, {"Batch": step, "Speed": f"{of_step:.2f}"}),
        ]
    return [*lines, reworded(epoch, {"Speed": "3.00"})]


def speedometer(speed: float) -> list[str]:
    """A log of ArcFace, whose rates become five of one digit, 0.2 apart, with the mean `speed`."""
    tenths = round(speed * 50)  # the sum of the five
    rates = [tenths // 5 + delta for delta in (-2, 2, 0, 0, 0)]
    rates[2] += tenths % 5
    # 0.02 and 0.04 vanish in the rounding to one digit.
    printed = [12.34, *(rate / 10 + 0.02 * (number % 3) for number, rate in enumerate(rates, 1))]
    line = lines_of("mxnet_speedometer/settings")[1]
    return [
        reworded(
            line, {"Batch": f"{20 * n}-{20 * n + 20}", "Speed": f"{rate:.2f}"}, lossvalue=41 - n
        )
        for n, rate in enumerate(printed)
    ]


def plsc(speed: float) -> list[str]:
    (line,) = lines_of("plsc/wording")
    return [
        reworded(
            line,
            {"2026-11-20": f"10:{n // 60:02d}:{n % 60:02d},250", "batch": n},
            loss=f"{40.5 - n / 100:.6f}",
            qps=f"{1.5 if not 50 <= n < 150 else speed + (0.25 if n % 2 else -0.25):.2f}",
        )
        for n in range(151)
    ]


def plsc_of(trainers: int, every: int = 1) -> list[str]:
    """The log of a node whose trainers all print: trainer k says 100 + k."""
    stated = lines_of("plsc/r50_b2_1n1g_upstream_cpu")
    (trainer,) = (line for line in stated if "trainer_id" in line)
    (period,) = (line for line in stated if "Set log period" in line)
    (line,) = lines_of("plsc/wording")
    of = {"num_trainers": trainers}
    lines = [reworded(trainer, {"trainer_id": k, **of}) for k in range(trainers)]
    lines.append(reworded(period, {"log period to": f"{every}."}))
    for batch in range(0, 151, every):
        time = f"10:{batch // 60:02d}:{batch % 60:02d},000"
        # Who comes first differs from batch to batch, and one may be a line late.
        order = sorted(range(trainers), key=lambda k: (k + batch) % trainers)
        values = {"2026-11-20": time, "batch": batch, "loss": 40.5}
        lines += [reworded(line, {**values, "qps": f"{100 + k}.00"}) for k in order]
        if batch % (7 * every) == 0 and batch:
            lines[-trainers], lines[-trainers - 1] = lines[-trainers - 1], lines[-trainers]
    return lines


def oneflow(speed: float, *, times: bool = False) -> list[str]:
    """A log of OneFlow: the first of ten rates is far off, the mean of the others is `speed`."""
    rates = [7.5, *(speed + delta for delta in ((0.25, -0.25) * 4 + (0.0,)))]
    line, *_ = lines_of("oneflow_benchmark/rn50_b128_fp32_1n1g_report")
    return [
        reworded(line, {"iter": 20 * n, "loss": f"{7 - n / 10:.6f}", "samples/s": f"{rate:.3f}"})
        + (f" {1597050000 + 7 * n}.123456" if times else "")
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
    options, _, world, _, _, line, *_, end = lines_of("dllogger/tf_rn50_b2_2n2g_builtin_cpu")
    stated = {"batch_size": batch, "num_iter": 500, "iter_unit": "batch", "warmup_steps": 200}
    stated |= {"display_every": 10, "amp": amp}
    own = "  ".join(reworded(setting(options, name), {name: v}) for name, v in stated.items())
    words, rest = "total_ips", ""
    if mode == "train":
        words, rest = "imgs_per_sec", " cross_entropy : {}  l2_loss : 0.98  total_loss : 7.5 "
    line = line.replace("total_ips", words)
    return [
        f"{tag}{options.partition('arch')[0]}{own} ",
        tag + reworded(world, {"GPUs": devices}),
        *(
            tag
            + reworded(line, {"(0": n, words: 1.0 if n < 250 else speed})
            + rest.format(7 - n / 1000)
            for n in range(200, 500, 10)
        ),
        f"{tag}{reworded(end, {'train_throughput': final}).rstrip()} images/s",
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
    per_step = batch * length / tokens
    mesh, options, _, line, _, validation = lines_of("torchtitan/settings")
    stated = {"local batch size": batch, "global batch size": batch * world}
    stated |= {"sequence length": length, "total steps": steps}
    lines = [reworded(mesh, {"dp_shard": world}), reworded(options, stated)]
    for step in sorted({1, *range(every, steps + 1, every)}):
        second = round(step * per_step)
        lines.append(
            reworded(
                line,
                {"2025-12-01": f"12:{second // 60:02d}:{second % 60:02d},123"},
                step=f"{step:2}",
                loss=f"{8 - step / 100:.5f}",
                tps=f"{tokens if step > warmup else tokens // 3:,}",
            )
        )
    lines.insert(5, validation)
    return lines


def dllogger_pytorch(speed: float, *, world: int = 1, as_json: bool = False) -> list[str]:
    """A log of DLLogger as PyTorch ConvNets print it, 100 steps; `speed` after the first 20."""
    options, line, *_ = lines_of(f"dllogger_pytorch/settings{'_json' * as_json}")
    lines = [reworded(options, {"batch_size": 256, "world_size": world})]
    for step in range(10, 101, 10):
        rate = speed if step > 20 else speed / 3
        values: dict[str, object]
        if as_json:
            values = {"timestamp": f"{1655221200 + step}.5", "[0": step, "total_ips": rate}
            values |= {"loss": 7 - step / 100}
        else:
            values = {
                "2022-06-14": f"15:{step // 60:02d}:{step % 60:02d}.026182",
                "Iteration": step,
            }
            values |= {"loss": f"{7 - step / 100:.5f}", "total_ips": f"{rate:.2f}"}
            values |= {"compute_ips": f"{rate + 9:.2f}"}
        lines.append(reworded(line, values))
    if as_json:
        return lines
    means = {"2022-06-14": "15:02:00.026182", "compute_ips": f"{speed:.2f}", "total_ips": "1.00"}
    *_, summary, _, _ = lines_of("dllogger_pytorch/rn50_b4_fp32_1n2g_builtin_cpu")
    end = reworded(summary.replace("2026-11-24", "2022-06-14"), means)
    return [*lines, end.replace("Summary: ", "Epoch: 0  "), end]


def arcface_torch(speed: float, *, world: int = 8) -> list[str]:
    """A log of insightface's arcface_torch, 100 steps; `speed` after the first 20. The first
    interval has no line."""
    lines = lines_of("arcface_torch/settings")
    line = next(line for line in lines if "Speed" in line)
    stated = {"batch_size": 128, "num_classes": 93431, "frequent": 10}
    stated |= {"total_batch_size": 128 * world}
    lines = [reworded(line, stated, everywhere=False) for line in lines if "Speed" not in line]
    for step in range(20, 101, 10):
        values = {"2022-03-01": f"10:{step // 60:02d}:{step % 60:02d},123", "Global Step": step}
        values |= {"Speed": f"{speed if step > 20 else speed / 3:.2f}"}
        lines.append(reworded(line, values, Loss=f"{40 - step / 100:.4f}"))
    return lines


def maxtext(tokens: float, *, batch: int = 4, length: int = 2048, world: int = 1) -> list[str]:
    """A log of 30 steps of MaxText: `tokens` per second and device after the first third."""
    *options, line, _ = lines_of("maxtext/settings")
    stated = {"max_target_length": length, "steps": 30, "Num_devices": world}
    stated |= {"per_device_batch_size": f"{batch}.0"}
    lines = [reworded(option, stated, everywhere=False) for option in options]
    for step in range(30):
        rate = tokens if step >= 10 else 20 * tokens
        values = {"step": step, "seconds": f"{batch * length / rate:.3f}"}
        values |= {"Tokens/s/device": f"{rate:.3f}", "total_weights": batch * length * world}
        lines.append(reworded(line, values, loss=f"{10 - step / 100:.3f}"))
    return lines


def megatron(
    milliseconds: float, *, batch: int = 16, length: int = 4096, world: int = 8, steps: int = 100
) -> list[str]:
    """A log of Megatron-LM: steps of that duration after the first fifth."""
    title, *lines = lines_of("megatron/settings")
    line = next(line for line in lines if "iteration" in line)
    stated = {"global_batch_size": batch, "seq_length": length, "train_iters": steps}
    stated |= {"world_size": world}
    options = [reworded(each, stated, everywhere=False) for each in lines if "..." in each]
    lines = [title, *options]
    for step in (1, *range(10, steps + 1, 10)):
        values = {"2026-04-27": f"00:00:{step // 2:02d}.123456", "/": steps, "] iteration": step}
        values |= {"consumed samples": step * batch, "global batch size": batch}
        values |= {"lm loss": f"{8 - step / 100:.6E}"}
        values |= {
            "iteration (ms)": f"{milliseconds if 5 * step > steps else 5 * milliseconds:.1f}"
        }
        lines.append(reworded(line, values))
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


def edit(paths: Iterable[Path], old: str, new: str) -> None:
    """Replace a text in files, of which there is at least one, and each of which has it."""
    paths = list(paths)
    assert paths
    for path in paths:
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")


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
        "nvlink_domains": [],
        "container": "",
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
