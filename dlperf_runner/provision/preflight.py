"""The facts gathered by preflight.yml, in the form that `dlperf doctor` reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ..catalog.suites import CONTROLLERS, SUITES, SYSTEMS, controller, numbers
from ..core.errors import UserError
from ..core.paths import shipped

# RHEL and its rebuilds, by their ID in os-release; CentOS Stream is ahead of them.
REBUILDS = ("rhel", "rocky", "almalinux")


def choice(output: str, core: str, given: str = "") -> dict[str, str]:
    """The Python that runs the modules, from the output of find_python.sh.

    `path` and `version` are empty if there is none; then `package` is the one to install, and empty
    if none of the system's fits or it would not be the `given` interpreter. `suite` is the code
    name of a Debian or Ubuntu; `unsupported` a system whose packages the roles do not know, as
    CentOS 7.5; `refusal` what is wrong, and what to do.
    """
    lines = [line.split() for line in output.splitlines() if len(line.split()) == 2]
    system = next((name for key, name in lines if key == "system"), "")
    pythons = [(path, version) for path, version in lines if path.startswith("/")]
    fitting = [item for item in pythons if fits(core, item[1])]
    path, version = fitting[0] if fitting else ("", "")
    packages = {
        release: package
        for release in (core, *CONTROLLERS)
        if (package := _package(system, release)) and given in ("", f"/usr/bin/{package}")
    }
    versions = [version for _, version in pythons]
    return {
        "path": path,
        "version": version,
        "package": "" if fitting else packages.get(core, ""),
        "suite": _suite(system),
        "refusal": "" if fitting else _refusal(versions, system, list(packages), core),
        "unsupported": unsupported(output),
    }


def has_problem(output: str, core: str, given: str) -> bool:
    """True if the inventory's interpreter cannot run the modules, or the system is unsupported."""
    chosen = choice(output, core, given)
    return not chosen["path"] or bool(chosen["unsupported"])


def unsupported(output: str) -> str:
    """The name of the system if its packages are neither Debian's nor those of RHEL 8 or 9; empty
    if they are, or if unknown."""
    stated = dict(line.split(":", 1) for line in output.splitlines() if re.match(r"\w+:", line))
    if "family" not in stated or {"debian", "ubuntu"} & set(stated["family"].split()):
        return ""
    if re.search(rf"(?m)^system ({'|'.join(REBUILDS)})[89](\.|$)", output):
        return ""
    return re.sub(r" (?:Linux )?release ", " ", stated["release"].strip())


def fits(core: str, version: str) -> bool:
    """True if a Python runs the modules of an ansible-core; True if this release is unknown."""
    entry = controller(core)
    return entry is None or entry.fits(version)


def _suite(system: str) -> str:
    return next((name for name, other in SYSTEMS.items() if other == system), "")


def _package(system: str, core: str) -> str:
    """The package of the system's own Python, if it fits."""
    if not (suite := _suite(system)):
        return ""
    shipped_python = SUITES[suite].python
    if fits(core, shipped_python):
        return "python3"
    # Ubuntu 16.04's Python 3.5 is too old for every Ansible; its 2.7 is not.
    return "python2.7" if numbers(shipped_python) < (3, 8) and fits(core, "2.7") else ""


def _refusal(pythons: list[str], system: str, installable: list[str], core: str) -> str:
    """`installable`: the releases of Ansible that run on what the system's packages bring."""
    has = f"it has Python {', '.join(pythons)}" if pythons else "it has no Python"
    entry = controller(core)
    wants = f"Python {entry}" if entry else "one"
    # The newest release of Ansible that supports one of them, or what the system brings.
    others = [
        other
        for other in sorted(CONTROLLERS, key=numbers)
        if other in installable or any(fits(other, python) for python in pythons)
    ]
    advice = "Install a newer Python on the node"
    if others:
        advice = f"Manage it with ansible-core {others[-1]}"
        if (shipped() / f"requirements/ansible-{others[-1]}.txt").is_file():
            advice += f" (in a clone: make setup ANSIBLE={others[-1]}, then"
            advice += f" .venv-{others[-1]}/bin/ansible-playbook provision.yml)"
    where = f" ({system})" if system else ""
    return f"{has}{where}; ansible-core {core} needs {wants} on nodes. {advice}."


# The doctor's name of each fact: suffix of the registered result.
PARTS = {
    "health": "health",
    "gpu": "gpu",
    "fabric": "fabric",
    "dcgm": "dcgm_facts",
    "adopted": "adopted",
    "software": "software",
}
PROOFS = ("compute", "ssh_mesh", "firewall", "all_reduce")
# Keys that Ansible adds to a result.
OVERHEAD = ("changed", "failed", "warnings", "deprecations", "ansible_facts", "invocation")


