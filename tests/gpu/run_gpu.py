"""Go through the steps of the GPU kit on one machine, in order of worth.

    python3 run_gpu.py --out DIR [--minutes 9] [--only PATTERN] [--cpu] [--list]

Needs the standard library and the frameworks that this Python has. It ends in time by itself, and
the next call with the same DIR resumes. DIR/results.json has the state of each step: done, skipped
(with the reason), failed (with the last lines of its log) or waiting. DIR/campaigns/train is the
campaign of the training runs. `tests/gpu/read.py DIR` reads it on the machine with the clone.
"""

import argparse
import fnmatch
import functools
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

KIT = Path(__file__).resolve().parent
# In the scripts of the campaigns: where the kit and the campaigns are.
PLACE, CAMPAIGNS = "/@KIT@", "/@CAMPAIGNS@"
NODE = "gpu-node"
LAST_LINES = 5
SPARE_S = 10  # to write results and end, of the minutes given
# Modules of library/, with their arguments.
MODULES: dict[str, dict[str, Any]] = {
    "gpu_info": {},
    "driver_info": {},
    "fabric_info": {},
    "node_health_info": {},
    "software_info": {},
    "dcgm_info": {"level": 1},
}
FACTS = {
    "nvidia-smi.txt": ["nvidia-smi"],
    "nvidia-smi-q.xml": ["nvidia-smi", "-q", "-x"],
    "nvidia-smi-topo.txt": ["nvidia-smi", "topo", "-m"],
    "nvidia-smi-nvlink.txt": ["nvidia-smi", "nvlink", "-s"],
    "dcgmi-discovery.txt": ["dcgmi", "discovery", "-l"],
    "pip-list.json": [sys.executable, "-m", "pip", "list", "--format=json"],
    "lscpu.txt": ["lscpu"],
}
# Prints the seconds of a step of a program, or of its plain loop, as benchmarks/programs.py does.
STEP_SECONDS = """
import sys
from pathlib import Path
folder, cache, name, options, warmup, steps, kind = sys.argv[1:]
sys.path.insert(0, folder)
import programs
programs.CACHE = Path(cache)
program = programs.PROGRAMS[name]
program = program._replace(options=options) if options else program
python = Path(sys.executable)
print(programs.step_seconds(program, python, kind == "plain", int(warmup), int(steps)).wall)
"""
# What counts as the GPU's being left as it was, in MiB: less than a process with a context has.
LEFT_MIB = 100


class Skipped(Exception):  # noqa: N818  this is not an error
    """A step cannot be done here; the text says why."""


class Failed(Exception):  # noqa: N818  it is a result
    """A step went wrong; the text says what."""


class OutOfTime(Exception):  # noqa: N818  it is no error either
    """The step was stopped because the minutes are over; the next call does it again."""


class Step(NamedTuple):
    """`seconds`: an estimate. `work` returns what results.json keeps of the step."""

    name: str
    seconds: int
    work: Callable[[], dict[str, Any]]


def last_lines(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-LAST_LINES:])


def write_json(path: Path, value: object) -> None:
    partial = path.with_name(f".{path.name}")
    partial.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    partial.replace(path)


def ended_group(process: subprocess.Popen[Any], seconds: float) -> int:
    """Wait for a process; at the end of the time, end its group. Raises OutOfTime then."""
    try:
        return process.wait(max(seconds, 1))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(SPARE_S / 2)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        raise OutOfTime from None


