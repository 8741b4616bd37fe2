"""Records what the commands print and write, and compares two recordings.

    python tests/support/same_results.py record before --inputs inputs --project OLD_CLONE
    python tests/support/same_results.py record after --inputs inputs
    python tests/support/same_results.py compare before after

A change that shall not change results gives equal recordings. Both use the same inputs, which the
first one makes with the code of this clone. They run `python -m dlperf_runner` of the project in
this Python environment.

Not recorded: times of the recording (NOW), absolute paths (WORK, PROJECT), the machine's name
(HOST), the pixels of pictures, PDF files, and exports to MLflow and Weights & Biases, which name
their files at random.
"""

import argparse
import fnmatch
import gzip
import json
import os
import re
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?"
    r"|\d{8}T\d{6}Z"  # the name of a campaign
)
SUBCOMMAND = re.compile(r"^  ([a-z][a-z-]*)(?:\s|$)", re.MULTILINE)
ENGINES = ("docker", "podman")
LINES_SHOWN = 16


def refuse(problem: str) -> NoReturn:
    print(f"error: {problem}", file=sys.stderr)
    sys.exit(2)


@dataclass(frozen=True)
class Case:
    """Commands that run one after another in a folder with copies of some inputs."""

    name: str
    commands: Sequence[Sequence[str]]
    copies: Sequence[str] = ()


@dataclass(frozen=True)
class Recorder:
    """A project at work: a copy of its files, so that its path has always the same length."""

    folder: Path
    inputs: Path
    project: Path
    began: datetime = field(default_factory=lambda: datetime.now(UTC))

    def call(self, work: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        programs = f"{self.inputs}/bin:{Path(sys.executable).parent}:{os.defpath}"
        environment = {"PATH": programs, "HOME": str(self.project.parent), "COLUMNS": "80"}
        environment |= {"LANG": "C.UTF-8", "TZ": "UTC", "PYTHONPATH": str(self.project)}
        argv = [sys.executable, "-m", "dlperf_runner", *arguments]
        return subprocess.run(
            argv, cwd=work, env=environment, capture_output=True, check=False, timeout=600
        )

    def record(self, case: Case) -> None:
        with tempfile.TemporaryDirectory(prefix="same-") as name:
            work = Path(name).resolve()
            for source in case.copies:
                shutil.copytree(self.inputs / source, work / Path(source).name)
            (work / "project").symlink_to(self.project)
            (work / "inputs").symlink_to(self.inputs)
            before = _files(work)
            for number, arguments in enumerate(case.commands, start=1):
                self._write_output(work, f"{case.name}/{number}-{arguments[0]}.txt", arguments)
            after = _files(work)
            for path in sorted(before.keys() | after.keys()):
                if before.get(path) == after.get(path):
                    continue
                text = as_text(work / path) if path in after else "deleted\n"
                self._write(work, f"{case.name}/files/{path}", text)

    def record_help(self, command: Sequence[str] = ()) -> None:
        """The help text of a command, and those of its subcommands."""
        name = "/".join(["help", *command, "help.txt"])
        text = self._write_output(self.project, name, [*command, "--help"])
        for subcommand in SUBCOMMAND.findall(text.partition("\nCommands:\n")[2]):
            self.record_help([*command, subcommand])

    def _write_output(self, work: Path, name: str, arguments: Sequence[str]) -> str:
        done = self.call(work, arguments)
        out, err = (part.decode("utf-8", "backslashreplace") for part in (done.stdout, done.stderr))
        text = f"$ dlperf {' '.join(arguments)}\nexit status {done.returncode}\n"
        text += f"--- standard output\n{_sorted_json(out)}--- standard error\n{err}"
        self._write(work, name, text)
        return out

    def _write(self, work: Path, name: str, text: str) -> None:
        for path, word in ((work, "WORK"), (self.project, "PROJECT"), (self.inputs, "INPUTS")):
            text = text.replace(str(path), word)
        text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "HOST", text)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MOMENT.sub(self._moment, text), encoding="utf-8")

    def _moment(self, match: re.Match[str]) -> str:
        try:
            moment = datetime.fromisoformat(match[0])
        except ValueError:
            return match[0]
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        first = self.began - timedelta(minutes=1)
        return "NOW" if first <= moment <= datetime.now(UTC) else match[0]


