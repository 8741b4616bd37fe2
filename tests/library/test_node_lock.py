"""node_lock, executed as a module on this machine: who gets a node, who loses it, and when."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from benchmark_jobs import until
from executed_modules import ME, play
from standins import ansible_standin, execute


def call(directory: Path, token: str, **options: Any) -> Any:
    arguments = {
        "directory": str(directory),
        "token": token,
        "campaign": f"results/{token}",
        "owner": "alice",
        "host": "head",
        "lease_s": 3600,  # none expires while a test waits
    } | options
    return execute("node_lock", directory.parent, **arguments)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the node's lock will be; not made yet, as after a boot."""
    ansible_standin(tmp_path / "ansible-standin")
    return tmp_path / "lock"


def leases(place: Path) -> list[str]:
    return sorted(path.name for path in place.glob("lease.*"))


def grow_old(place: Path, token: str, seconds: float) -> None:
    lease = place / f"lease.{token}"
    then = lease.stat().st_mtime - seconds
    os.utime(lease, (then, then))


def test_second_campaign_is_told_who_has_the_node(place: Path) -> None:
    assert call(place, "a") == {"changed": True, "held": True, "holder": ""}
    assert call(place, "a") == {"changed": False, "held": True, "holder": ""}
    refused = call(place, "b", owner="bob")
    assert (refused["changed"], refused["held"]) == (False, False)
    assert refused["holder"].startswith("campaign results/a of alice on head since 20")
    assert call(place, "b", state="absent")["changed"] is False  # it is not theirs to give
    assert leases(place) == ["lease.a"]
    assert call(place, "a", state="absent") == {"changed": True, "held": False, "holder": ""}
    assert leases(place) == []
    assert call(place, "b")["held"]


def test_controller_of_the_same_campaign_takes_its_nodes_over_at_once(place: Path) -> None:
    """The one before was killed: a campaign has only one. Any other has to wait for the lease."""
    assert call(place, "a", campaign="results/c")["held"]
    for other in ({"host": "another"}, {"owner": "bob"}, {"campaign": "results/d"}):
        assert not call(place, "b", **({"campaign": "results/c"} | other))["held"]
    assert leases(place) == ["lease.a"]
    assert call(place, "b", campaign="results/c") == {"changed": True, "held": True, "holder": ""}
    assert leases(place) == ["lease.b"]  # the run of the killed one notices, and ends


def test_one_of_many_that_come_at_once_gets_it(place: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: call(place, f"t{n}"), range(8)))
    winners = [f"lease.t{n}" for n, result in enumerate(results) if result["held"]]
    assert len(winners) == 1
    assert leases(place) == winners


def test_lock_of_a_dead_holder_is_taken_over_and_he_finds_his_lease_gone(place: Path) -> None:
    call(place, "a")
    grow_old(place, "a", 2400)
    assert not call(place, "b")["held"]
    grow_old(place, "a", 1300)
    assert call(place, "b")["held"]
    assert leases(place) == ["lease.b"]
    # He was only asleep: he is refused, and cannot give away what is not his.
    assert "results/b" in call(place, "a")["holder"]
    call(place, "a", state="absent")
    assert leases(place) == ["lease.b"]


@pytest.mark.parametrize("damage", ["another boot", "no JSON", "a lease of the future", "no lease"])
def test_stale_file_keeps_nobody_out(place: Path, damage: str) -> None:
    call(place, "a")
    lock = place / "lock"
    if damage == "another boot":
        lock.write_text(json.dumps(json.loads(lock.read_text()) | {"boot_id": "another"}))
    elif damage == "no JSON":
        lock.write_text("{")
    elif damage == "a lease of the future":
        grow_old(place, "a", -1e6)
    else:
        (place / "lease.a").unlink()
    assert call(place, "b")["held"]


def looks(lock: Path, text: str) -> bool:
    """Whether somebody reads the lock, here a FIFO; then he finds this text."""
    try:
        descriptor = os.open(lock, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    with open(descriptor, "w") as file:  # noqa: PTH123
        file.write(text)
    return True


def test_waiting_ends_when_the_node_is_given_back(place: Path) -> None:
    call(place, "a")
    assert "results/a" in call(place, "b", state="free", wait_s=1)["holder"]
    lock, held = place / "lock", (place / "lock").read_text()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(call, place, "b", state="free", wait_s=300)
        for name in ("first", "second"):
            os.mkfifo(place / name)
            (place / name).rename(lock)
            assert until(lambda: looks(lock, held))
        assert not waiting.done()
        lock.unlink()
        lock.write_text(held)
        call(place, "a", state="absent")
        assert waiting.result(300) == {"changed": False, "held": False, "holder": ""}
    assert leases(place) == []  # to wait is not to take


def test_check_mode_says_and_takes_nothing(place: Path) -> None:
    assert call(place, "a", _ansible_check_mode=True)["changed"]
    assert not place.exists()


def test_everybody_can_read_the_lock_and_nobody_else_can_keep_it(place: Path) -> None:
    """The module's umask is root's, which may be narrow."""
    before = os.umask(0o077)
    try:
        call(place, "a")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in place.iterdir()}
    assert place.stat().st_mode & 0o777 == 0o755
    assert (modes["lock"], modes["mutex"]) == (0o644, 0o600)


TAKE = {"include_role": {"name": "benchmark_run", "tasks_from": "take.yml"}}


def test_role_says_that_a_node_is_not_provisioned(tmp_path: Path) -> None:
    """It has no user of the benchmarks, and nothing is left on it."""
    variables = {
        "benchmark_run_campaign": str(tmp_path / "campaign"),
        "benchmark_run_lock": {"owner": "alice", "host": "head", "token": "a", "wait_s": 0},
        "benchmark_run_user": "nobody-has-this-name",
        "benchmark_run_lock_directory": str(tmp_path / "lock"),
    }
    done = play(tmp_path, TAKE, variables=variables)
    printed = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "node is not provisioned: it has no user nobody-has-this-name. Provision it" in printed
    assert "ansible-playbook provision.yml, or dlperf provision" in printed
    assert "getpwnam" not in printed
    assert not (tmp_path / "lock").exists()


def test_role_refuses_a_campaign_whose_nodes_are_partly_held_and_gives_the_others_back(
    tmp_path: Path,
) -> None:
    lock = {"owner": "alice", "host": "head", "wait_s": 0, "deadline": 0}
    own = {"benchmark_run_campaign": "another", "benchmark_run_lock": lock | {"token": "a"}}
    variables = {
        "benchmark_run_campaign": str(tmp_path / "campaign"),
        "benchmark_run_user": ME,
        "benchmark_run_lock_directory": str(tmp_path / "{{ inventory_hostname }}"),
    }
    first = TAKE | {"vars": own, "when": "inventory_hostname == 'node2'"}
    then = TAKE | {"vars": {"benchmark_run_lock": lock | {"token": "b"}}}
    done = play(tmp_path, first, then, nodes="node1,node2,node3", variables=variables)
    assert done.returncode == 2
    assert "node2 is held by campaign" in done.stdout
    nodes = ("node1", "node2", "node3")
    assert [(tmp_path / node / "lock").exists() for node in nodes] == [False, True, False]
