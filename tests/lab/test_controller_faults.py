"""What happens to the controllers of campaigns: signals, kills, a full disk, and each other.

DLPERF_KILLS=50 DLPERF_SEED=7 pytest -s tests/lab/test_controller_faults.py -k random_moments

kills the controller at so many random moments.
"""

import json
import os
import pty
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from child_processes import hear_signals, started
from fault_campaigns import (
    STEPS,
    Campaign,
    inside,
    left,
    release,
    signal_all,
    until,
)
from lab_under_test import PROJECT, Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.faults]


@pytest.fixture
def campaign(faulty_lab: Lab, faulty_catalog: Path, tmp_path: Path) -> Iterator[Campaign]:
    made = Campaign(faulty_lab, faulty_catalog, tmp_path / "campaign", steps=75)
    yield made
    release(made)
    release(Campaign(faulty_lab, faulty_catalog, tmp_path / "other"))


# ---- signals


def test_interrupt_lets_the_run_end_and_a_second_stops_it(campaign: Campaign) -> None:
    with started(campaign.lab, *campaign.run(nodes="1,2")) as process:
        campaign.trains(process, 8)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=900)
    assert process.returncode == 130, text
    assert campaign.statuses() == ["done", "planned"]
    campaign.note("Ctrl-C", "SIGINT", "the run under way is done", None)
    with started(campaign.lab, *campaign.resume()) as process:
        campaign.trains(process, 8)
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        check_stopped(campaign, process, "Ctrl-C twice", "SIGINT")
    campaign.check_resumes()


def check_stopped(campaign: Campaign, process: subprocess.Popen[str], fault: str, how: str) -> None:
    began = time.monotonic()
    text, _ = process.communicate(timeout=120)
    seconds = time.monotonic() - began
    assert process.returncode == 143, text
    stopped = [o for o in campaign.outcomes().values() if o["status"] == "failed"]
    assert [o["category"] for o in stopped] == ["stopped"]
    campaign.note(fault, how, "stopped", seconds)


def test_term_stops_the_run(campaign: Campaign) -> None:
    with started(campaign.lab, *campaign.run()) as process:
        campaign.trains(process, 8)
        process.send_signal(signal.SIGTERM)
        check_stopped(campaign, process, "controller told to end", "SIGTERM")
    campaign.check_resumes()


def test_closed_terminal_does_not_end_the_campaign(campaign: Campaign) -> None:
    pid, terminal = pty.fork()
    if not pid:
        hear_signals()
        os.chdir(PROJECT)
        os.execvpe(campaign.run()[0], campaign.run(), campaign.lab.environment)  # noqa: S606
    until("the campaign begins", 600, lambda: read_all(terminal, campaign))
    os.close(terminal)  # SIGHUP for its session
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    campaign.check_complete()
    campaign.note("terminal closed", "its pseudo-terminal, in the middle of a run", "done", None)


def read_all(terminal: int, campaign: Campaign) -> bool:
    """Read what was printed, as a terminal does, and say whether a run is under way."""
    os.set_blocking(terminal, False)
    with suppress(BlockingIOError):
        while os.read(terminal, 4096):
            pass
    return bool(list(campaign.directory.glob("runs/*/*/progress.json")))


def test_detached_campaign_is_followed_and_stopped(campaign: Campaign) -> None:
    lab, campaign.steps = campaign.lab, STEPS
    done = lab.command(*campaign.run("--detach", nodes="1,2"))
    assert done.returncode == 0, done.stdout
    pid = int(re.search(r"process (\d+) runs", done.stdout).group(1))  # type: ignore[union-attr]
    os.kill(pid, signal.SIGHUP)
    second = lab.command(*campaign.resume())
    assert second.returncode == 2
    assert "another controller works on this campaign" in second.stdout
    with started(lab, *campaign.argv("attach", campaign.directory)) as follower:
        campaign.trains(steps=8)
        follower.send_signal(signal.SIGINT)
        text, _ = follower.communicate(timeout=60)
    assert (follower.returncode, "The campaign continues" in text) == (0, True), text
    until("a run is done", 600, lambda: "done" in campaign.statuses())
    campaign.trains(steps=8)
    began = time.monotonic()
    stopped = lab.command(*campaign.argv("stop", campaign.directory, "--now"))
    assert f"process {pid} stops the current run" in stopped.stdout
    attached = lab.command(*campaign.argv("attach", campaign.directory))
    seconds = time.monotonic() - began
    assert attached.returncode == 1 and "stopped" in attached.stdout, attached.stdout
    watched = lab.command(*campaign.argv("status", campaign.directory, "--watch"))
    assert "no controller" in watched.stdout.splitlines()[-1]
    until("the controller has ended", 600, lambda: not Path(f"/proc/{pid}").exists())
    campaign.note(
        "`run --detach`, then `attach` and `stop --now`", "the commands", "stopped", seconds
    )
    campaign.check_resumes()


