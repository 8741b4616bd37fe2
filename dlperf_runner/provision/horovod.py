"""The inputs of Horovod's verification in an environment, apart from the node's own."""

from __future__ import annotations

import csv
import hashlib
import re
import stat
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.files import read_text


def options(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The configurable inputs of a wheel's build."""
    wanted = environment["horovod"]
    requirements = read_text(Path(wanted["requirements"])).rstrip()
    digest = hashlib.sha256(requirements.encode()).hexdigest()
    return {"environment": wanted["build_environment"], "requirements": digest}


def wanted(
    environment: Mapping[str, Any], mpirun: str, interface: str, arguments: Sequence[str]
) -> dict[str, Any]:
    """The inputs of the verification, except the wheel's key, which only the node knows."""
    variables = environment.get("variables")
    return {
        **({"variables": variables} if variables else {}),
        **({"device": environment["device"]} if environment.get("device") else {}),
        "version": environment["horovod"]["version"],
        "options": options(environment),
        "mpirun": mpirun,
        "interface": interface,
        "arguments": list(arguments),
    }


def stands(proven: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True if these inputs were verified, with any wheel."""
    return {key: value for key, value in proven.items() if key != "wheel"} == wanted


def unproven(
    environments: Sequence[Mapping[str, Any]], proven: Mapping[str, Any], *chosen: Any
) -> list[Mapping[str, Any]]:
    """The environments in which Horovod was not verified as chosen (see `wanted`)."""
    return [
        item
        for item in environments
        if not stands(proven.get(f"horovod-{item['name']}", {}), wanted(item, *chosen))
    ]


def wheel_refusal(path: str) -> str:
    """The reason why a wheel of Horovod must not be installed; empty if it is safe.

    Root starts the environment's Python (uv asks for its version), which runs every .pth file. So
    the wheel may contain only the package, its metadata and its command.
    """
    with zipfile.ZipFile(path) as archive:
        names = set(archive.namelist())
        strange = [m.filename for m in archive.infolist() if not is_part_of_horovod(m)]
        for name in names - set(strange):
            text = archive.read(name).decode(errors="replace") if ".dist-info/" in name else ""
            if name.endswith("/RECORD"):  # what uninstalling removes
                strange += [row[0] for row in csv.reader(text.splitlines()) if row[0] not in names]
            elif name.endswith("/entry_points.txt"):
                commands = re.findall(r"(?m)^\s*([^\s=\[]+)\s*=", text)
                strange += [command for command in commands if command != "horovodrun"]
    if not strange:
        return ""
    return f"{path}: {strange[0]!r} is not part of Horovod. Inspect its source before you run again"


def is_part_of_horovod(member: zipfile.ZipInfo) -> bool:
    name, mode = member.filename, member.external_attr >> 16
    data = r"data/((pure|plat)lib/horovod/|scripts/horovodrun$)"
    within = rf"horovod/|horovod-[^/]+\.(dist-info/|{data})"
    is_plain = stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR) and not mode & 0o6000
    return bool(re.match(within, name)) and ".." not in name.split("/") and is_plain