def execute(argv: list[str], log: Path, seconds: float, cwd: Path | None = None, **env: str) -> str:
    """The output of a program, which the log gets, too. Raises Failed if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with log.open("wb") as file:
            process = subprocess.Popen(
                argv, cwd=cwd, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=file,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            status = ended_group(process, seconds)
    except FileNotFoundError:
        log.unlink()
        raise Skipped(f"there is no {argv[0]} on this machine") from None
    text = log.read_text(encoding="utf-8", errors="replace")
    if status != 0:
        raise Failed(f"exit status {status}; the log ends with:\n{last_lines(text)}")
    return text


class Kit:
    """The steps on this machine, for so many seconds. `out`: the folder of results."""

    def __init__(self, out: Path, seconds: float, is_cpu: bool) -> None:
        self.out, self.end = out, time.monotonic() + seconds
        self.contents = json.loads((KIT / "kit.json").read_text(encoding="utf-8"))
        self.gpu = "" if is_cpu else gpu_name()
        self.product = self.product_of(self.gpu) if self.gpu else "cpu"
        self.campaigns = out / "campaigns"

    def product_of(self, gpu: str) -> str:
        products = self.contents["products"].items()
        return next((name for name, own in products if own.get("gpu", "cpu") in gpu), "")

    def left(self) -> float:
        return self.end - time.monotonic()

    # ---- the order of worth

    def steps(self) -> list[Step]:
        steps = list(self.all_steps())
        order = self.contents["order"]

        def worth(step: Step) -> int:
            return next(n for n, pattern in enumerate(order) if fnmatch.fnmatch(step.name, pattern))

        return sorted(steps, key=worth)

    def all_steps(self) -> Iterator[Step]:
        bound = functools.partial
        yield Step("facts", 60, self.facts)
        yield Step("compute", 60, self.compute)
        for run in self.runs("train"):
            yield Step(f"train/{run['id']}", run["seconds"], bound(self.train, run))
        for name, fault in self.contents["faults"].items():
            yield Step(f"fault/{name}", fault["seconds"], bound(self.fault, fault))
        for name, plain in self.contents["plain"].items():
            yield Step(f"plain/{name}", plain["seconds"], bound(self.plain, name, plain["options"]))
        yield Step("nccl-tests", 180, self.nccl_tests)
        yield Step("telemetry/cost", 240, self.telemetry)

    def runs(self, campaign: str) -> list[dict[str, Any]]:
        """The runs of a campaign: id, number, directory, log_name, framework_module, seconds."""
        path = KIT / "campaigns" / (self.product or "cpu") / campaign / "kit_runs.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []

    # ---- what steps need

    def needs_gpu(self) -> None:
        if not self.gpu:
            raise Skipped("needs a GPU: nvidia-smi names none")

    def needs(self, module: str) -> None:
        if importlib.util.find_spec(module) is None:
            raise Skipped(f"{sys.executable} has no package {module}")

    def prepare(self) -> None:
        """Copy the campaigns of this product, with the paths of this machine in their scripts."""
        if not self.product:
            raise Skipped(f"the kit has no campaign for {self.gpu}: add it to tests/gpu/kit.yml")
        if not self.campaigns.exists():
            partial = self.out / ".campaigns"
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(KIT / "campaigns" / self.product, partial)
            for script in partial.rglob("*.sh"):
                text = script.read_text(encoding="utf-8")
                text = text.replace(CAMPAIGNS, str(self.campaigns)).replace(PLACE, str(KIT))
                script.write_text(text, encoding="utf-8")
            partial.replace(self.campaigns)
        for environment in self.contents["environments"]:
            python = KIT / "environments" / environment / "bin" / "python"
            python.parent.mkdir(parents=True, exist_ok=True)
            python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
            python.chmod(0o755)

    def module(self, name: str, **arguments: object) -> dict[str, Any]:
        """What a module of library/ returns, as Ansible would call it."""
        argv = [sys.executable, str(KIT / "library" / f"{name}.py")]
        environment = {**os.environ, "PYTHONPATH": str(KIT / "modules")}
        text = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
        done = subprocess.run(
            argv, input=text, capture_output=True, text=True, check=False,
            timeout=max(self.left(), 1), env=environment,
        )  # fmt: skip
        try:
            result: dict[str, Any] = json.loads(done.stdout)
        except ValueError:
            told = last_lines(done.stdout + done.stderr)
            raise Failed(f"{name} printed no JSON; its output ends with:\n{told}") from None
        return result

    # ---- the steps

    def facts(self) -> dict[str, Any]:
        """Outputs of the vendor's programs, and what the project's readers make of them."""
        folder, read = self.out / "facts", {}
        folder.mkdir(exist_ok=True)
        missing = []
        for name, argv in FACTS.items():
            try:
                execute(argv, folder / name, 30)
            except (Skipped, Failed) as error:
                missing.append(f"{name}: {error}")
        for name, arguments in MODULES.items():
            value = self.module(name, **arguments)
            write_json(folder / f"{name}.json", value)
            read[name] = value.get("msg", "failed") if value.get("failed") else "read"
        return {"gpu": self.gpu, "product": self.product, "missing": missing, "modules": read}

    def compute(self) -> dict[str, Any]:
        self.needs_gpu()
        value = self.module("gpu_compute")
        if value.get("failed"):
            raise Failed(str(value.get("msg")))
        return {key: value.get(key) for key in ("devices", "cuda")}

    def train(self, run: dict[str, Any]) -> dict[str, Any]:
        self.needs(run["framework_module"])
        self.prepare()
        before = energy_j()
        ended = self.run_in_job("train", run)
        after = energy_j()
        if ended["exit_status"] != 0:
            log = self.campaigns / "train" / run["directory"] / run["log_name"]
            told = last_lines(log.read_text(encoding="utf-8", errors="replace"))
            raise Failed(f"exit status {ended['exit_status']}; the log ends with:\n{told}")
        joules = {} if before is None or after is None else {"nvml_energy_j": after - before}
        return {**joules, "gpu_memory_mib": dict(ended.get("gpu_memory_mib", {}))}

    def run_in_job(self, campaign: str, run: dict[str, Any]) -> dict[str, Any]:
        """Let the engine of jobs execute one run. Returns what it recorded of the end."""
        job = self.campaigns / campaign / "jobs" / "1"
        ended = job / f"ended.{run['number']}.json"
        name = f"kit-{os.getpid()}"
        environment = {"DLPERF_JOB": name, "DLPERF_NODE": NODE}
        if not (job / f"facts.{NODE}.json").exists():
            log = job / "node.log"
            execute(["bash", str(job / "node.sh")], log, self.left(), **environment)
        with (job / "job.log").open("ab") as log_file:
            engine = str(KIT / "lib" / "job_run.py")
            process = subprocess.Popen(
                [sys.executable, "-ES", engine, str(job), "exclusive", NODE],
                stdin=subprocess.PIPE, stdout=log_file, stderr=subprocess.STDOUT,
                env={**os.environ, **environment}, start_new_session=True,
            )  # fmt: skip
            assert process.stdin
            directory = self.campaigns / campaign / run["directory"]
            process.stdin.write(f"{run['number']} 1 {directory}\n".encode())
            process.stdin.close()
            try:
                status = ended_group(process, self.left() - SPARE_S)
            except OutOfTime:
                ended.unlink(missing_ok=True)  # as the script of a job does after a requeue
                raise
            finally:
                end_processes(name)
        if not ended.exists():
            text = (job / "job.log").read_text(encoding="utf-8", errors="replace")
            raise Failed(
                f"job_run.py: exit status {status}; its log ends with:\n{last_lines(text)}"
            )
        result: dict[str, Any] = json.loads(ended.read_text(encoding="utf-8"))
        return result

    def fault(self, fault: dict[str, Any]) -> dict[str, Any]:
        if fault.get("needs_gpu"):
            self.needs_gpu()
        self.needs("torch")
        self.prepare()
        before = gpu_memory_mib()
        ended = self.run_in_job("faults", self.runs("faults")[fault["number"] - 1])
        after = gpu_memory_mib()
        if ended["exit_status"] == 0:
            raise Failed("the run ended well in spite of the planted fault")
        left = None if before is None or after is None else after - before
        if left is not None and left > LEFT_MIB:
            raise Failed(f"{left} MiB of the GPU's memory are still taken after the run")
        processes = gpu_processes()
        if processes:
            raise Failed(f"still on the GPU after the run: {', '.join(processes)}")
        return {
            "exit_status": ended["exit_status"],
            "hung": ended if "sign" in ended else None,
            "left_mib": left,
        }

    def plain(self, name: str, options: str) -> dict[str, Any]:
        """Seconds per step of a program and of its plain loop, in the order ABBA. On a CPU, the
        options are those of benchmarks/programs.py."""
        self.needs("torch" if name.startswith("pytorch") else "jax")
        folder = self.out / "plain"
        argv = [sys.executable, "-c", STEP_SECONDS, str(KIT / "benchmarks"), str(folder), name]
        argv += [options, "10", "40"] if self.gpu else ["", "2", "5"]
        seconds: dict[str, list[float]] = {"builtin": [], "plain": []}
        for kind in ("builtin", "plain", "plain", "builtin"):
            text = execute([*argv, kind], folder / f"{name}.log", self.left() - SPARE_S)
            seconds[kind].append(float(text.splitlines()[-1]))
        ratio = sum(seconds["builtin"]) / sum(seconds["plain"])
        return {"seconds_per_step": seconds, "builtin_to_plain": round(ratio, 4)}

    def telemetry(self) -> dict[str, Any]:
        """The first training with and without telemetry, in the order ABBA; read.py has the rates.
        Those without it are no runs of the campaign, whose log they do not touch."""
        runs = self.runs("telemetry")
        self.needs(runs[0]["framework_module"])
        self.prepare()
        for run, is_on in zip(runs, (True, False, False, True), strict=True):
            directory = self.campaigns / "telemetry" / run["directory"]
            if is_on:
                ended = self.run_in_job("telemetry", run)
                if ended["exit_status"] != 0:
                    raise Failed(f"{run['id']}: exit status {ended['exit_status']}")
            else:
                argv = ["bash", "run.sh", NODE]
                log = self.out / "telemetry-off" / run["log_name"]
                execute(argv, log, self.left() - SPARE_S, directory, DLPERF_NODE=NODE)
        return {"order": "on, off, off, on"}

    def nccl_tests(self) -> dict[str, Any]:
        """nccl-tests, compiled with the headers and the library of the wheel."""
        self.needs_gpu()
        source = KIT / "sources" / "nccl-tests"
        if not source.is_dir():
            raise Skipped(
                "the kit has no source of nccl-tests: make gpu-kit MIRROR=DIR takes it along"
            )
        if not shutil.which("nvcc"):
            raise Skipped("there is no nvcc on this machine")
        spec = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.nccl")
        if spec is None or not spec.submodule_search_locations:
            raise Skipped(f"{sys.executable} has no wheel nvidia-nccl")
        nccl = Path(next(iter(spec.submodule_search_locations)))
        cuda = Path(str(shutil.which("nvcc"))).resolve().parents[1]
        build = self.out / "nccl-build"
        linked = build / "nccl"  # its library has only the name with a version
        (linked / "lib").mkdir(parents=True, exist_ok=True)
        for name in ("libnccl.so", "libnccl.so.2"):
            link = linked / "lib" / name
            link.unlink(missing_ok=True)
            link.symlink_to(nccl / "lib" / "libnccl.so.2")
        if not (linked / "include").exists():
            (linked / "include").symlink_to(nccl / "include")
        log = self.out / "nccl-tests"
        make = ["make", "-C", str(source), "-j", str(os.cpu_count()), f"NCCL_HOME={linked}"]
        make += [f"CUDA_HOME={cuda}", f"BUILDDIR={build}", "NVCC_GENCODE=-arch=native"]
        execute(make, log / "make.log", self.left() - SPARE_S)
        for operation in ("all_reduce", "all_gather", "reduce_scatter"):
            program = build / f"{operation}_perf"
            argv = [str(program), "-b", "8", "-e", "1G", "-f", "4", "-g", "1"]
            path = f"{linked / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"
            execute(argv, log / f"{operation}.log", self.left() - SPARE_S, LD_LIBRARY_PATH=path)
        shutil.rmtree(build)  # 100 MB, which nobody should have to copy
        return {"logs": sorted(path.name for path in log.iterdir())}


def end_processes(job: str) -> None:
    """End what a job left, as Slurm does at the end of a step: torchrun's processes have sessions
    of their own, and a stopped one outlives it."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            is_own = f"DLPERF_JOB={job}".encode() in (folder / "environ").read_bytes().split(b"\0")
            if is_own:
                os.kill(int(folder.name), signal.SIGKILL)
        except OSError:  # it has ended, or is somebody else's
            continue