# ---- a controller that does not work for a while, or never again


def test_suspended_controller_goes_on_after_its_run_was_stopped(campaign: Campaign) -> None:
    # The first run stops itself in the middle: it would end before the lease does.
    inside(campaign.lab, "node1", "echo stops > /home/dlperf/fault")
    with started(campaign.lab, *campaign.run(repeats=2)) as process:
        campaign.trains(process, 8)
        inside(campaign.lab, "node1", "rm /home/dlperf/fault")
        signal_all(campaign, process.pid, signal.SIGSTOP)
        seconds = until("the node ends the run", 600, lambda: left(campaign.lab) == [])
        signal_all(campaign, process.pid, signal.SIGCONT)
        text, _ = process.communicate(timeout=900)
    assert process.returncode == 1, text
    assert campaign.statuses() == ["done", "failed"]
    (outcome,) = [o for o in campaign.outcomes().values() if o["status"] == "failed"]
    assert outcome["reason"] in ("lease", "hung")
    campaign.note("controller suspended", "SIGSTOP", outcome["category"], seconds)
    campaign.check_resumes("--retry-failed")


def test_second_campaign_is_refused_until_the_first_is_dead(
    campaign: Campaign, tmp_path: Path
) -> None:
    lab, campaign.steps = campaign.lab, STEPS
    other = Campaign(lab, campaign.catalog, tmp_path / "other", steps=75)
    with started(lab, *campaign.run(nodes="1", repeats=2)) as process:
        campaign.trains(process, 8)
        refused = lab.command(*other.run(nodes="1"))
        assert refused.returncode != 0
        assert f"is held by campaign {campaign.directory}" in " ".join(refused.stdout.split())
        campaign.trains(process, 8)
        signal_all(campaign, process.pid, signal.SIGKILL)
    killed = time.time()
    until("the nodes end the run", 600, lambda: left(lab) == [])
    campaign.note("two campaigns at once", "`run` on the same nodes", "refused", None)
    done = lab.command(*other.resume("--wait=5m"))
    assert done.returncode == 0, done.stdout
    (outcome,) = other.outcomes().values()
    seconds = timestamp(outcome["started"]) - killed
    other.check_complete()
    other.note(
        "holder of the nodes dead",
        "SIGKILL, then another campaign",
        "done after the lease",
        seconds,
    )
    campaign.check_resumes()


def timestamp(text: str) -> float:
    from datetime import datetime

    return datetime.fromisoformat(text).timestamp()


def test_campaign_that_lost_its_nodes_while_suspended_ends_its_run(
    campaign: Campaign, tmp_path: Path
) -> None:
    lab, campaign.steps = campaign.lab, STEPS
    other = Campaign(lab, campaign.catalog, tmp_path / "other", steps=75)
    with started(lab, *campaign.run(nodes="1", repeats=2)) as process:
        campaign.trains(process, 8)
        signal_all(campaign, process.pid, signal.SIGSTOP)
        done = lab.command(*other.run("--wait=5m", nodes="1"))
        assert done.returncode == 0, done.stdout
        signal_all(campaign, process.pid, signal.SIGCONT)
        began = time.monotonic()
        text, _ = process.communicate(timeout=900)
    how = "suspended for longer than it"
    if process.returncode == 0:  # suspended within a connection, which has timed out
        assert "lost: retry 1 of 2" in text
        campaign.check_complete()
        campaign.note("lease lost to another campaign", how, "node lost, then done", None)
        return
    last = list(campaign.outcomes().values())[-1]
    assert (last["status"], last["category"], last["reason"]) == ("failed", "stopped", "lock")
    seconds = time.monotonic() - began
    campaign.note("lease lost to another campaign", how, "stopped", seconds)
    campaign.check_resumes()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_full_disk_of_the_controller_loses_no_result(campaign: Campaign) -> None:
    place = campaign.directory.parent / "small"
    with mounted(place, "2m"):
        campaign.directory = place / "campaign"
        with started(campaign.lab, *campaign.run(repeats=3)) as process:
            until("a run is done", 600, lambda: "done" in campaign.statuses())
            campaign.trains(process, 8)
            fill(place / "filler")
            began = time.monotonic()
            text, _ = process.communicate(timeout=900)
            seconds = time.monotonic() - began
        assert process.returncode != 0
        assert "Traceback" not in text, text
        assert "No space left on device" in text
        assert "done" in campaign.statuses()
        campaign.note(
            "disk of the controller full", "a full file system of 2 MiB", "stopped", seconds
        )
        (place / "filler").unlink()
        campaign.check_resumes("--retry-failed")


