"""A become password, planted: encrypted in the inventory's variables or typed on a terminal, and
nowhere else afterwards.

The registry's token is looked for in test_gpu_stack.py.
"""

import json
import os
import pty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fault_campaigns import Campaign, faulty_workload
from lab_under_test import PROJECT, Lab
from watcher import repeating

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.campaigns]

SECRET = "planted-5e5a8d1c0f"  # noqa: S105
ADMIN = f"""
set -e
useradd --create-home --shell /bin/sh admin
echo 'admin:{SECRET}' | chpasswd
echo 'admin ALL=(ALL) ALL' > /etc/sudoers.d/admin
cp -r /root/.ssh ~admin/ && chown -R admin: ~admin
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    """A node whose administrator is asked for a password; sudo is there since node_base."""
    lab = Lab(tmp_path_factory.mktemp("secrets") / "lab")
    with lab.running(1, mirror=mirror, frameworks="nccl") as made:
        made.play("provision.yml")
        made.said("node1", ADMIN)
        yield made


@contextmanager
def command_lines() -> Iterator[set[str]]:
    """All that are seen on this machine meanwhile; the lab's processes are among them."""
    seen: set[str] = set()

    def look() -> None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                seen.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))

    with repeating(look, 0.01):
        yield seen


def typed(lab: Lab, *argv: str) -> tuple[int, str]:
    """The status and the output of a command on a terminal, where the password is typed for each
    question."""
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(PROJECT)
        os.execvpe(argv[0], argv, lab.environment)  # noqa: S606
    shown = b""
    with suppress(OSError):  # EIO: the command has closed it
        while part := os.read(terminal, 4096):
            shown += part
            if part.endswith(b"password: "):
                os.write(terminal, f"{SECRET}\n".encode())
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def check_nothing_has_it(lab: Lab, output: str, seen: set[str], *folders: Path) -> None:
    assert any("ansible-playbook" in line for line in seen)
    assert [line for line in seen if SECRET in line] == []
    assert SECRET not in output
    places = (*folders, lab.directory / "..", PROJECT / ".cache/ansible")
    assert files_with(SECRET, *(place for place in places if place.is_dir())) == []
    where = "/etc /root /home /tmp /opt /var/log /var/tmp /var/lib/dlperf"
    assert lab.ssh("node1", f"grep -rlF -D skip {SECRET} {where}").stdout == ""


def files_with(secret: str, *folders: Path) -> list[Path]:
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            with suppress(OSError):
                if path.is_file() and secret.encode() in path.read_bytes():
                    found.append(path)
    return found


def test_a_become_password_is_in_no_argv_log_or_file(lab: Lab, tmp_path: Path) -> None:
    vault, password = tmp_path / "vault.yml", tmp_path / "password"
    password.write_text("open sesame\n")
    vault.write_text(json.dumps({"ansible_user": "admin", "ansible_become_password": SECRET}))
    sealed = ["ansible-vault", "encrypt", "--vault-password-file", str(password), str(vault)]
    assert lab.command(*sealed).returncode == 0
    given = ("-e", f"@{vault}", "--vault-password-file", str(password))
    # Something to do: what is written as root, and a proof as the ordinary user.
    lab.said("node1", "rm -f /etc/security/limits.d/*; rm -rf /opt/dlperf/stamps")

    def play(*options: str) -> str:
        book = ("provision.yml", "--tags", "node_base,openmpi", "--diff", "-vvv")
        return lab.command("ansible-playbook", *book, *options).stdout

    assert "Missing sudo password" in play("-e", "ansible_user=admin")
    with command_lines() as seen:
        output = play(*given)
        checked = lab.command("ansible-playbook", "playbooks/preflight.yml", "-vvv", *given).stdout
    assert "failed=0" in output and "unreachable=0" in output, output[-3000:]
    assert "node1  " in checked
    check_nothing_has_it(lab, output + checked, seen, tmp_path)


def test_a_password_that_is_typed_for_doctor_and_run_is_asked_for_once(
    lab: Lab, tmp_path: Path
) -> None:
    """ansible/ansible#13200: "Missing sudo password" for a user whom sudo asks."""
    campaign = Campaign(lab, faulty_workload(tmp_path), tmp_path / "campaign", steps=8)
    admin = ("-e", "ansible_user=admin")
    doctor = (*campaign.argv("doctor", "--all"), *admin)
    refused = lab.command(*doctor)
    assert refused.returncode == 1
    assert "wants a password: add --ask-become-pass" in " ".join(refused.stdout.split())
    with command_lines() as seen:
        _, examined = typed(lab, *doctor, "-K")
        status, output = typed(lab, *campaign.run("-K", *admin, nodes="1"))
    assert "sudo" not in examined and "package sources" in examined, examined
    assert status == 0, output
    campaign.check_complete()
    assert examined.count("BECOME password: ") == output.count("BECOME password: ") == 1
    check_nothing_has_it(lab, examined + output, seen, tmp_path)
