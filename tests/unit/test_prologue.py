"""The site's own commands (dlperf_prologue) at the beginning of a job."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dlperf_runner.control.scheduled import read_site
from dlperf_runner.core.errors import UserError
from dlperf_runner.schedulers import Allocation
from dlperf_runner.schedulers.job import prologue


def run(*lines: str) -> subprocess.CompletedProcess[str]:
    """What a job's script does after the site's lines: its children have what they set."""
    asked = Allocation("dlperf-1", Path("/c/jobs/1"), 1, 1, 0, {}, prologue=lines)
    # As an administrator's module does.
    function = "module() { [[ $1 == load && $2 == tool* ]] && export LOADEDMODULES=$2; }\n"
    script = f"{function}{prologue(asked)}\nbash -c 'echo \"have $LOADEDMODULES $MORE\"'\n"
    return subprocess.run(["bash", "-c", script], text=True, check=False, capture_output=True)


def test_what_it_sets_reaches_all_that_the_job_starts() -> None:
    done = run("module load tool/1.2", "export MORE='of it'")
    assert (done.returncode, done.stdout) == (0, "have tool/1.2 of it\n")
    assert run().stdout == "have  \n"


def test_a_job_ends_if_one_of_its_commands_fails() -> None:
    done = run("export MORE=1", "module load other", "touch /nonexistent/x")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "dlperf_prologue failed: module load other\n"


@pytest.mark.parametrize("after", ["", "# of the site", "true # of the site"])
def test_a_comment_hides_no_failure(after: str) -> None:
    assert run(f"true {after}", "", after).returncode == 0
    done = run(after, "module load other # for NCCL", after)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_site_s_file_with_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "site.yml"
    for text in ("module load x", "[1]", '["a\\nb"]', "{a: b}"):
        path.write_text(f"dlperf_prologue: {text}\n")
        with pytest.raises(UserError, match="dlperf_prologue is no list of commands"):
            read_site(path)
    path.write_text("dlperf_prologue: [module load x]\n")
    assert read_site(path)["dlperf_prologue"] == ["module load x"]