@contextmanager
def mounted(place: Path, size: str) -> Iterator[None]:
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def fill(path: Path) -> None:
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


# ---- any moment


def test_controller_killed_at_random_moments_resumes_to_the_planned_runs(
    campaign: Campaign,
) -> None:
    """The controller alone, or together with its playbook, as by a power cut of their machine."""
    kills, seed = int(os.environ.get("DLPERF_KILLS", "3")), os.environ.get("DLPERF_SEED", "7")
    chance = random.Random(seed)  # noqa: S311
    campaign.steps = 8
    new = {"nodes": "1", "repeats": 3}
    began = time.monotonic()
    done = campaign.lab.command(*campaign.run(**new))
    assert done.returncode == 0, done.stdout
    length = time.monotonic() - began
    campaign.check_complete()
    print(f"\na campaign of 3 runs takes {length:.0f} s; seed {seed}")
    lengths = [length]
    killed, number = 0, 0
    while killed < kills:
        number += 1
        place = campaign.directory.with_name(f"campaign{number}")
        campaign = Campaign(campaign.lab, campaign.catalog, place, 8)
        print(f"campaign {number}:", end="", flush=True)
        while killed < kills and (moment := killed_once(campaign, chance, lengths, new)):
            killed += 1
            print(f" {moment},", end="", flush=True)
            if not is_planned(campaign):
                break  # a part of a campaign is not resumed
        if killed == kills and is_planned(campaign):
            campaign.check_resumes()
        print(f" {signs(campaign)}", flush=True)
    until("no process is left", 600, lambda: left(campaign.lab) == [])
    print(f"{killed} kills, {number} campaigns: each planned run done exactly once")
    campaign.note(
        "controller killed at a random moment",
        f"SIGKILL, alone or with its playbook (seed {seed}, {killed} times)",
        "done",
        None,
    )


def killed_once(
    campaign: Campaign, chance: random.Random, lengths: list[float], new: dict[str, Any]
) -> str:
    """Start or resume a campaign and kill its controller. Returns the seconds until then, whom it
    hit, and the states of the runs; nothing if the campaign ended before. `lengths`: the seconds
    that whole campaigns took."""
    is_new = not is_planned(campaign)
    argv = campaign.run(**new) if is_new else campaign.resume()
    moment, alone = chance.uniform(0.2, lengths[-1]), chance.random() < 0.5
    began = time.monotonic()
    with started(campaign.lab, *argv) as process:
        with suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=moment)
        if process.returncode is not None:
            assert process.returncode == 0
            if is_new:
                lengths.append(time.monotonic() - began)  # this machine is faster than it was
            campaign.check_complete()
            return ""
        if alone:
            process.kill()
        else:
            signal_all(campaign, process.pid, signal.SIGKILL)
    for path in campaign.directory.rglob("*.json"):
        with suppress(FileNotFoundError):  # of a playbook that still ends its run
            if not path.name.startswith("."):
                json.loads(path.read_text())
    assert alone or campaign.lost() == 0
    return f"{moment:.0f} s {'controller' if alone else 'both'} {signs(campaign)}"


def signs(campaign: Campaign) -> str:
    """The states of the planned runs, as d (done), r (running), f (failed) and p (planned)."""
    return "".join(status[0] for status in campaign.statuses()) or "-"


def is_planned(campaign: Campaign) -> bool:
    return (campaign.directory / "campaign.json").exists()
