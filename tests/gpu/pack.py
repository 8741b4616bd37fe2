"""Pack the GPU kit: one folder that needs only Python and the frameworks of a GPU machine.

    python tests/gpu/pack.py FOLDER [--mirror DIR]

The trainings are campaigns that this project's planner makes, one for each product of kit.yml, and
the engine of jobs of Slurm runs them: `job_run.py` with the package `run_agent` of module_utils.
`--mirror` is a directory of repositories, as for sources of workloads; it is only needed for
nccl-tests.
"""

import argparse
import json
import shlex
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import ansible
import yaml

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path += [str(PROJECT), str(HERE)]

from run_gpu import CAMPAIGNS, PLACE  # noqa: E402

from dlperf_runner import __version__  # noqa: E402
from dlperf_runner.campaign.directory import create_campaign  # noqa: E402
from dlperf_runner.campaign.job_files import Job  # noqa: E402
from dlperf_runner.catalog.reader import load_catalog  # noqa: E402
from dlperf_runner.control.scheduled import write_programs  # noqa: E402
from dlperf_runner.core.case import Run  # noqa: E402
from dlperf_runner.core.node import Node  # noqa: E402
from dlperf_runner.plan.choice import parse_choice  # noqa: E402
from dlperf_runner.plan.make import make_plan  # noqa: E402
from dlperf_runner.plan.sources import prepare_source  # noqa: E402
from dlperf_runner.schedulers.job import (  # noqa: E402
    Allocation,
    Places,
    Scheduler,
    node_script,
    on_node_script,
    placeholder,
    run_script,
)

# The machine itself in place of an allocation; run_gpu.py sets the variables and is the job.
HERE_ALONE = Scheduler(
    name="gpu-kit",
    options=(),
    header=lambda _: (),
    setup="",
    each_node="env",
    own_node="$DLPERF_NODE",
    offers_argv=lambda _: (),
    offers=lambda *_: (),
    submit_argv=lambda _: (),
    job_id=lambda text: text,
    states_argv=lambda: (),
    states=lambda _: (),
    cancel_argv=lambda _: (),
)
PLACES = Places(f"{PLACE}/sources", f"{PLACE}/environments", f"{PLACE}/lib")
MODULE_OF = {"pytorch": "torch", "jax": "jax"}
HUNG_S = 15  # of runs with a fault
LIMIT = 50 << 20


def node_of(product: Mapping[str, Any] | None) -> Node:
    """The only node of a campaign: with one GPU of a product, or with a CPU."""
    own = Node(placeholder(1), "127.0.0.1", 1, "cpu", "cpu", interface="lo", matrix="smoke")
    own = replace(own, frameworks=tuple(MODULE_OF))
    if product is None:
        return own
    return replace(own, accelerator=product["gpu"], stack=product["stack"], matrix="published")


def planned(node: Node, training: Mapping[str, Any]) -> list[Run]:
    options = {
        key: value for key, value in training.items() if key not in ("seconds", "parameters")
    }
    options |= {"nodes": 1, "gpus_per_node": 1, "source": "builtin"}
    choice = parse_choice(options, training.get("parameters", ()))
    return list(make_plan(choice, load_catalog(), (node,)))


def write_campaign(directory: Path, node: Node, runs: Sequence[tuple[Run, int]]) -> None:
    """A campaign whose only job is the kit; each run comes with the seconds that it may take."""
    create_campaign(directory, parse_choice({}), (node,), [run for run, _ in runs])
    place = Path(CAMPAIGNS, directory.name)
    request = Allocation("gpu-kit", place / "jobs" / "1", 1, 1, 0, {"exclusive": "yes"})
    documents = [asdict(run) for run, _ in runs]
    job = Job(directory / "jobs" / "1", "gpu-kit", [run["id"] for run in documents], id="gpu-kit")
    job.directory.mkdir(parents=True)
    job.write()
    texts = {
        "node.sh": node_script(HERE_ALONE, request, documents, "mpirun", (), PLACES),
        "on_node.sh": on_node_script(HERE_ALONE),
    }
    for name, text in texts.items():
        (job.directory / name).write_text(text, encoding="utf-8")
    rows = []
    for number, (run, seconds) in enumerate(runs, start=1):
        folder = f"runs/{run.id}"
        document = documents[number - 1]
        script = run_script(HERE_ALONE, document, place / folder, PLACES)
        (directory / folder / "run.sh").write_text(script, encoding="utf-8")
        row = {"id": run.id, "number": number, "directory": folder, "log_name": run.log_name}
        row |= {"framework_module": MODULE_OF[run.framework], "seconds": seconds}
        rows.append(row)
    (directory / "kit_runs.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")


def training_runs(
    kit: Mapping[str, Any], product: Mapping[str, Any] | None
) -> list[tuple[Run, int]]:
    """The runs of a product's campaign, and the seconds of each; without a product, on a CPU."""
    node = node_of(product)
    of_kit = kit["dry"] if product is None else kit
    choices = [*(product["published"] if product else ()), *of_kit["trainings"]]
    runs: dict[str, tuple[Run, int]] = {}
    for training in choices:
        for run in planned(node, {"repeats": of_kit["repeats"], **training}):
            runs.setdefault(run.id, (run, training["seconds"]))
    return list(runs.values())


