"""Stand-ins for programs, recorded trees, and the interpreters that nodes may have."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from captured import captured

PROJECT = Path(__file__).parents[2]
LIBRARY, MODULE_UTILS = PROJECT / "library", PROJECT / "module_utils"
FIXTURES = PROJECT / "tests/fixtures"

# ansible-core 2.19 brings its part of a module for Python 3.8 and newer only, 2.16 for 2.7 and
# 3.6. This stands in for it, so that an old interpreter runs the module itself.
BASIC = """
import json, sys
class AnsibleModule(object):
    def __init__(self, argument_spec, supports_check_mode=False):
        given = json.load(sys.stdin)["ANSIBLE_MODULE_ARGS"]
        self.check_mode = given.pop("_ansible_check_mode", False)
        unknown = set(given) - set(argument_spec)
        assert not unknown, unknown
        self.params = dict((k, given.get(k, v.get("default"))) for k, v in argument_spec.items())
    def exit_json(self, **result):
        print(json.dumps(result))
        sys.exit(0)
"""


@cache
def interpreter(version: str) -> str | None:
    """A Python of that version, on PATH or of pyenv; None where this machine has none."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = shutil.which("pyenv")
    if pyenv:
        root = captured(pyenv, "root")
        versions = Path(root.stdout.strip()) / "versions"
        candidates += [str(path) for path in versions.glob(f"{version}.*/bin/python")]
    for candidate in filter(None, candidates):
        told = captured(candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])")
        if told.stdout.strip() == version:
            return candidate
    return None


