"""Nodes are rebooted by consent only, and one after the other."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from lab_under_test import Lab, Shared, sharing
from reboot_standin import INSTALLED, LOADED, LOG, PREPARED, SHUTDOWN

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]

NODES = ("node1", "node2", "node3")


@contextmanager
def prepared(scratch: Path, mirror: Path) -> Iterator[Lab]:
    with Lab(scratch / "lab").running(nodes=len(NODES), mirror=mirror) as made:
        for node in NODES:
            made.said(node, SHUTDOWN + PREPARED)
            made.said(node, f"cat > /srv/boot/at <<'END'\n{LOADED}\nEND")
        yield made


shared = sharing(prepared)


def configure(lab: Lab, *options: str, **changed: object) -> tuple[int, str]:
    given = json.dumps({**INSTALLED, **changed})
    done = lab.command("ansible-playbook", "tests/lab/plays/role.yml", "-e", given, *options)
    return done.returncode, " ".join(done.stdout.split())


def test_without_consent_it_is_a_failure_that_says_so(shared: Shared[Lab]) -> None:
    lab = shared.get()
    status, output = configure(lab)
    assert status == 2, output
    for node in NODES:
        assert f"{node}: reboot needed: driver 580.105.08 is installed" in output
        assert lab.ssh(node, f"cat {LOG}").stdout == ""
    assert "The module nouveau holds the GPUs. Allow it with -e dlperf_reboot=true" in output


def test_check_mode_reboots_nothing(shared: Shared[Lab]) -> None:
    lab = shared.get()
    status, output = configure(lab, "--check", dlperf_reboot=True)
    assert status == 0, output
    for node in NODES:
        assert lab.ssh(node, f"cat {LOG}").stdout == ""


def test_with_consent_the_next_goes_when_the_one_before_is_back(shared: Shared[Lab]) -> None:
    lab = shared.last()
    status, output = configure(lab, dlperf_reboot=True)
    assert status == 0, output
    times = sorted([float(t) for t in lab.said(node, f"cat {LOG}").split()] for node in NODES)
    assert [len(pair) for pair in times] == [2, 2, 2]
    for (_, back), (down, _) in pairwise(times):
        assert down > back
    for node in NODES:  # of a driver that runs, the reboot is forgotten
        assert lab.ssh(node, "ls /var/lib/dlperf/nvidia-driver.rebooted").returncode != 0
