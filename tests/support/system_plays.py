"""Plays on each stack and system, one node for each pair; the fixtures are in lab/conftest.py."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

States = dict[str, list[str]]  # by node
# Only nodes with NVSwitches of NVLink 5 get these.
OF_NVLINK5 = {"libnvsdm", "nvlsm"}
SYSTEMCTL = r"""
mkdir -p /etc/modprobe.d /etc/docker /run/systemd/system
cat > /usr/bin/systemctl <<'EOF'
#!/bin/sh
echo "$*" >> /var/log/standin-systemctl.log
[ "$1" != show ] || printf 'LoadState=loaded\nActiveState=active\n'
EOF
chmod 755 /usr/bin/systemctl
"""


@dataclass(frozen=True)
class Pair:
    stack: str
    system: str
    node: str

    def __str__(self) -> str:
        return f"{self.stack}-{self.system}"


def pairs(named: Iterable[tuple[str, str]]) -> list[Pair]:
    """Stacks and systems, each with the node that it gets."""
    return [Pair(*names, f"node{number}") for number, names in enumerate(named, 1)]


@dataclass(frozen=True)
class Played:
    """What a play has printed, and what the nodes are after it."""

    output: str
    states: States

    def changed(self, node: str) -> int:
        """How many tasks have changed something on a node, where none has failed."""
        recap = self.output.rpartition("PLAY RECAP")[2]
        found = re.search(rf"\b{node} : ok=\d+ changed=(\d+) unreachable=0 failed=0 ", recap)
        assert found, self.output[-6000:]
        return int(found[1])
