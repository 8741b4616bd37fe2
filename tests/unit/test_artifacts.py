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

import pytest
from role_runs import HOSTS, ROOT, as_bench_does, command, outcome, run_role
from watcher import repeating

from dlperf_runner.campaign import execute

SECRET = "planted-7d1e0c"  # noqa: S105
PLAY = [
    {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars": {"ansible_python_interpreter": "{{ ansible_playbook_python }}"},
        "vars_files": ["secret.yml"],
        "tasks": [
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
        ],
    }
]


def test_artifacts_are_private_hold_no_secret_and_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "play.yml").write_text(json.dumps(PLAY))
    (tmp_path / "secret.yml").write_text(json.dumps({"planted": SECRET}))
    (tmp_path / "ansible.cfg").touch()
    monkeypatch.setattr(execute, "project", lambda: tmp_path)
    state = execute.Playbook(log=tmp_path / "ansible.log")
    execute.run_playbook("play.yml", {"resume": "x"}, ["localhost,"], state)
    log = state.log.read_text()
    assert "Copy what is there meanwhile" in log
    (problem,) = state.problems  # the last task did run
    assert "Fail with it" in problem
    private = Path((tmp_path / "private").read_text().strip())
    mode, _ = (tmp_path / "mode").read_text().split()
    assert mode == "700"
    assert not private.exists()
    assert state.log.stat().st_mode & 0o777 == 0o600
    for text in (log, problem, (tmp_path / "files").read_text()):
        assert SECRET not in text


def test_what_a_killed_controller_left_is_removed_when_the_next_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    (tmp_path / "project").mkdir()
    (tmp_path / "project/play.yml").write_text(
        json.dumps([{**PLAY[0], "vars_files": [], "tasks": []}])
    )
    (tmp_path / "project/ansible.cfg").touch()
    monkeypatch.setattr(execute, "project", lambda: tmp_path / "project")
    state = execute.Playbook(log=tmp_path / "ansible.log")
    execute.run_playbook("play.yml", {"resume": "x"}, ["localhost,"], state)
    assert state.status == "successful", state.log.read_text()
    assert {path.name for path in tmp_path.glob("dlperf-runner-*")} == set(kept.values())


def test_host_keys_are_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ansible.cfg says, although ansible-runner would switch it off."""
    setting = "{{ q('config', 'host_key_checking', plugin_type='connection', plugin_name='ssh') }}"
    tasks = [{"debug": {"msg": setting}}]
    (tmp_path / "play.yml").write_text(json.dumps([{**PLAY[0], "vars_files": [], "tasks": tasks}]))
    shutil.copy(ROOT / "ansible.cfg", tmp_path)
    monkeypatch.setattr(execute, "project", lambda: tmp_path)
    state = execute.Playbook(log=tmp_path / "ansible.log")
    execute.run_playbook("play.yml", {}, ["localhost,"], state)
    log = state.log.read_text()
    assert "true" in log.lower(), log
    assert "false" not in log.lower(), log


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
    private = tmp_path / "private"
    private.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(private))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    secrets = {"ansible_become_password": SECRET, "ansible_password": SECRET}
    hosts = {"all": {"hosts": {host: {} for host in HOSTS}, "vars": secrets}}
    inventory = tmp_path / "inventory.json"
    inventory.write_text(json.dumps(hosts))
    campaign = tmp_path / "work"
    campaign.mkdir()
    (campaign / "campaign").mkdir()
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