def _files(work: Path) -> dict[str, tuple[int, int]]:
    """Sizes and times of all files, by path; links are not followed."""
    paths = (Path(folder, name) for folder, _, names in os.walk(work) for name in names)
    stats = {path: path.lstat() for path in paths}
    return {str(p.relative_to(work)): (s.st_size, s.st_mtime_ns) for p, s in stats.items()}


def _sorted_json(text: str) -> str:
    try:
        document = json.loads(text)
    except ValueError:
        return text
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _documents(path: Path) -> str:
    """The documents of a file with one in each line. A manifest has digests of times."""
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    for document in documents:
        if "previous" in document:
            document.pop("previous")
            document["files"] = sorted(document.get("files", ()))
    return "".join(_sorted_json(json.dumps(document)) for document in documents)


def _cells(path: Path) -> str:
    import openpyxl

    book = openpyxl.load_workbook(path)
    cells = (
        f"{sheet.title}!{cell.coordinate}: {cell.value!r}"
        for sheet in book
        for row in sheet.iter_rows()
        for cell in row
        if cell.value is not None
    )
    return "\n".join(cells) + "\n"


def _tables(path: Path) -> str:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return "\n".join(sorted(connection.iterdump())) + "\n"
    finally:
        connection.close()


def _pixels(path: Path) -> str:
    width, height = struct.unpack(">II", path.read_bytes()[16:24])
    return f"a picture of {width} x {height} pixels\n"


_READERS: dict[str, Callable[[Path], str]] = {
    ".xlsx": _cells,
    ".sqlite": _tables,
    ".png": _pixels,
    ".pdf": lambda _: "a PDF file\n",
    ".json": lambda path: _sorted_json(path.read_text()),
    ".jsonl": _documents,
    ".gz": lambda path: gzip.decompress(path.read_bytes()).decode("utf-8", "backslashreplace"),
}


def as_text(path: Path) -> str:
    """A written file as text that does not depend on when and where it was written."""
    if path.is_symlink():
        return f"a link to {path.readlink()}\n"
    reader = _READERS.get(path.suffix)
    return reader(path) if reader else path.read_bytes().decode("utf-8", "backslashreplace")


def all_cases(listing: Mapping[str, Any], inputs: Path, project: Path) -> Iterator[Case]:
    for words in ([], ["workloads"], ["matrices"], ["frameworks"], ["stacks"], ["published"]):
        name = "/".join(["list", *(words or ["all"])])
        yield Case(name, [["list", *words], ["list", *words, "--json"]])
    for example in sorted(p.name for p in (project / "inventory").glob("example*")):
        yield Case(f"init/{example}", [["init", "made", "--from", example]])
    yield Case("plan/schema", [["plan", "--schema"]])
    yield Case("published", [["compare", "--published", *more] for more in ([], ["--json"])])
    more = ("--csv", "all.csv"), ("--json",), ("--consecutive",)
    yield Case("mlperf", [["mlperf", "round", *words] for words in more], ["round"])
    logs = ["nccl/all_reduce.log", "nccl/wrong.log"]
    yield Case("bandwidth", [["bandwidth", *logs, *more] for more in ([], ["--json"])], ["nccl"])
    yield from _cases_of_logs(inputs)
    yield from _cases_of_plans(listing, project)