# ---- the GPU, as other programs than the project's readers see it


def gpu_name() -> str:
    """The name of the first GPU; empty if there is none."""
    lines = smi("--query-gpu=name")
    return lines[0] if lines else ""


def gpu_memory_mib() -> int | None:
    lines = smi("--query-gpu=memory.used")
    return sum(int(line) for line in lines) if lines and all(x.isdigit() for x in lines) else None


def gpu_processes() -> list[str]:
    return smi("--query-compute-apps=pid,process_name")


def smi(query: str) -> list[str]:
    argv = ["nvidia-smi", query, "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines()] if done.returncode == 0 else []


def energy_j() -> float | None:
    """The counter of the first GPU's energy, by nvidia-ml-py; None without it. All else that NVML
    has is in nvidia-smi's XML."""
    if importlib.util.find_spec("pynvml") is None:
        return None
    import pynvml  # type: ignore[import-not-found]

    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        joules = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None
    return float(joules)


# ---- the loop


def state_of(step: Step) -> dict[str, Any]:
    """Do a step; its entry in results.json."""
    began = time.monotonic()
    try:
        entry = {"state": "done", **step.work()}
    except Skipped as reason:
        entry = {"state": "skipped", "reason": str(reason)}
    except OutOfTime:
        entry = {"state": "waiting", "reason": "stopped when the minutes were over"}
    except Failed as reason:
        entry = {"state": "failed", "reason": str(reason)}
    except Exception as error:  # one step's failure must not cost the others
        entry = {"state": "failed", "reason": f"{type(error).__name__}: {error}"}
    return {**entry, "seconds": round(time.monotonic() - began, 1)}


def go_through(kit: Kit, only: str, results: dict[str, Any], path: Path) -> None:
    for step in kit.steps():
        entry = results["steps"].get(step.name, {"state": "waiting"})
        chosen = not only or fnmatch.fnmatch(step.name, only) or step.name.startswith(only)
        results["steps"][step.name] = entry
        if entry["state"] == "done" or not chosen or (entry["state"] != "waiting" and not only):
            continue
        if kit.left() < step.seconds and kit.gpu:
            entry["reason"] = f"needs some {step.seconds} s, {max(kit.left(), 0):.0f} were left"
            continue
        if kit.left() < SPARE_S:
            continue
        print(f"{step.name} ...", end=" ", flush=True)
        results["steps"][step.name] = entry = state_of(step)
        print(entry["state"], (entry.get("reason") or "").split("\n")[0], flush=True)
        write_json(path, results)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--minutes", type=float, default=9, help="end after so many; default: 9")
    parser.add_argument("--only", default="", help="only steps whose names begin so, or a pattern")
    parser.add_argument("--cpu", action="store_true", help="a trial that uses no GPU")
    parser.add_argument("--list", action="store_true", help="list the steps and end")
    given = parser.parse_args()
    out = given.out.resolve()
    if re.search(r"[^\w./+-]", f"{out}{KIT}"):
        parser.error("--out and the kit need paths without blanks and special characters")
    out.mkdir(parents=True, exist_ok=True)
    kit = Kit(out, given.minutes * 60, given.cpu)
    if given.list:
        print("\n".join(f"{step.seconds:5} s  {step.name}" for step in kit.steps()))
        return 0
    if not kit.gpu:  # threads that wait for each other on a busy machine take minutes
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    path = out / "results.json"
    empty = {"kit": kit.contents["version"], "gpu": kit.gpu, "product": kit.product, "steps": {}}
    results = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else empty
    results["python"] = platform.python_version()
    go_through(kit, given.only, results, path)
    write_json(path, results)
    states = [entry["state"] for entry in results["steps"].values()]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    print(f"{path}: {counts}")
    return 1 if "failed" in states else 0


if __name__ == "__main__":
    sys.exit(main())
