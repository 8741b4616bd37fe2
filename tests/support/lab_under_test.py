"""A lab with a directory of its own, driven as a user drives it, and what is left of it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import pytest

PROJECT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
CONTROL = PROJECT / "roles/lab/files/lab_control.py"
# The labs of a session install from one mirror: one that holds fewer would take from it what others
# need. Those of `make test` need few.
FRAMEWORKS, FEW_FRAMEWORKS = "mxnet,tensorflow,paddle,nccl", "mxnet,nccl"
END = 5000  # so many characters of an output say why it failed
NAMESPACES = ("mnt", "net", "pid", "uts", "ipc")


@dataclass(frozen=True)
class Lab:
    directory: Path
    bin: Path = BIN  # where the controller's ansible-playbook is
    project: Path = PROJECT  # whose commands run

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.bin}:{os.environ['PATH']}"
        own = {} if self.project == PROJECT else {"ANSIBLE_CONFIG": f"{self.project}/ansible.cfg"}
        return os.environ | {"DLPERF_LAB_DIR": str(self.directory), "PATH": path} | own

    @property
    def state(self) -> dict[str, Any]:
        return json.loads((self.directory / "lab.json").read_text())

    def command(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the project, with this lab as the default inventory's."""
        return subprocess.run(
            argv, cwd=self.project, env=self.environment, text=True, check=False, timeout=3000,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def play(self, *arguments: str) -> str:
        """Run a playbook that must succeed; what it printed."""
        with ExitStack() as stack:
            # Several labs that build Horovod at once take longer than one after the other.
            if arguments[0] == "provision.yml" and not horovod_is_built():
                stack.enter_context(alone("wheels"))
                if horovod_is_built():
                    stack.close()
            done = self.command("ansible-playbook", *arguments)
        assert done.returncode == 0, done.stdout[-END:]
        return done.stdout

    def up(self, **variables: object) -> str:
        """Bring it up with the playbook, but leave the mirror as it is."""
        pairs = ["-e", "lab_bundle=false"]
        pairs += [part for key, value in variables.items() for part in ("-e", f"{key}={value}")]
        return self.play("playbooks/lab.yml", *pairs)

    def down(self) -> str:
        return self.play("playbooks/lab.yml", "-e", "lab_state=absent")

    @contextmanager
    def is_up(self, **variables: object) -> Iterator[Lab]:
        self.up(**variables)
        try:
            yield self
        finally:
            self.down()

    def ssh_argv(self, node: str, command: str) -> list[str]:
        return ["ssh", "-F", str(self.directory / "ssh_config"), node, command]

    def ssh(self, node: str, command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.ssh_argv(node, command), text=True, check=False, timeout=60,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip

    def said(self, node: str, command: str) -> str:
        done = self.ssh(node, command)
        assert done.returncode == 0, (node, command, done.stdout, done.stderr)
        return done.stdout.strip()

    def control(self, action: str, *options: object) -> bool:
        """What the role runs, without the seconds that Ansible takes; true where it changed."""
        argv = [sys.executable, "-I", CONTROL, action, "--directory", self.directory, *options]
        done = self.command(*map(str, argv))
        assert done.returncode == 0, done.stdout
        return json.loads(done.stdout)["changed"]

    @contextmanager
    def running(
        self, nodes: int = 4, suite: str = "bookworm", mirror: Path | None = None, **more: object
    ) -> Iterator[Lab]:
        """Up without the seconds of the playbook. `more`: further options, such as `shared_dir`."""
        base = PROJECT / f".cache/lab/{suite}.tar"
        made = [sys.executable, "-I", str(CONTROL), "base", "--suite", suite, "--base", str(base)]
        done = self.command(*made)
        assert done.returncode == 0, done.stdout
        self.control(
            "up", "--nodes", nodes, "--suite", suite, "--base", base,
            "--mirror-dir", mirror or self.directory.with_name("mirror"),
            *(f"--{key.replace('_', '-')}={value}" for key, value in more.items()),
        )  # fmt: skip
        try:
            yield self
        finally:
            self.control("down")


T = TypeVar("T")


@dataclass
class Shared(Generic[T]):
    """What the tests of a file share, made when the first of them asks for it. A test that uses it
    up takes it as the last one, and the next test gets another: none depends on the order."""

    make: Callable[[], AbstractContextManager[T]]
    _made: list[T] = field(default_factory=list)
    _opened: ExitStack = field(default_factory=ExitStack)
    _failure: BaseException | None = None

    def get(self) -> T:
        if self._failure:
            raise self._failure  # it would fail again, after minutes
        if not self._made:
            self.close()
            try:
                self._made.append(self._opened.enter_context(self.make()))
            except BaseException as error:
                self._failure = error
                raise
        return self._made[0]

    def last(self) -> T:
        made = self.get()
        self._made.clear()
        return made

    def close(self) -> None:
        self._opened.close()


def sharing(make: Callable[[Path, Path], AbstractContextManager[T]]) -> Any:
    """The fixture of what the tests of a file share, made of a new folder and the mirror."""

    @pytest.fixture(scope="module")
    def shared(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Shared[T]]:
        with closing(Shared(lambda: make(tmp_path_factory.mktemp("shared"), mirror))) as made:
            yield made

    return shared


@contextmanager
def alone(what: str) -> Iterator[None]:
    """Let one worker at a time do this: to make the mirror is refused while another makes it."""
    path = PROJECT / f".cache/tests-{what}.lock"
    path.parent.mkdir(exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def mirror_of(frameworks: str, suite: str = "bookworm") -> Path:
    """A mirror folder of these frameworks alone: labs of others have one of their own meanwhile."""
    folder = PROJECT / f".cache/mirror/{suite}-{frameworks}"
    argv = [sys.executable, "-m", "dlperf_runner", "bundle", "--stack", "cpu", "--suite", suite]
    argv += ["--framework", frameworks, "--output-dir", str(folder)]
    with alone("mirror"):  # folders of a suite share apt's lists, which one process locks
        done = subprocess.run(argv, cwd=PROJECT, capture_output=True, text=True, check=False)
    # 1: the archive lacks packages that only some tests install, such as Slurm's.
    assert done.returncode in (0, 1), done.stderr
    return folder


def horovod_is_built() -> bool:
    """Whether Horovod's wheel for MXNet, which most labs install, is in the cache."""
    return any((PROJECT / ".cache/wheels").glob("horovod-*_mxnet-*/*.whl"))


def namespaces_of(pid: int) -> set[str]:
    """The process's namespaces, as net:[4026532929]."""
    with suppress(OSError):
        return {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in NAMESPACES}
    return set()


def children_of(pid: int) -> set[int]:
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.add(int(stat.parent.name))
    return found


def namespaces_of_lab(lab: Lab) -> set[str]:
    """The namespaces of the lab and of its nodes, none of them the machine's own."""
    holder = lab.state["pid"]
    found = namespaces_of(holder)
    for child in children_of(holder):
        found |= namespaces_of(child)
    return found - namespaces_of(os.getpid())


def processes() -> Iterator[int]:
    for entry in Path("/proc").glob("[0-9]*"):
        if int(entry.name) != os.getpid():
            yield int(entry.name)


def parent_of(pid: int) -> int:
    """The number of the process's parent; 0 if the process has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _is_in_a_lab(pid: int) -> bool:
    """Whether a lab's first process is among the ancestors. That is another lab, which has the
    number of an ended namespace, if the lab in question is down."""
    while pid > 1:
        if b"lab_holder.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return True
        pid = parent_of(pid)
    return False


def traces(directory: Path, namespaces: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    """What there still is of a lab: processes that name its directory or live in one of its
    namespaces, and mounts below its directory as any process sees them."""
    found = set()
    for pid in processes():
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(directory) in command:
                found.add(f"process {pid}: {command}")
            if namespaces & namespaces_of(pid) and not _is_in_a_lab(pid):
                found.add(f"process {pid} in a namespace of the lab: {command}")
            if str(directory) in Path(f"/proc/{pid}/mountinfo").read_text():
                found.add(f"process {pid} sees a mount of the lab")
    return sorted(found)
