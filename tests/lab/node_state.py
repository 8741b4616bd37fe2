"""What a node is, as lines to compare: packages, and the system's files with modes and content."""

from __future__ import annotations

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
