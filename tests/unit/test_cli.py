"""The command line: what it prints, its exit statuses, and that bad input is no traceback."""

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from command_line import call
from make_logs import ROOT, campaign_run, gluoncv
from plan_examples import gpu_nodes, lab_nodes
from planned_campaigns import set_outcome

from dlperf_runner.commands import main
from dlperf_runner.core.lists import name_ranges
from dlperf_runner.plan import inventory


@pytest.fixture(autouse=True)
def lab(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """The lab's nodes instead of Ansible's answer; what was asked for is kept."""
    read = mock.Mock(return_value=lab_nodes())
    monkeypatch.setattr(inventory, "read_inventory", read)
    return read


def test_a_python_without_the_requirements_says_what_to_do() -> None:
    # -S: none of the installed packages is to be seen.
    argv = [sys.executable, "-S", "-m", "dlperf_runner", "list"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    for text in ("lacks the module typer", ". .venv/bin/activate", "make setup"):
        assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_no_command_starts_another_thread(tmp_path: Path) -> None:
    """numpy's would take a quarter of the processor time in which `summarize` starts."""
    campaign_run(tmp_path / "a", "1n1g", 1, gluoncv(380.0))
    code = (
        "import os, sys; sys.argv[1:1] = ['summarize']\n"
        "from dlperf_runner.commands import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('numpy' in sys.modules, len(os.listdir('/proc/self/task')))\n"
        "print(os.environ.get('OPENBLAS_NUM_THREADS'))\n"
    )
    argv = [sys.executable, "-c", code, tmp_path / "a", "--output-dir", tmp_path / "out"]
    for threads in ({}, {"OPENBLAS_NUM_THREADS": "3"}):
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_NUM_THREADS"} | threads
        printed = subprocess.check_output(argv, cwd=ROOT, text=True, env=environment)
        # The variable is left as it was, for other programs.
        assert printed.splitlines()[-2:] == ["True 1", threads.get("OPENBLAS_NUM_THREADS", "None")]


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("list workloads >/dev/full", 2, "error: output: No space left on device\n"),
        ("--version >/dev/full", 2, "error: output: No space left on device\n"),
        ("list workloads >&-", 0, ""),
        ("init-workload <&-", 2, "error: options are missing (expected --catalog"),
        # No command needs a locale with UTF-8.
        ("summarize été", 2, "error: "),
        ("list published", 0, ""),
    ],
)
def test_streams_and_letters_of_all_kinds(words: str, status: int, message: str) -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    argv = ["sh", "-c", f"{sys.executable} -m dlperf_runner {words}"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, env=env, check=False)
    assert (done.returncode, done.stderr.startswith(message)) == (status, True)
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_gone_hides_no_error() -> None:
    code = (
        "import os\n"
        "from dlperf_runner.commands import UserError, _errors_as_messages\n"
        "reader, writer = os.pipe()\n"
        "os.close(reader)\n"
        "os.dup2(writer, 1)\n"
        "with _errors_as_messages():\n"
        "    print('a line')\n"
        "    raise UserError('the reason')\n"
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": ""}
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)
    assert done.stderr.startswith("error: the reason\n")
    assert "BrokenPipe" not in done.stderr


def test_a_missing_right_is_no_traceback(here: Path) -> None:
    campaign_run(here / "a", "1n1g", 1, gluoncv(380.0))
    (here / "results").write_text("no directory")
    saved = call("compare", "--save-baseline", "main", "a", status=2)
    assert saved.err.startswith("error: ")
    assert "results" in saved.err


def test_plan_prints_every_command_per_host() -> None:
    lines = call("plan", "--model", "resnet50v1b", "--repeats", "2").out.splitlines()
    assert lines[0] == (
        "mxnet-resnet50v1b-builtin_fp32_b2_1n1g: 1 node with 1 device (node1), fp32, batch 2 per"
        " device, 12 iterations of which 4 are warm-up, 2 runs, data=synthetic"
    )
    assert lines[1].startswith(
        "  r1..r2 on node1: cd /opt/dlperf/src/mxnet-resnet50v1b-builtin && env OMP_NUM_THREADS=1"
        " /usr/bin/mpirun --host node1:1 -np 1 --bind-to none"
    )
    assert lines[-1] == "3 cases, 6 runs, interleaved; nothing was run"


