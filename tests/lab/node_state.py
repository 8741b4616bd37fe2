"""What a node is, as lines to compare: packages, and the system's files with modes and content."""

from __future__ import annotations

import re

from lab_under_test import Lab

# Backups of passwd and the linker's cache differ whenever anything was done.
COMMAND = r"""
dpkg-query -W -f '${binary:Package} ${Version} ${Status}\n'; apt-mark showauto | sed 's/^/auto /'
find /etc /opt /var/lib/dlperf /usr/local /home \( -type f -o -type d \) 2>/dev/null |
  grep -vE '^/etc/(passwd|group|shadow|gshadow|subuid|subgid)-$|^/etc/ld.so.cache$' | sort |
  while read -r path; do
    echo "$(stat -c '%A %U:%G %n' "$path") $(test -d "$path" || sha256sum < "$path")"
  done
"""


def node_state(lab: Lab, node: str) -> list[str]:
    return [line.rstrip() for line in lab.said(node, COMMAND).splitlines()]


def differences(lab: Lab, node: str, before: list[str]) -> list[str]:
    """What is there now and was not, and what is gone.

    But for what Debian itself does: its fixes of packages that were there before stay (the node is
    warned of them), and so do the system groups that packages make.
    """

    def own(state: list[str]) -> set[str]:
        lines = {re.sub(r" \S+ (install ok installed)$", r" \1", line) for line in state}
        return {line for line in lines if not re.search(r" /etc/g?(group|shadow) ", line)}

    return sorted(own(node_state(lab, node)) ^ own(before))