def portable(version: str, archive: Path) -> bool:
    """Pack the folder of a Python of this machine, so that it runs in any folder of a node with
    the same C library; False where this machine has none."""
    python = interpreter(version)
    if python is None:
        return False
    shown = [python, "-c", "import sys; print(sys.base_prefix)"]
    prefix = subprocess.check_output(shown, text=True).strip()
    # The loader looks for libpython where it was built.
    built, moved = f"{prefix}/lib".encode(), b"$ORIGIN/../lib"

    def relocated(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        entry.uid = entry.gid = 0
        return None if re.search(r"/(test|tests|share)(/|$)|\.a$", entry.name) else entry

    with tempfile.TemporaryDirectory() as scratch:
        tree = Path(scratch, "python")
        shutil.copytree(prefix, tree, symlinks=True)
        for path in (tree / "bin").glob("python*"):
            if path.is_file() and not path.is_symlink():
                content = path.read_bytes()
                path.write_bytes(content.replace(built + b"\0", moved.ljust(len(built) + 1, b"\0")))
        with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
            packed.add(tree, "python", filter=relocated)
    return True


def needed(version: str) -> str:
    """A Python of that version; "": this one. The test is skipped where there is none."""
    python = interpreter(version) if version else sys.executable
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    return python


def ansible_standin(folder: Path) -> Path:
    """A folder with a package `ansible` that has what a module imports, and nothing else."""
    utils = folder / "ansible/module_utils"
    utils.mkdir(parents=True)
    (folder / "ansible/__init__.py").touch()
    (utils / "__init__.py").touch()
    (utils / "basic.py").write_text(BASIC)
    shutil.copytree(MODULE_UTILS, utils, dirs_exist_ok=True)
    return folder


def computed(python: str, code: str, given: object, path: Path, *arguments: object) -> Any:
    """What code for nodes prints as JSON; `path` is that of an `ansible_standin`."""
    environment = {"PYTHONPATH": str(path)}
    done = captured(python, "-c", code, *arguments, input=json.dumps(given), env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call(
    module: str,
    folder: Path,
    path: Sequence[Path] = (),
    python: str | None = None,
    **arguments: Any,
) -> dict[str, Any]:
    """What a module tells that finds programs in the folders of `path` only."""
    found = execute(module, folder, python, os.pathsep.join(map(str, path)), **arguments)
    assert found.pop("changed") is False
    return found


def execute(
    module: str, folder: Path, python: str | None = None, path: str = "", /, **arguments: Any
) -> dict[str, Any]:
    """One execution of a module by an interpreter, with a stand-in for Ansible below `folder`.
    test_old_interpreters.py says another one."""
    ansible = folder / "ansible-standin"
    if not ansible.exists():
        ansible_standin(ansible)
    environment = {"PATH": path, "PYTHONPATH": str(ansible), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = (python or os.environ.get("MODULES_PYTHON", sys.executable), LIBRARY / f"{module}.py")
    given = json.dumps({"ANSIBLE_MODULE_ARGS": arguments})
    finished = captured(*argv, input=given, env=environment, timeout=120)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def gpg(home: Path, *arguments: str) -> bytes:
    """Output of the real gpg, whose keys are in this directory and have no passphrase."""
    home.mkdir(mode=0o700, exist_ok=True)
    options = ["--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    command = ["gpg", "--homedir", str(home), *options, *arguments]
    return subprocess.run(command, check=True, capture_output=True).stdout


def program(folder: Path, name: str, script: str) -> Path:
    """A stand-in for a program, alone in its folder; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)
    return folder


def nvidia_smi(
    folder: Path, xml: str, topology: str = "", index: str = "", status: int = 0, table: str = ""
) -> Path:
    """A stand-in for nvidia-smi that replays output; 16 is the status of an unknown option."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("xml", xml), ("topology", topology), ("index", index), ("table", table)):
        (folder / name).write_text(text)
    script = (
        # PATH holds stand-ins only, so there is no cat.
        'say() { while IFS= read -r line || [ -n "$line" ]; do printf "%s\\n" "$line"; done'
        f' < "{folder}/$1"; }}\n'
        'case "$*" in\n'
        f'"-q -x") say xml; exit {status};;\n'
        '"topo -m") say topology;;\n'
        '"--query-gpu=index,uuid --format=csv,noheader") say index;;\n'
        '"") say table; exit 14;;\n'
        "*) exit 16;;\nesac"
    )
    return program(folder, "nvidia-smi", script)


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """A recorded tree of /sys and /proc. A text gets the end of its last line."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    return root


def amd(count: int) -> dict[str, str]:
    """MI300X as the kernel's driver amdgpu describes them; identities are made up."""
    found = {"proc/modules": "amdgpu 14000000 9 - Live 0x0", "opt/rocm/.info/version": "7.2.4-93"}
    for number in range(count):
        device = f"sys/bus/pci/devices/0000:{0x05 + number:02x}:00.0"
        found |= {
            f"{device}/vendor": "0x1002",
            f"{device}/class": "0x120000",
            f"{device}/device": "0x74a1",
            f"{device}/unique_id": f"0f1e2d3c4b5a697{number}",
            f"{device}/mem_info_vram_total": "206141652992",
            f"{device}/ras/umc_err_count": "ue: 0\nce: 3",
            f"{device}/hwmon/hwmon4/power1_cap": "750000000",
            f"{device}/hwmon/hwmon4/power1_cap_default": "750000000",
            f"{device}/current_link_width": "16",
            f"{device}/max_link_width": "16",
        }
    return found


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text()


def several(xml: str, count: int) -> str:
    """The document of one GPU as that of several: its element again, with another identity."""
    start, end = xml.index("<gpu "), xml.index("</gpu>") + len("</gpu>\n")
    one = xml[start:end]
    bus = one[len('<gpu id="') : one.index('">')]
    more = []
    for number in range(count):
        own = f"00000000:{0x1A + number:02X}:00.0"
        uuid = f"GPU-{number:08d}-aaaa-bbbb-cccc-000000000000"
        text = one.replace(bus, own).replace("GPU-00000000-aaaa-bbbb-cccc-000000000000", uuid)
        more.append(text)
    head = xml[:start].replace("<attached_gpus>1<", f"<attached_gpus>{count}<")
    return head + "".join(more) + xml[end:]


def index_of(count: int) -> str:
    return "".join(f"{n}, GPU-{n:08d}-aaaa-bbbb-cccc-000000000000\n" for n in range(count))


# As `nvidia-smi --query-gpu=index,uuid,memory.used --format=csv,noheader,nounits` prints it: what
# a driver is asked that does not know the other fields.
TWO = (
    "0, GPU-11111111-aaaa-bbbb-cccc-000000000000, {0}\n"
    "1, GPU-22222222-aaaa-bbbb-cccc-000000000000, {1}\n"
)


def prints(folder: Path, *outputs: str, processes: str = "") -> Path:
    """A stand-in for nvidia-smi that prints one output after the other, then the last again."""
    folder.mkdir(parents=True)
    (folder / "processes").write_text(processes)
    for number, output in enumerate(outputs):
        (folder / f"out{number}").write_text(output)
    last = len(outputs) - 1
    script = (
        f'cd "{folder}"; case "$*" in *compute-apps*) cat processes; exit;; esac\n'
        f"n=$(cat calls 2>/dev/null || echo 0); echo $((n + 1)) > calls\n"
        f'[ "$n" -lt {last} ] || n={last}; cat out$n'
    )
    return program(folder, "nvidia-smi", script)
