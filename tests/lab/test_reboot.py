"""Nodes are rebooted by consent only, and one after the other.

A node of the lab cannot be booted: its `shutdown` is a stand-in that gives it another boot id a
while later, and writes down both times. What asks for it and waits for it is Ansible's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise

import pytest
from lab_under_test import Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.nodes]

NODES = ("node1", "node2", "node3")
LOG = "/var/log/standin-shutdown.log"
SECONDS = 3
SHUTDOWN = rf"""
mkdir -p /srv/boot && echo before > /srv/boot/id
mount --bind /srv/boot/id /proc/sys/kernel/random/boot_id
cat > /sbin/shutdown <<'END'
#!/bin/sh
# Ansible calls it on a terminal, whose hang-up would end what setsid has not yet taken from it.
trap '' HUP
date +%s.%N >> {LOG}
setsid sh -c 'sleep {SECONDS}; date +%s.%N >> {LOG}; echo after > /srv/boot/id' > /dev/null 2>&1 &
END
chmod 755 /sbin/shutdown
"""
# What the role finds out on a machine that is no container, where another driver runs.
PENDING = {
    "role": "nvidia_driver",
    "part": "configure",
    "nvidia_driver_version": "440.33.01",
    "__nvidia_driver_is_container": False,
    "__nvidia_driver_is_pending": True,
    "__nvidia_driver_node": {"running": None, "has_systemd": False},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("reboot") / "lab").running(nodes=len(NODES)) as made:
        for node in NODES:
            made.said(node, SHUTDOWN)
        yield made


def configure(lab: Lab, *options: str, **changed: object) -> str:
    given = json.dumps({**PENDING, **changed})
    return " ".join(lab.play("tests/lab/plays/role.yml", "-e", given, *options).split())


def test_without_consent_it_is_only_said(lab: Lab) -> None:
    output = configure(lab)
    assert output.count("A reboot is pending. Allow it with -e dlperf_reboot=true") == 3
    for node in NODES:
        assert lab.ssh(node, f"cat {LOG}").stdout == ""


def test_check_mode_reboots_nothing(lab: Lab) -> None:
    configure(lab, "--check", dlperf_reboot=True)
    for node in NODES:
        assert lab.ssh(node, f"cat {LOG}").stdout == ""


def test_with_consent_the_next_goes_when_the_one_before_is_back(lab: Lab) -> None:
    configure(lab, dlperf_reboot=True)
    times = sorted([float(t) for t in lab.said(node, f"cat {LOG}").split()] for node in NODES)
    assert [len(pair) for pair in times] == [2, 2, 2]
    for (_, back), (down, _) in pairwise(times):
        assert down > back
