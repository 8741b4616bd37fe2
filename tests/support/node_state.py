"""What a node is, as lines to compare: packages, and the system's files with modes and content."""

import re

from lab_under_test import Lab

# One process for all files: a shell would start three for each.
FILES = r"""
import grp, hashlib, os, pathlib, pwd, stat

# Backups of passwd and the linker's cache differ whenever anything was done.
but = {"/etc/" + name + "-" for name in "passwd group shadow gshadow subuid subgid".split()}
but.add("/etc/ld.so.cache")
users = {user.pw_uid: user.pw_name for user in pwd.getpwall()}
groups = {group.gr_gid: group.gr_name for group in grp.getgrall()}
found = []
for root in "/etc /opt /var/lib/dlperf /usr/local /home".split():
    for folder, folders, files in os.walk(root):
        found += [folder, *(os.path.join(folder, name) for name in folders + files)]
for path in sorted(set(found) - but):
    is_ = os.lstat(path)
    if stat.S_ISLNK(is_.st_mode):
        print("link", path, "->", os.readlink(path))
    elif stat.S_ISREG(is_.st_mode) or stat.S_ISDIR(is_.st_mode):
        owner = "{}:{}".format(users.get(is_.st_uid), groups.get(is_.st_gid))
        is_file = stat.S_ISREG(is_.st_mode)
        content = hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() if is_file else ""
        print(stat.filemode(is_.st_mode), owner, path, content)
"""
COMMAND = rf"""
dpkg-query -W -f '${{binary:Package}} ${{Version}} ${{Status}}\n'
apt-mark showauto | sed 's/^/auto /'
python3 - <<'EOF'
{FILES}
EOF
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