def faulty_runs(kit: Mapping[str, Any], product: Mapping[str, Any] | None) -> list[tuple[Run, int]]:
    """A run of ResNet-50 for each fault: the same program, started by planted_fault.py."""
    training = {"workload": "pytorch-resnet50v1.5", "precision": "fp32", "batch_size": 4}
    training |= {"matrix": "smoke", "parameters": ["image_size=32", "classes=10"]}
    base = planned(node_of(product), training | {"repeats": len(kit["faults"])})
    runs = []
    for run, (name, fault) in zip(base, kit["faults"].items(), strict=True):
        (command,) = run.commands
        at = command.argv.index("pytorch_resnet50.py")
        argv = [*command.argv[:at], f"{PLACE}/planted_fault.py", name, *command.argv[at:]]
        if name != "nan":  # which the program looks for at its end
            argv[argv.index("--iterations") + 1] = "1000000"
        changed = replace(command, argv=tuple(argv))
        limits = {"timeout_s": fault["seconds"], "hung_after_s": HUNG_S}
        runs.append((replace(run, commands=(changed,), **limits), fault["seconds"]))
    return runs


def write_campaigns(folder: Path, kit: Mapping[str, Any]) -> None:
    for name, product in {"cpu": None, **kit["products"]}.items():
        node, runs = node_of(product), training_runs(kit, product)
        write_campaign(folder / name / "train", node, runs)
        write_campaign(folder / name / "faults", node, faulty_runs(kit, product))
        first = planned(node, _first(kit, product) | {"repeats": 4})
        write_campaign(folder / name / "telemetry", node, [(run, runs[0][1]) for run in first])


def _first(kit: Mapping[str, Any], product: Mapping[str, Any] | None) -> dict[str, Any]:
    choices = kit["dry"]["trainings"] if product is None else kit["trainings"]
    first = dict(choices[0])
    if product is not None:
        first |= {"precision": "bf16", "parameters": ()}
    return first


def write_sources(folder: Path, mirror: str | None) -> None:
    catalog = load_catalog()
    for name, workload in catalog.workloads.items():
        if workload.framework in MODULE_OF and workload.sources.named("builtin"):
            made = prepare_source(catalog, name, "builtin", environment=workload.framework)
            _unpack(made.path, folder / Path(made.directory).name)
    if mirror:
        made = prepare_source(catalog, "nccl-allreduce", "upstream", mirror)
        _unpack(made.path, folder / "nccl-tests")


def _unpack(path: Path, target: Path) -> None:
    target.mkdir(parents=True)
    with tarfile.open(path) as tar:
        tar.extractall(target)  # noqa: S202  this program made the tar


def write_modules(folder: Path) -> None:
    """The modules of library/, and Ansible's own module_utils with the project's beside them."""
    shutil.copytree(PROJECT / "library", folder / "library", ignore=_ONLY_SOURCE)
    package = folder / "modules" / "ansible"
    own = Path(ansible.__file__).parent
    shutil.copytree(own / "module_utils", package / "module_utils", ignore=_ONLY_SOURCE)
    shutil.copy2(own / "release.py", package / "release.py")
    # That of ansible-core imports the controller's parts; Ansible gives nodes such a small one.
    (package / "__init__.py").write_text("from ansible.release import __author__, __version__\n")
    ours = PROJECT / "module_utils"
    shutil.copytree(ours, package / "module_utils", ignore=_ONLY_SOURCE, dirs_exist_ok=True)


_ONLY_SOURCE = shutil.ignore_patterns("__pycache__", "powershell", "csharp")


def pack(folder: Path, mirror: str | None = None) -> int:
    """Write the kit into a new folder. Returns its size in bytes."""
    kit = yaml.safe_load((HERE / "kit.yml").read_text(encoding="utf-8"))
    for number, fault in enumerate(kit["faults"].values(), start=1):
        fault["number"] = number
    folder.mkdir(parents=True)
    for name in ("run_gpu.py", "planted_fault.py"):
        shutil.copy2(HERE / name, folder / name)
    for name in ("programs.py", "plain_loops.py"):
        (folder / "benchmarks").mkdir(exist_ok=True)
        shutil.copy2(PROJECT / "benchmarks" / name, folder / "benchmarks" / name)
    workloads = "dlperf_runner/workloads"
    shutil.copytree(PROJECT / workloads, folder / workloads, ignore=_ONLY_SOURCE)
    write_modules(folder)
    write_programs(folder / "lib")
    write_sources(folder / "sources", mirror)
    write_campaigns(folder / "campaigns", kit)
    contents = {
        "version": __version__,
        "products": {name: {"gpu": own["gpu"]} for name, own in kit["products"].items()},
        "environments": list(MODULE_OF),
        **{key: kit[key] for key in ("order", "faults", "plain")},
    }
    (folder / "kit.json").write_text(json.dumps(contents, indent=1), encoding="utf-8")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="a new folder")
    parser.add_argument("--mirror", help="directory with repositories, for nccl-tests")
    given = parser.parse_args()
    if given.folder.exists():
        parser.error(f"{given.folder} exists; remove it or name another folder")
    size = pack(given.folder, given.mirror)
    if size > LIMIT:
        sys.exit(f"the kit has {size >> 20} MiB, more than {LIMIT >> 20}")
    print(f"{given.folder}: {size / (1 << 20):.1f} MiB. On the GPU machine:")
    print(f"  python3 {shlex.quote(given.folder.name)}/run_gpu.py --out results --minutes 9")


if __name__ == "__main__":
    main()