def _cases_of_logs(inputs: Path) -> Iterator[Case]:
    for folder in sorted((inputs / "logs").glob("*")):
        yield from _cases_of_results(f"logs/{folder.name}", folder.name, f"logs/{folder.name}")
    for group in sorted((inputs / "campaigns").glob("*")):
        source = f"campaigns/{group.name}"
        for campaign in sorted(group.iterdir()):
            place = f"{group.name}/{campaign.name}"
            yield from _cases_of_results(f"campaigns/{place}", place, source)
    place = "recorded/one"
    commands = [["summarize", place], ["summarize", "--verify", place], ["status", place]]
    commands += [["archive", place], ["summarize", "--verify", place]]
    yield Case(f"campaigns/{place}/verify", commands, ["campaigns/recorded"])
    several = [f"several/{name}" for name in ("first", "second", "third", "slower")]
    summaries = [["summarize", name, "--history", "all.sqlite"] for name in several]
    table = ["history", "--history", "all.sqlite"]
    case = "mxnet-resnet50v1b-builtin_fp32_b128_1n1g"
    of_case = [*table, "--case", case, "--plot"]
    history = [*summaries, table, [*table, "--json"], [*of_case, "a.svg"], [*of_case, "a.png"]]
    pair = ["compare", several[0], several[3]]
    strict = [*pair, "--fail-if-slower", "2%", "--junit", "junit.xml"]
    spread = [["aa", *several[:3]], ["aa", *several[:3], "--json"]]
    saving = ["compare", several[0], "--save-baseline", "base"]
    baseline = [saving, ["compare", several[3], "--baseline", "base"]]
    groups = {"history": history, "compare": [pair, [*pair, "--json"], strict], "aa": spread}
    for name, commands in {**groups, "baseline": baseline}.items():
        yield Case(f"campaigns/several/{name}", commands, ["campaigns/several"])
    frameworks = ["frameworks/mxnet", "frameworks/tensorflow", "frameworks/paddle"]
    reports = [["report", *frameworks, "--output-dir", "report"]]
    reports += [["report", *frameworks, "--output-dir", "zh", "--lang", "zh"]]
    yield Case("campaigns/frameworks/report", reports, ["campaigns/frameworks"])


def _cases_of_results(name: str, place: str, source: str) -> Iterator[Case]:
    """Cases of logs or a campaign at `place`."""
    comparisons = ["compare", place], ["compare", place, "--json", "--all", "--assume-published"]
    summary = ["summarize", place, "--output-dir", "out", "--history", "h.sqlite"]
    exports = [["export", form, place] for form in ("prometheus", "openmetrics")]
    exports += [["export", "github", place, "-o", "summary.md"]]
    groups = {
        "summarize": [
            summary,
            ["summarize", place, "--json"],
            ["history", "--history", "h.sqlite"],
        ],
        "report": [["report", place, "--output-dir", "report"]],
        "compare": comparisons,
        "export": [*exports, summary, ["export", "prometheus", "h.sqlite"]],
    }
    for group, commands in groups.items():
        yield Case(f"{name}/{group}", commands, [source])


def _cases_of_plans(listing: Mapping[str, Any], project: Path) -> Iterator[Case]:
    examples = sorted(p.name for p in (project / "inventory").glob("example*"))
    for workload, entry in listing["workloads"].items():
        framework = listing["frameworks"][entry["framework"]]
        groups = [framework["environments"], *framework["flavors"].values()]
        supported = {stack for group in groups for stack in group}
        plan = ["plan", "--json", "--workload", workload, "--repeats", "1"]
        for stack, description in listing["stacks"].items():
            inventories = examples if description["accelerator"] == "gpu" else ["lab", "local"]
            places = [["-i", f"project/inventory/{name}"] for name in inventories]
            name, stacks = f"plan/{workload}/{stack}", ["-i", f"inputs/stacks/{stack}"]
            if stack not in supported or not entry["sources"]:
                yield Case(f"{name}/refused", [[*plan, *places[0], *stacks]])
                continue
            scripts = [word for word in plan if word != "--json"]
            slurm = [*scripts, "--nodes", "1,2", "--scheduler", "slurm", "--site"]
            contained = [*slurm, f"inputs/sites/{stack}-images.yml", "--container", "apptainer"]
            yield Case(f"{name}/slurm", [[*slurm, f"inputs/sites/{stack}.yml"], contained])
            images = ["-i", f"inputs/images/{stack}", "--container"]
            for source in entry["sources"]:
                fewer = ["--nodes", "1"] if inventories[-1] == "local" else []
                for inventory, place, limit in zip(inventories, places, ([], fewer), strict=False):
                    plain = [*plan, *place, *stacks, "--source", source, *limit]
                    yield Case(f"{name}/{inventory}-{source}", [plain])
                commands = [[*plan, *places[0], *images, e, "--source", source] for e in ENGINES]
                yield Case(f"{name}/containers-{source}", commands)


def copy_project(clone: Path, target: Path) -> None:
    """The clone's files as they are now, without what Git ignores and the tests."""
    argv = ["git", "-C", str(clone), "ls-files", "-z", "-c", "-o", "--exclude-standard"]
    names = subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source, path = clone / name, target / name
        if name.startswith(("tests/", "docs/", "benchmarks/")) or not source.is_file():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, path)