def facts(
    hostvars: Mapping[str, Mapping[str, Any]], names: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The facts of each node within --limit."""
    return {
        name: facts_of(hostvars[name])
        for name in names
        if "bootstrap_found" in hostvars.get(name, {})
    }


def facts_of(host: Mapping[str, Any]) -> dict[str, Any]:
    pythons = host["bootstrap_found"]
    if pythons.get("unreachable"):
        return {"unreachable": one_line(pythons) or "no connection"}
    lines = [line.split() for line in pythons.get("stdout", "").splitlines()]
    versions = [line[1] for line in lines if len(line) == 2 and line[0].startswith("/")]
    facts: dict[str, Any] = {"pythons": list(dict.fromkeys(versions))}
    for name, suffix in PARTS.items():
        result = host.get(f"preflight_{suffix}")
        if result is None or result.get("skipped"):
            facts[name] = None
        elif result.get("failed") or result.get("unreachable"):
            facts[name] = {"failed": one_line(result)}
        else:
            facts[name] = {key: value for key, value in result.items() if key not in OVERHEAD}
    for name in PROOFS:
        result = host.get(f"preflight_{name}") or {"skipped": True}
        is_bad = result.get("failed") or result.get("unreachable")
        proof: dict[str, Any] = {"failed": one_line(result) if is_bad else None}
        if name == "compute":
            proof |= {"kind": result.get("kind"), "count": len(result.get("devices") or ())}
        facts[name] = None if result.get("skipped") else proof
    if facts["ssh_mesh"] is not None:
        facts["ssh_mesh"]["called"] = len(host.get("preflight_partners") or [])
    times = (host.get("preflight_asked"), host.get("preflight_answered"))
    facts["asked"], facts["answered"] = (float(time) if time else None for time in times)
    return facts


def one_line(result: Mapping[str, Any]) -> str:
    """The error message, or the last output line of a module that crashed."""
    message = str(result.get("msg") or "")
    module = str(result.get("module_stderr") or result.get("module_stdout") or "").strip()
    # The second is ansible-core's since 2.19, also where sudo printed an error.
    silent = ("MODULE FAILURE", "Module result deserialization failed")
    if module and (not message or message.startswith(silent)):
        message = module.splitlines()[-1]
    return " ".join(message.split())[-600:]


_LOCAL = ("localhost", "127.0.0.1", "::1")
# What sudo prints -> what to do. Ansible's own message is "MODULE FAILURE".
_SUDO = {
    "must have a tty": "sudo on the node wants a terminal (requiretty in sudoers). Set"
    " ansible_ssh_pipelining: false for the node, or exempt the user in sudoers:"
    " Defaults:USER !requiretty",
    # The last is sudo-rs, which Ubuntu has since 25.10.
    "a terminal is required|password is required|Missing sudo password"
    "|interactive authentication is required": "sudo on the node wants a"
    " password: add --ask-become-pass, or allow the user in sudoers:"
    " USER ALL=(ALL) NOPASSWD: ALL",
    "not in the sudoers file|may not run sudo|not allowed to execute": "sudo on the node refuses"
    " the user: allow it in sudoers (USER ALL=(ALL) ALL), or connect as another (ansible_user)",
}


def proxy_environment(
    proxy: str, direct: Iterable[str] | str = (), mirrors: Iterable[str] = ()
) -> dict[str, str]:
    """The environment of what downloads on a node: `dlperf_proxy` for all but the hosts in `direct`
    (`dlperf_no_proxy`) and the site's own mirrors. Raises UserError for a proxy that is no URL, or
    one with a password, which command lines on the node would show."""
    if not proxy:
        return {}
    parts = urlsplit(proxy)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise UserError(
            "invalid proxy",
            where="dlperf_proxy",
            expected="its URL, such as http://proxy.example:3128",
            found=repr(proxy),
        )
    if parts.password is not None:
        raise UserError(
            "the proxy's URL has a password, which command lines on the node would show",
            where="dlperf_proxy",
            expected="a URL without it",
            hint="give the password on the node: in apt's configuration and in /etc/environment,"
            " which only root should read",
        )
    hosts = [direct] if isinstance(direct, str) else [*direct]
    hosts += [host for mirror in mirrors if (host := urlsplit(mirror or "").hostname)]
    excepted = ",".join(dict.fromkeys([*_LOCAL, *hosts]))
    pairs = {"http_proxy": proxy, "https_proxy": proxy, "no_proxy": excepted}
    return {**pairs, **{name.upper(): value for name, value in pairs.items()}}


def sudo_hint(output: str, user: str = "") -> str:
    """The remedy if sudo refused to make a user root; empty if it did not."""
    for pattern, remedy in _SUDO.items():
        if re.search(pattern, output):
            return remedy.replace("USER", user or "USER")
    return ""


def sudo_problem(result: Mapping[str, Any], user: str) -> str:
    """The message for a failed result of Ansible, with the remedy if sudo refused."""
    texts = [str(result.get(key) or "") for key in ("msg", "module_stderr", "module_stdout")]
    return sudo_hint(" ".join(texts), user) or " ".join(filter(None, texts))
