"""The remote shell of containers, with a stand-in for ssh that has a real shell execute what it is
given."""

import shlex
import subprocess
from pathlib import Path

import pytest

REMOTE_SHELL = Path(__file__).parents[2] / "roles/container/files/remote_shell.sh"


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\necho "$1 $2 $3 $4 $5"\nshift 5\nexec /bin/sh -c "$*"\n')
    ssh.chmod(0o755)
    return tmp_path


def remote_shell(path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    # The container is a program here that shows its arguments, one a line.
    container = shlex.join(["/usr/bin/printf", "<%s>\n", "it's", "two words"])
    return subprocess.run(
        ["/bin/sh", REMOTE_SHELL, *argv], check=False, capture_output=True, text=True,
        env={
            "PATH": f"{path}:/usr/bin:/bin",
            "DLPERF_REMOTE_CONTAINER": container,
            "DLPERF_REMOTE_USER": "bench",
        },
    )  # fmt: skip


def test_the_remote_shell_brings_a_command_through_two_shells(stand_in: Path) -> None:
    """mpirun's own command line: it quotes for one shell, pieces and all."""
    command = ["PATH=/opt/mpi/bin:$PATH ; export PATH ;", "orted", "-mca", "a", '"it\'s; $HOME"']
    done = remote_shell(stand_in, "node2", *command)
    assert done.stdout.splitlines() == [
        "-o BatchMode=yes -l bench node2",
        "<it's>",
        "<two words>",
        "</bin/sh>",
        "<-c>",
        '<PATH=/opt/mpi/bin:$PATH ; export PATH ; orted -mca a "it\'s; $HOME">',
    ]


def test_an_image_without_ssh_is_said(tmp_path: Path) -> None:
    (tmp_path / "sed").symlink_to("/bin/sed")
    done = subprocess.run(
        ["/bin/sh", REMOTE_SHELL, "node2", "orted"], check=False, capture_output=True, text=True,
        env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert (done.returncode, "the image has no ssh" in done.stderr) == (127, True)
