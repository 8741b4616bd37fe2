"""Which Python of a node runs the modules of an ansible-core, and which to install."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

# RHEL and its rebuilds, by their ID in os-release; CentOS Stream is ahead of them.
REBUILDS = ("rhel", "rocky", "almalinux")
CATALOG = Path(__file__).parents[2] / "dlperf_runner/catalog"


def choice(found: str, core: str, given: str = "", catalog: Path = CATALOG) -> dict[str, str]:
    """The Python that runs the modules, from the output of find_python.sh.

    `unsupported` is the name of a system whose packages the roles do not know, as CentOS 7.5.
    `path` and `version` are empty if there is none; then `package` is the one to install, and empty
    if none of the system's fits or it would not be the `given` interpreter. `suite` is the code
    name of a Debian or Ubuntu. `refusal` says in one line what is wrong and what to do.
    """
    lines = [line.split() for line in found.splitlines() if len(line.split()) == 2]
    system = next((name for key, name in lines if key == "system"), "")
    pythons = [(path, version) for path, version in lines if path.startswith("/")]
    fitting = [item for item in pythons if fits(core, item[1], catalog)]
    path, version = fitting[0] if fitting else ("", "")
    packages = {
        release: package
        for release in (core, *_targets(catalog))
        if (package := _package(system, release, catalog)) and given in ("", f"/usr/bin/{package}")
    }
    package = "" if fitting else packages.get(core, "")
    versions = [version for _, version in pythons]
    refusal = "" if fitting else _refusal(versions, system, packages, core, catalog)
    return {
        "path": path,
        "version": version,
        "package": package,
        "suite": _suite(system, catalog)[0],
        "refusal": refusal,
        "unsupported": unsupported(found),
    }


def has_problem(found: str, core: str, given: str) -> bool:
    """Whether the inventory's interpreter cannot run the modules, or the system is unsupported."""
    chosen = choice(found, core, given)
    return not chosen["path"] or bool(chosen["unsupported"])


def unsupported(found: str) -> str:
    """The name of the system if its packages are neither Debian's nor those of RHEL 8 or 9; empty
    if they are, or if unknown."""
    told = dict(line.split(":", 1) for line in found.splitlines() if re.match(r"\w+:", line))
    if "family" not in told or {"debian", "ubuntu"} & set(told["family"].split()):
        return ""
    if re.search(rf"(?m)^system ({'|'.join(REBUILDS)})[89](\.|$)", found):
        return ""
    return re.sub(r" (?:Linux )?release ", " ", told["release"].strip())


def fits(core: str, version: str, catalog: Path = CATALOG) -> bool:
    """Whether a Python runs the modules of an ansible-core; True if this release is unknown."""
    target = _targets(catalog).get(".".join(core.split(".")[:2]))
    if target is None:
        return True
    own = _numbers(version)
    if own == (2, 7):
        return bool(target.get("python2"))
    return _numbers(target["oldest"]) <= own <= _numbers(target["newest"])


def _suite(system: str, catalog: Path) -> tuple[str, str]:
    """Code name and Python of a release of Debian or Ubuntu, both empty for another system."""
    for name, suite in _read(catalog, "suites")["suites"].items():
        if suite["distribution"] + suite["version"] == system:
            return name, suite["python"]
    return "", ""


def _package(system: str, core: str, catalog: Path) -> str:
    _, shipped = _suite(system, catalog)
    if not shipped:
        return ""
    if fits(core, shipped, catalog):
        return "python3"
    # Ubuntu 16.04's Python 3.5 is too old for every Ansible; its 2.7 is not.
    return "python2.7" if _numbers(shipped) < (3, 8) and fits(core, "2.7", catalog) else ""


def _refusal(
    pythons: list[str], system: str, packages: dict[str, str], core: str, catalog: Path
) -> str:
    target = _targets(catalog).get(".".join(core.split(".")[:2]))
    has = f"it has Python {', '.join(pythons)}" if pythons else "it has no Python"
    wants = "one"
    if target:
        also = "2.7 or " if target.get("python2") else ""
        wants = f"Python {also}{target['oldest']} to {target['newest']}"
    # The newest release of Ansible that supports one of them, or what the system brings.
    others = [
        other
        for other in sorted(_targets(catalog), key=_numbers)
        if other in packages or any(fits(other, one, catalog) for one in pythons)
    ]
    advice = "Install a newer Python on the node"
    if others:
        advice = f"Manage it with ansible-core {others[-1]}"
        if Path(catalog.parents[1], f"requirements/ansible-{others[-1]}.txt").is_file():
            advice += f" (in a clone: make setup ANSIBLE={others[-1]}, then"
            advice += f" .venv-{others[-1]}/bin/ansible-playbook provision.yml)"
    where = f" ({system})" if system else ""
    return f"{has}{where}; ansible-core {core} needs {wants} on nodes. {advice}."


def _targets(catalog: Path) -> dict[str, Any]:
    targets: dict[str, Any] = _read(catalog, "controllers")["controllers"]
    return targets


def _read(catalog: Path, name: str) -> dict[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (catalog / f"{name}.yml").read_text(encoding="utf-8")
    document: dict[str, Any] = yaml.load(text, Loader=loader)  # noqa: S506  both are safe
    return document


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"bootstrap_choice": choice, "bootstrap_problem": has_problem}
