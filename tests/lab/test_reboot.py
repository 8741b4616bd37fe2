"""Nodes are rebooted by consent only, and one after the other.

A node of the lab cannot be booted: its `shutdown` is a stand-in that gives it another boot id a
while later, and writes down both times. What asks for it and waits for it is Ansible's own.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest
from lab_under_test import Lab, Shared, sharing

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
setsid sh -c 'sleep {SECONDS}; date +%s.%N >> {LOG}; sh /srv/boot/at; \
  echo after > /srv/boot/id' > /dev/null 2>&1 &
END
chmod 755 /sbin/shutdown
"""
# No container, and nouveau holds the GPUs.
TREE = "/srv/node"
PREPARED = f"""
mkdir -p {TREE}/proc/driver/nvidia && ln -s /var /usr {TREE}
echo 'nouveau 1 0 - Live 0x0' > {TREE}/proc/modules
"""
NVRM = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed Oct 29 22:15:28 UTC 2025"
LOADED = f": > {TREE}/proc/modules; echo '{NVRM}' > {TREE}/proc/driver/nvidia/version"
INSTALLED = {
    "role": "nvidia_driver",
    "part": ["preflight", "configure"],
    "nvidia_driver_version": "580.105.08",
    "nvidia_driver_system": "ubuntu22.04",
    "nvidia_driver_root": TREE,
}


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
