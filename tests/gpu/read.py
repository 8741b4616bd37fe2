"""Read what the GPU kit left, on a machine with the clone.

    python tests/gpu/read.py DIR [--fixtures FOLDER]

DIR is the folder that run_gpu.py wrote. Its campaigns get the outcomes of their runs; the training
runs are summarised, reported and compared with published numbers. DIR/on-a-gpu.md says what was
seen. `--fixtures` also copies the outputs of the vendor's programs for tests of their readers.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import yaml

PROJECT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path += [str(PROJECT), str(HERE)]

from run_gpu import write_json  # noqa: E402

from dlperf_runner.campaign.directory import read_plan, read_record  # noqa: E402
from dlperf_runner.campaign.job_files import Job, record_outcome, written_by_job  # noqa: E402
from dlperf_runner.core.files import read_json  # noqa: E402
from dlperf_runner.results.run_log import sampler_rows  # noqa: E402

READ_BY = {
    "nvidia-smi-q.xml": "module_utils/gpu_facts.py",
    "nvidia-smi-topo.txt": "module_utils/gpu_facts.py",
    "nvidia-smi-nvlink.txt": "module_utils/gpu_facts.py",
    "dcgmi-discovery.txt": "library/dcgm_info.py",
}


def record_outcomes(campaign: Path) -> None:
    """Write the outcomes of the runs that the kit started into their records."""
    path = campaign / "jobs" / "1" / "job.json"
    job = Job(path.parent, **read_json(path))
    runs = {run["id"]: run for run in read_plan(campaign)["runs"]}
    for number, name in enumerate(job.runs, start=1):
        started, ended = written_by_job(job, number)
        if started and ended:
            record_outcome(campaign, runs[name], job, started, ended)


def dlperf(*argv: str) -> str:
    """What a command prints, errors included: this project's commands end with 1 or 2 for results
    that somebody must look at."""
    done = subprocess.run(
        [sys.executable, "-m", "dlperf_runner", *argv], cwd=PROJECT, text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return done.stdout.strip()


def outcomes(campaign: Path) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for run in read_plan(campaign)["runs"]:
        yield run, read_record(campaign, run)["outcome"]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


# ---- what was seen


def absent_elements(directory: Path) -> str:
    """The elements of nvidia-smi's XML that the composed fixture has and this driver lacks.
    The reader of nvidia-smi would miss their facts here."""
    path = directory / "facts" / "nvidia-smi-q.xml"
    if not path.is_file():
        return "nvidia-smi printed no XML."
    fixture = PROJECT / "tests" / "fixtures" / "gpu" / "h100_580.xml"
    names = sorted(elements(fixture) - elements(path))
    return "Not in its XML: " + ", ".join(f"`{name}`" for name in names) if names else "All there."


def elements(path: Path) -> set[str]:
    """The paths of the elements in a file, such as gpu/ecc_mode/current_ecc."""

    def below(node: ElementTree.Element, prefix: str) -> Iterator[str]:
        for child in node:
            yield f"{prefix}{child.tag}"
            yield from below(child, f"{prefix}{child.tag}/")

    return set(below(ElementTree.parse(path).getroot(), ""))  # noqa: S314  our own recording


def steps_table(steps: Mapping[str, Mapping[str, Any]]) -> str:
    rows = (
        (f"`{name}`", entry["state"], str(entry.get("reason", "")).replace("\n", " ")[:200])
        for name, entry in steps.items()
    )
    return table(("step", "state", "reason"), rows)


def faults(directory: Path, steps: Mapping[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Each planted fault: the category that its record must have, the one that it has, and whether
    that is right; the state of the step if the fault was not planted."""
    planted = yaml.safe_load((HERE / "kit.yml").read_text(encoding="utf-8"))["faults"]
    records = outcomes(directory / "campaigns" / "faults")
    for (name, fault), (_, outcome) in zip(planted.items(), records, strict=True):
        state = steps[f"fault/{name}"]["state"]
        category = outcome.get("category", "")
        verdict = "right" if category == fault["category"] else "wrong"
        yield name, fault["category"], category, verdict if category else state


def energies(campaign: Path, steps: Mapping[str, Any]) -> str:
    """The energy of each run by the telemetry's counter beside that by nvidia-ml-py, which also
    covers the start and the end of the program."""
    rows = []
    for run, _ in outcomes(campaign):
        joules = steps.get(f"train/{run['id']}", {}).get("nvml_energy_j")
        for path in sorted((campaign / "runs" / run["id"]).glob("telemetry*.csv")):
            counted = _counted(path)
            if joules and counted:
                rows.append((run["id"], f"{counted:.0f}", f"{joules:.0f}"))
    return table(("run", "telemetry, J", "NVML, J"), rows) if rows else "No energy was read."


def _counted(path: Path) -> float | None:
    """The rise of the counter of energy in a file of samples, of all devices."""
    series: dict[str, list[float]] = {}
    for row in sampler_rows(path):
        if row.get("device") and row.get("energy_j"):
            series.setdefault(row["device"], []).append(float(row["energy_j"]))
    return sum(values[-1] - values[0] for values in series.values()) if series else None


def memories(steps: Mapping[str, Mapping[str, Any]]) -> str:
    rows = [
        (name.removeprefix("train/"), ", ".join(f"{mib} MiB" for mib in _numbers(entry)))
        for name, entry in steps.items()
        if entry.get("gpu_memory_mib")
    ]
    return table(("run", "peak memory"), rows) if rows else "No GPU memory was read."