def test_a_plan_for_many_nodes_has_a_line_for_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {"stack": "h100-cuda12.9", "accelerator": "NVIDIA H100 80GB HBM3"}
    nodes = gpu_nodes(64, frameworks=("pytorch",), **usual)
    monkeypatch.setattr(inventory, "read_inventory", lambda *_, **__: nodes)
    wanted = "--model resnet50 --precision tf32 --nodes 64 --repeats 2"
    lines = call("plan", *wanted.split()).out.splitlines()
    assert "64 nodes with 8 devices (node1..node64), tf32" in lines[0]
    assert lines[1].startswith("  r1..r2 on node1..node64: cd /opt/dlperf/src/")
    assert " --nnodes=64 '--node-rank={0..63}' --nproc-per-node=8 " in lines[1]
    # 2 runs of at most an hour each
    assert lines[-2:] == [
        "at most 128 node-hours, if each run takes its time limit",
        "1 case, 2 runs; nothing was run",
    ]
    assert len(lines) == 5


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("gpu009 gpu010 gpu011 gpu013", "gpu009..gpu011, gpu013"),
        ("n9.a n10.a b", "n9.a..n10.a, b"),
        ("9" * 5000, "9" * 5000),
        ("r1n1 r1n2 r2n1 r2n2", "r1n1..r1n2, r2n1..r2n2"),
        ("", ""),
    ],
)
def test_names_that_count_up_are_a_range(names: str, expected: str) -> None:
    assert name_ranges(names.split()) == expected


def test_inventories_and_limit_are_passed_on(lab: mock.Mock) -> None:
    call("plan", "-i", "a", "--inventory", "b,", "--limit", "node1,node2")
    ((inventories, limit, *_),) = (each.args for each in lab.call_args_list)
    assert (tuple(inventories), limit) == (("a", "b,"), "node1,node2")


NOWHERE = "there is no such file or directory"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan --model vgg", "error: --model: unknown model 'vgg' (expected one of "),
        ("plan --nodes 9", "9n2g needs 9 nodes with 2 devices"),
        ("plan --nodes x", "error: --nodes: invalid number"),
        ("plan --resume nowhere", f"error: nowhere: {NOWHERE}"),
        ("plan --wait soon", "--wait: invalid duration (expected a duration like 90s, 30m or 2h"),
        ("run --model vgg", "error: --model: unknown model 'vgg'"),
        ("run --resume nowhere", f"nowhere: {NOWHERE}"),
        ("run --wait soon --campaign c", "--wait: invalid duration"),
        ("status nowhere", f"error: nowhere: {NOWHERE}"),
        ("source --workload x", "error: --workload: unknown workload 'x'"),
        ("bundle --stack x", "error: --stack: unknown stack 'x'"),
        ("bundle --framework mxnet,x", "error: --framework: unknown framework 'x'"),
        ("plan --nonsense", "No such option"),
        ("nonsense", "No such command"),
        ("", "Usage: "),
    ],
)
def test_bad_input_is_exit_status_2(here: Path, arguments: str, message: str) -> None:
    result = call(*arguments.split(), status=2)
    assert message in result.err + result.out
    assert "Traceback" not in result.err + result.out
    assert not [*here.iterdir()]


