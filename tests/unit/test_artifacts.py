"""What ansible-runner leaves: nothing, and while it runs, nothing that others may read."""

import getpass
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from role_runs import HOSTS, ROOT, as_bench_does, command, outcome, run_role
from watcher import repeating

from dlperf_runner.campaign import execute

SECRET = "planted-7d1e0c"  # noqa: S105
PLAY = {
    "hosts": "localhost",
    "connection": "local",
    "gather_facts": False,
    "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
    "vars_files": ["secret.yml"],
}
TASKS = [
    {"name": "Use it", "debug": {"msg": "{{ planted }}"}, "no_log": True},
    {
        "name": "Copy what is there meanwhile",
        "shell": "private=$(dirname $DLPERF_PID_FILE); stat -c '%a %u' $private > mode;"
        " find $private -type f -exec cat {} + > files; echo $private > private",
        "args": {"chdir": "{{ playbook_dir }}"},
    },
    {
        "name": "Fail with it",
        "command": {"argv": ["sh", "-c", "echo {{ planted }}; exit 3"]},
        "no_log": True,
    },
]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder whose play.yml is run."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/ansible.cfg").touch()
    (tmp_path / "project/secret.yml").write_text(json.dumps({"planted": SECRET}))
    monkeypatch.setattr(execute, "project", lambda: tmp_path / "project")
    return tmp_path / "project"


def played(project: Path, tasks: list[dict[str, Any]]) -> execute.Playbook:
    """The end of a playbook of these tasks."""
    (project / "play.yml").write_text(json.dumps([{**PLAY, "tasks": tasks}]))
    state = execute.Playbook(log=project / "ansible.log")
    execute.run_playbook("play.yml", {"resume": "x"}, ["localhost,"], state)
    return state


def test_artifacts_are_private_hold_no_secret_and_are_removed(project: Path) -> None:
    state = played(project, TASKS)
    log = state.log.read_text()
    assert "Copy what is there meanwhile" in log
    (problem,) = state.problems  # the last task did run
    assert "Fail with it" in problem
    mode, _ = (project / "mode").read_text().split()
    assert mode == "700"
    assert not Path((project / "private").read_text().strip()).exists()
    assert state.log.stat().st_mode & 0o777 == 0o600
    for text in (log, problem, (project / "files").read_text()):
        assert SECRET not in text


def test_what_a_killed_controller_left_is_removed_when_the_next_starts(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while its playbook still ends, and not what another user, host or controller has."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ended = subprocess.Popen(["true"])
    ended.wait()
    kept = {
        "its playbook runs": f"{execute.PREFIX}{ended.pid}-a",
        "another's": f"{execute.PREFIX}{ended.pid}-b",
        "controller runs": f"{execute.PREFIX}{os.getpid()}-c",
        "other host": f"dlperf-runner-elsewhere-{ended.pid}-d",
        "other name": f"{execute.PREFIX}notes-e",
    }
    left = [f"{execute.PREFIX}{ended.pid}-f", f"{execute.PREFIX}{ended.pid}-g"]
    for name in [*kept.values(), *left]:
        (tmp_path / name / "artifacts").mkdir(parents=True)
    (tmp_path / kept["its playbook runs"] / execute.PID_FILE).write_text(str(os.getpid()))
    (tmp_path / left[0] / execute.PID_FILE).write_text(str(ended.pid))
    os.mkfifo(tmp_path / kept["another's"] / execute.PID_FILE)  # to read it would never end
    if os.getuid() == 0:
        os.chown(tmp_path / kept["another's"], 1234, -1)
    else:  # only root can give a file away
        shutil.rmtree(tmp_path / kept.pop("another's"))
    state = played(project, [])
    assert state.status == "successful", state.log.read_text()
    assert {path.name for path in tmp_path.glob("dlperf-runner-*")} == set(kept.values())


def test_host_keys_are_checked(project: Path) -> None:
    """As ansible.cfg says, although ansible-runner would switch it off."""
    setting = "{{ q('config', 'host_key_checking', plugin_type='connection', plugin_name='ssh') }}"
    shutil.copy(ROOT / "ansible.cfg", project)
    log = played(project, [{"debug": {"msg": setting}}]).log.read_text().lower()
    assert "true" in log and "false" not in log, log


@contextmanager
def artifacts(folder: Path) -> Iterator[dict[str, set[object]]]:
    """The modes of ansible-runner's folders while they are there, and what is in their files."""
    seen: dict[str, set[object]] = {"modes": set(), "owners": set(), "contents": set()}

    def look() -> None:
        for private in folder.glob("dlperf-runner-*"):
            with suppress(OSError):
                seen["modes"].add(private.stat().st_mode & 0o777)
                seen["owners"].add(private.owner())
            for path in private.rglob("*"):
                with suppress(OSError):
                    seen["contents"].add(path.read_bytes() if path.is_file() else b"")

    with repeating(look, 0.05):
        yield seen


def test_a_campaign_leaves_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A password of the inventory, over a campaign by the plays of bench.yml: it is not in the
    artifacts of ansible-runner, the log, the records or the nodes' folders of runs."""
    private, campaign = tmp_path / "private", tmp_path / "work"
    private.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    secrets = {"ansible_become_password": SECRET, "ansible_password": SECRET}
    hosts = {"all": {"hosts": {host: {} for host in HOSTS}, "vars": secrets}}
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps(hosts))
    (campaign / "campaign").mkdir(parents=True)
    (campaign / "campaign/campaign.json").write_text("{}")
    state = execute.Playbook(log=campaign / "campaign/ansible.log")

    def start(play: Path) -> None:
        execute.run_playbook(str(play), {}, [str(inventory)], state)

    with artifacts(private) as seen:
        first = run_role(
            campaign, "", HOSTS[:1], {}, partial(as_bench_does, repeats=2), start=start,
            accelerator="cpu", commands=[command("node1", "/usr/bin:/bin", "sleep", "1")],
        )  # fmt: skip
    assert state.status == "successful", state.problems
    for repeat in ("r1", "r3"):
        outcome(first.parent / repeat)
    assert (seen["modes"], seen["owners"]) == ({0o700}, {getpass.getuser()})
    assert len(seen["contents"]) > 1
    assert not any(SECRET.encode() in bytes(content) for content in seen["contents"])
    assert list(private.iterdir()) == []
    assert state.log.stat().st_mode & 0o777 == 0o600
    files = [path for path in campaign.rglob("*") if path.is_file()]
    assert {"run.json", "job.json", "ansible.log"} <= {path.name for path in files}
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