def _numbers(entry: Mapping[str, Any]) -> Iterator[object]:
    for value in entry["gpu_memory_mib"].values():
        yield from value if isinstance(value, list) else [value]


def plain_table(steps: Mapping[str, Mapping[str, Any]]) -> str:
    rows = []
    for name, entry in steps.items():
        if name.startswith("plain/") and entry["state"] == "done":
            seconds = entry["seconds_per_step"]
            shown = [", ".join(f"{1e3 * s:.1f}" for s in seconds[k]) for k in ("builtin", "plain")]
            rows.append((name.removeprefix("plain/"), *shown, entry["builtin_to_plain"]))
    head = ("program", "builtin, ms a step", "plain loop, ms a step", "ratio")
    return table(head, rows) if rows else "No plain loop ran."


def telemetry_cost(directory: Path) -> str:
    """Rates of the same run with and without telemetry."""
    logs = sorted((directory / "telemetry-off").glob("*.log"))
    if not logs:
        return "Not measured."
    folder = directory / ".off" / "1n1g"
    folder.mkdir(parents=True, exist_ok=True)
    for log in logs:
        shutil.copy2(log, folder / log.name)
    campaign = directory / "campaigns" / "telemetry"
    model = next(iter(read_plan(campaign)["runs"]))["model"]
    off = dlperf("summarize", str(folder.parent), "--no-history", "--output-dir",
                 str(directory / "telemetry-off-results"), "--model", model)  # fmt: skip
    shutil.rmtree(folder.parent)
    on = dlperf("summarize", str(campaign), "--no-history")
    cost = ", ".join(f"{100 * share:.2f} %" for share in _cpu_shares(campaign))
    cost = f"CPU time of the telemetry, of one core, by run: {cost or 'not read'}."
    return f"{cost}\n\nWith telemetry:\n\n```\n{on}\n```\n\nWithout:\n\n```\n{off}\n```"


def _cpu_shares(campaign: Path) -> Iterator[float]:
    """The CPU time of the sampler, its start included, by the seconds that it ran."""
    for path in sorted(campaign.rglob("telemetry*.csv")):
        rows = [row for row in sampler_rows(path) if row.get("telemetry_cpu_s")]
        seconds = float(rows[-1]["unix_time"]) - float(rows[0]["unix_time"]) if rows else 0
        if seconds:
            yield float(rows[-1]["telemetry_cpu_s"]) / seconds


def page(directory: Path, results: Mapping[str, Any], tables: Mapping[str, str]) -> str:
    steps, campaigns = results["steps"], directory / "campaigns"
    parts = {
        "Steps": steps_table(steps),
        "Elements that the recorded output of an H100 has": absent_elements(directory),
        "Training": f"```\n{tables['summarize']}\n```",
        "Beside the published number": f"```\n{tables['compare']}\n```",
        "Planted faults": table(
            ("planted", "expected category", "recorded", ""), faults(directory, steps)
        ),
        "Builtin programs beside plain loops": plain_table(steps),
        "Energy": energies(campaigns / "train", steps),
        "Memory": memories(steps),
        "Telemetry": telemetry_cost(directory),
    }
    others = ("compute", "nccl-tests")
    parts["Other steps"] = "\n\n".join(
        f"`{name}`:\n\n```\n{json.dumps(steps[name], indent=2)}\n```" for name in others
    )
    head = f"# What a {results['gpu'] or 'CPU'} showed\n\nKit of version {results['kit']}."
    return "\n\n".join([head, *(f"## {title}\n\n{text}" for title, text in parts.items())]) + "\n"


def write_fixtures(directory: Path, folder: Path, results: Mapping[str, Any]) -> None:
    """The outputs that readers parse, with their origin."""
    folder.mkdir(parents=True)
    origin = []
    for name, reader in READ_BY.items():
        path = directory / "facts" / name
        if not path.is_file():
            continue
        shutil.copy2(path, folder / name)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        origin.append({"file": name, "kind": "real", "source": results["gpu"], "cut": "nothing",
                       "sha256": digest, "read_by": reader})  # fmt: skip
    text = yaml.safe_dump(origin, sort_keys=False)
    (folder / "ORIGIN.yml").write_text(f"---\n{text}", encoding="utf-8")


def read(directory: Path) -> dict[str, Any]:
    """Record all outcomes, and write the page. Returns results.json."""
    results: dict[str, Any] = json.loads((directory / "results.json").read_text(encoding="utf-8"))
    campaigns = sorted(path.parent for path in directory.glob("campaigns/*/campaign.json"))
    if not campaigns:
        raise SystemExit(f"{directory}: no campaign; the kit did no step that trains")
    for campaign in campaigns:
        record_outcomes(campaign)
    train = str(directory / "campaigns" / "train")
    tables = {
        "summarize": dlperf("summarize", train, "--no-history"),
        "report": dlperf("report", train),
        "compare": dlperf("compare", train),
    }
    (directory / "on-a-gpu.md").write_text(page(directory, results, tables), encoding="utf-8")
    write_json(directory / "commands.json", tables)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path, help="the folder that run_gpu.py wrote")
    parser.add_argument("--fixtures", type=Path, metavar="FOLDER", help="a new folder")
    given = parser.parse_args()
    directory = given.directory.resolve()
    if not (directory / "results.json").is_file():
        parser.error(f"{directory} has no results.json: run_gpu.py --out writes it")
    results = read(directory)
    if given.fixtures:
        write_fixtures(directory, given.fixtures, results)
    print(directory / "on-a-gpu.md")


if __name__ == "__main__":
    main()