def test_a_campaign_from_plan_to_status(tmp_path: Path) -> None:
    directory = tmp_path / "results" / "one"
    arguments = ("--nodes", "2", "--wait", "30m", "--campaign", directory, "--json")
    document = call("plan", *arguments).document
    assert (document["campaign"], document["wait_s"]) == (str(directory), 1800)
    assert "wait_s" not in json.loads((directory / "plan.json").read_text())
    (run,) = document["runs"]
    table, end = call("status", directory, status=1).out.splitlines()[-2:]
    assert (table, end) == (f"| {run['id']} | planned |", "0 of 1 runs done")

    gone = {"host": socket.gethostname(), "pid": 2**22 + 1}  # more than Linux has
    set_outcome(directory, run, status="running", controller=gone)
    out = call("status", directory, status=1).out
    assert f"| {run['id']} | cut off | its controller ended |" in out

    set_outcome(directory, run, status="failed", message="mpirun ended with 1")
    assert not (tmp_path / "results" / "latest").is_symlink()
    out = call("status", directory, status=1).out
    assert f"\n| {run['id']} | failed | mpirun ended with 1 |\n0 of" in out

    record = set_outcome(directory, run, status="done")
    record.with_name(run["log_name"]).write_text("")
    out = call("status", directory, status=1).out
    assert f"| {run['id']} | invalid |" in " ".join(out.split())
    assert "\n1 of 1 runs done, 1 of them invalid\n" in out
    assert f"not recorded in manifest.jsonl: {run['id']}. Resume" in out
    resumed = call("plan", "--resume", directory, "--json").document
    assert (resumed["runs"], resumed["campaign"]) == ([], str(directory))


@pytest.mark.parametrize(("outcome", "status"), [("done", 0), ("failed", 1), ("planned", 1)])
def test_run_plans_once_and_has_the_plan_carried_out(
    monkeypatch: pytest.MonkeyPatch, here: Path, outcome: str, status: int
) -> None:
    asked = []

    def execute(
        directory: Path, inventories: list[str], wait: str, *_: object, **__: object
    ) -> list[str]:
        """Leaves behind what bench.yml does with the plan that is there."""
        asked.append((directory, inventories, wait))
        for run in json.loads((directory / "plan.json").read_text())["runs"]:
            record = set_outcome(directory, run, status=outcome)
            assert "--image-size" in json.loads(record.read_text())["commands"][0]["argv"]
            record.with_name(run["log_name"]).touch()
        return [] if outcome == "done" else ["node1: it broke"]

    monkeypatch.setattr("dlperf_runner.campaign.execute.execute", execute)
    monkeypatch.setattr("dlperf_runner.commands.run.print_summary", lambda _: print("a table") or 0)
    chosen = "--model resnet50v1b --nodes 1,2 -p image_size=32 -i inv --campaign results/one"
    result = call("run", *chosen.split(), status=status)
    assert result.out == "a table\n"
    assert result.err == ("" if outcome == "done" else "error: node1: it broke\n")
    directory = here / "results" / "one"
    assert asked == [(directory, [str(here / "inv")], "")]

    result = call("run", *chosen.split(), status=2)
    assert "results/one: cannot create a campaign here" in result.err
    retried = ["--retry-failed"] * (outcome == "failed")
    call("run", "--resume", "results/one", "--wait", "30m", *retried, status=status)
    assert asked[1:] == ([] if outcome == "done" else [(directory, [], "30m")])


@pytest.mark.parametrize(
    ("encoding", "more"), [("ascii", []), ("latin-1", ["--json"]), ("gb18030", [])]
)
def test_output_in_any_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, more: list[str]
) -> None:
    """A letter that the encoding does not have is escaped, also in JSON, which stays valid."""
    campaign_run(tmp_path / "c", "1n1g", 1, gluoncv(380.0))
    printed = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(printed, encoding))
    monkeypatch.setattr(sys, "argv", ["dlperf", "report", str(tmp_path / "c"), "--lang=zh", *more])
    with pytest.raises(SystemExit, match=r"^0$"):
        main()
    sys.stdout.flush()
    text = printed.getvalue().decode(encoding)
    letters = "\u516c\u5f00" if more or encoding == "gb18030" else r"\u516c\u5f00"
    assert letters in (json.loads(text)["answers"][0] if more else text)
