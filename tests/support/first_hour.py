"""A stranger's first hour: the commands of a page, typed one after another in the root filesystem
of a fresh Debian 12, and what the page shows of their output."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab_under_test import CONTROL, PROJECT

sys.path.insert(0, str(CONTROL.parent))
from lab_machine import apt_proxy, debian_mirror

MINUTES = 60  # that a command may take; to provision took more than 20 beside other work
# The pseudo file systems of a root, then its network if it is a lab's, then the shell.
MOUNTS = (
    'for each in dev dev/pts; do mount --bind "/$each" "$1/$each"; done; '
    'mount -t proc proc "$1/proc"; exec chroot "$@"'
)
# The commands of a page are typed into one shell: folder and variables outlive each of them.
SHELL = """\
cd "$(cat /root/.folder)"; . /root/.variables
{command}
status=$?; pwd > /root/.folder; export -p > /root/.variables; exit $status
"""


@dataclass(frozen=True)
class Block:
    """A block of code of a page, below the heading that stands before it."""

    heading: str
    text: str


def blocks(page: str) -> list[Block]:
    """The blocks of a page, fenced or indented, in order."""
    heading, found, lines = "", [], (PROJECT / page).read_text(encoding="utf-8").splitlines()
    block: list[str] | None = None
    is_fenced = False
    for line in [*lines, "end"]:
        fence = re.match(r" *```", line)
        if block is not None and (fence if is_fenced else line and not line.startswith("    ")):
            found.append(Block(heading, re.sub(r"(?m)^    ", "", "\n".join(block)).rstrip()))
            block = None
            if is_fenced:
                continue
        if block is not None:
            block.append(line)
        elif fence or line.startswith("    "):
            block, is_fenced = ([] if fence else [line]), bool(fence)
        elif line.startswith("#"):
            heading = line.lstrip("# ").strip()
    return found


def below(page: str, heading: str) -> list[Block]:
    """The blocks below a heading."""
    listed = [block for block in blocks(page) if block.heading == heading]
    assert listed, f"{page} has no block below {heading!r}"
    return listed


def commands(block: Block) -> list[str]:
    """What is typed: a command a line, or more lines if they end in a backslash."""
    return block.text.replace("\\\n", "").splitlines()


@dataclass
class Person:
    """Root on a fresh Debian. `network`: the process whose network it has, else the machine's.
    `names`: the words of the pages that a reader replaces."""

    root: Path
    names: Mapping[str, str]
    network: int | None = None

    def types(self, command: str, answer: str = "", status: int = 0) -> str:
        """What a command prints. `answer` is typed on the terminal."""
        for word, own in self.names.items():
            command = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", own, command)
        (self.root / "root/.command").write_text(SHELL.format(command=command))
        enter = ["nsenter", f"--net=/proc/{self.network}/ns/net"] if self.network else []
        apart = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork"]
        argv = [*enter, *apart, "--kill-child", "sh", "-ec", MOUNTS, "sh", str(self.root)]
        terminal, keyboard = os.openpty()
        os.write(terminal, answer.encode())
        began = time.monotonic()
        try:
            done = subprocess.run(
                [*argv, "/bin/bash", "/root/.command"], check=False, timeout=60 * MINUTES,
                env={"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
                stdin=keyboard, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        finally:
            os.close(terminal)
            os.close(keyboard)
        print(f"{time.monotonic() - began:6.1f} s  {command}")
        output = done.stdout.decode(errors="replace")
        assert done.returncode == status, f"{command}: {done.returncode}\n{output}"
        return output

    def types_all(self, block: Block, **options: str) -> str:
        return "\n".join(self.types(command, **options) for command in commands(block))


def fresh_debian(root: Path, names: Mapping[str, str]) -> Person:
    """A person at a Debian 12 as the lab makes it, with its archive, a repository to clone, and a
    folder of wheels in place of the package index."""
    base = PROJECT / ".cache/lab/bookworm.tar"
    argv = [sys.executable, "-I", CONTROL, "base", "--suite", "bookworm", "--base", base]
    subprocess.run(argv, check=True, capture_output=True)
    root.mkdir(parents=True)
    argv = ["tar", "-C", root, "--numeric-owner", "--exclude=./dev/*", "-xpf", base]
    subprocess.run(argv, check=True)
    (root / "dev/pts").mkdir(parents=True)
    sources = root / "etc/apt/sources.list"
    sources.write_text(f"deb {debian_mirror()} bookworm main\n")
    proxy = "".join(f'{key} "{value}";\n' for key, value in (p.split("=", 1) for p in apt_proxy()))
    (root / "etc/apt/apt.conf.d/99proxy").write_text(proxy)
    (root / "etc/resolv.conf").write_bytes(Path("/etc/resolv.conf").read_bytes())
    clone = ["git", "clone", "--quiet", "--bare", "--depth", "1", f"file://{PROJECT}"]
    subprocess.run([*clone, root / "srv/dlperf_runner.git"], check=True)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", root / "srv/wheels"]
    pip += ["--python-version", "3.11", "--only-binary", ":all:", "hatchling"]
    subprocess.run([*pip, "-r", PROJECT / "requirements/controller.in"], check=True, timeout=600)
    (root / "etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /srv/wheels\n")
    (root / "root/.folder").write_text("/root\n")
    (root / "root/.variables").write_text("export LC_ALL=C.UTF-8\n")
    return Person(root, {"URL": "/srv/dlperf_runner.git", **names})