def record(folder: Path, project: Path, inputs: Path, only: str, jobs: int) -> int:
    """Record the cases whose names match `only`, and return their number."""
    if folder.exists() and any(folder.iterdir()):
        refuse(f"{folder} is not empty\nhint: name a new folder")
    with tempfile.TemporaryDirectory(prefix="same-") as name:
        copy = Path(name).resolve() / "project"
        copy_project(project, copy)
        recorder = Recorder(folder, inputs, copy)
        listing = json.loads(recorder.call(copy, ["list", "--json"]).stdout)
        if not inputs.exists():
            sys.path[:0] = [str(ROOT), str(ROOT / "tests/support")]
            from same_inputs import make_inputs

            make_inputs(inputs, listing)
        cases = [c for c in all_cases(listing, inputs, copy) if fnmatch.fnmatch(c.name, only)]
        with ThreadPoolExecutor(jobs) as pool:
            done = [pool.submit(recorder.record, case) for case in cases]
            if fnmatch.fnmatch("help", only):
                done.append(pool.submit(recorder.record_help))
            for future in done:
                future.result()
    return len(done)


def compare(before: Path, after: Path) -> tuple[int, dict[str, list[str]], dict[str, str]]:
    """The number of all outputs; the names of those that differ, by what differs in them; and for
    each of these kinds the first difference."""
    files = [[p for p in folder.rglob("*") if p.is_file()] for folder in (before, after)]
    trees = [
        {str(path.relative_to(folder)): path for path in paths}
        for folder, paths in zip((before, after), files, strict=True)
    ]
    if not all(trees):
        refuse("a folder without a recording\nhint: make one with `record FOLDER`")
    kinds: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    names = sorted(trees[0].keys() | trees[1].keys())
    for name in names:
        paths = [tree.get(name) for tree in trees]
        if None in paths:
            kind = text = f"only in {(after, before)[paths[1] is None]}"
        elif paths[0].read_bytes() == paths[1].read_bytes():
            continue
        else:
            # An option with another name changes the command, which is no result.
            argv = ["diff", "-U1", "-I", "^[$] dlperf ", "--label", "before", "--label", "after"]
            argv += map(str, paths)
            done = subprocess.run(argv, stdout=subprocess.PIPE, check=False, errors="replace")
            if done.returncode == 0:
                continue
            lines = done.stdout.splitlines()[2:]
            changed = {line[0] + line[1:].strip() for line in lines if line[:1] in ("+", "-")}
            kind, text = "\n".join(sorted(changed)), "\n".join(line[:200] for line in lines)
        kinds.setdefault(kind, []).append(name)
        first.setdefault(kind, text)
    return len(names), kinds, first


def print_differences(before: Path, after: Path) -> int:
    count, kinds, first = compare(before, after)
    for kind, names in kinds.items():
        others = f" and {len(names) - 4} others" if len(names) > 4 else ""
        print(f"== {', '.join(names[:4])}{others}")
        lines = first[kind].splitlines()
        print("\n".join(lines[:LINES_SHOWN]))
        if len(lines) > LINES_SHOWN:
            print(f"... {len(lines) - LINES_SHOWN} more lines")
    differing = sum(map(len, kinds.values()))
    print(f"{differing} of {count} outputs differ" if differing else f"{count} outputs are equal")
    return int(differing > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    recording = verbs.add_parser("record", help="record all outputs in a new folder")
    recording.add_argument("folder", type=Path)
    recording.add_argument("--project", type=Path, default=ROOT, help="a clone; default: this one")
    recording.add_argument("--inputs", type=Path, required=True, help="made if it does not exist")
    recording.add_argument("--only", default="*", metavar="PATTERN", help="cases by name")
    recording.add_argument("--jobs", type=int, default=2, metavar="N")
    comparison = verbs.add_parser("compare", help="exit status 1 if two recordings differ")
    comparison.add_argument("before", type=Path)
    comparison.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.verb == "compare":
        return print_differences(options.before, options.after)
    folder, inputs = options.folder.resolve(), options.inputs.resolve()
    count = record(folder, options.project.resolve(), inputs, options.only, options.jobs)
    print(f"{count} cases recorded in {options.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
