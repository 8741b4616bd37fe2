"""Look up releases, systems and sources in the release tables of roles for vendors' software."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import yaml

from ..catalog.suites import numbers
from ..core.errors import UserError
from ..core.files import read_text
from ..core.paths import cache, shipped

REPOSITORIES = "playbooks/vars/vendor_repositories.yml"
# The processor that a system's name does not have, and Arm's with its names in repositories.
X86, ARM = "x86_64", "aarch64"
MACHINES = {X86: {"cuda": "x86_64", "debian": "amd64"}, ARM: {"cuda": "sbsa", "debian": "arm64"}}
# How many last lines of a failed command's output to show.
LINES = 12
TITLES = {"ubuntu": "Ubuntu", "debian": "Debian", "rhel": "RHEL"}
# Rebuilds of RHEL use its vendors' repositories. Red: the first word of its NAME.
REBUILDS = ("rocky", "almalinux", "redhat", "red", "rhel")


def system_of(facts: Mapping[str, Any]) -> str:
    """The node's system as release tables name it: ubuntu18.04, and rhel9 for Rocky Linux 9.4;
    `ubuntu24.04 aarch64` with an Arm processor."""
    name, version = str(facts["distribution"]).lower(), str(facts["distribution_version"])
    system = f"rhel{version.partition('.')[0]}" if name in REBUILDS else name + version
    return on_processor(system, str(facts.get("architecture") or X86))


def on_processor(system: str, processor: str) -> str:
    """The name of a system with this processor in the release tables."""
    return system if processor == X86 else f"{system} {processor}"


def title(system: str) -> str:
    """ubuntu18.04 as Ubuntu 18.04."""
    name, version = re.fullmatch(r"([a-z]+)(.*)", system).groups()  # type: ignore[union-attr]
    return f"{TITLES.get(name, name)} {version}".strip()


def listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names)


def newest_first(versions: list[str]) -> list[str]:
    return sorted(versions, key=numbers, reverse=True)


def release(
    releases: Mapping[str, Any],
    version: object,
    system: str,
    what: str,
    variable: str,
    packages: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The entry of a release table for a system, with the system's own values. `packages`: those
    that the operator states, with their versions. Raises UserError for an unknown version or
    system; the message names the nearest release."""
    version = str(version)
    like = version if version in releases else _like(releases, version, bool(packages))
    if like is None:
        versions = listed(newest_first(list(releases)))
        raise UserError(f"{what} {version} is unknown ({variable}); known versions: {versions}")
    entry = dict(releases[like])
    if system not in (served := _served(entry)):
        others = [v for v in newest_first(list(releases)) if system in _served(releases[v])]
        # The next newer version, or else the newest.
        newer = [v for v in others if numbers(v) > numbers(version)]
        nearest = (
            f"use {what} {(newer or others[:1])[-1]}" if others else "no known version is available"
        )
        where = listed([title(name) for name in served])
        why = f" ({entry['why']})" if entry.get("why") else ""
        raise UserError(
            f"{what} {version} does not support {title(system)}{why}, only {where};"
            f" for {title(system)}, {nearest} ({variable})"
        )
    systems = entry.pop("systems")
    of_system = systems[system.partition(" ")[0]] if isinstance(systems, Mapping) else {}
    merged: dict[str, Any] = {**entry, **of_system, "version": version, "system": system}
    merged |= {"packages": dict(packages)} if packages else {}
    own_names = {key: text for key, text in merged.items() if isinstance(text, str)}
    return dict(substituted(merged, own_names | names_of(system)))


def _served(entry: Mapping[str, Any]) -> list[str]:
    """The systems of a release; `aarch64` lists those whose packages there are for Arm, too."""
    return [*entry["systems"], *(on_processor(name, ARM) for name in entry.get(ARM, ()))]


def _like(releases: Mapping[str, Any], version: str, has_packages: bool) -> str | None:
    """The release whose entry also describes an unknown version: the newest one of its branch, if
    it is older; any branch's, if the operator states the packages."""
    entries = [key for key in newest_first(list(releases)) if releases[key].get("point_releases")]
    same = [key for key in entries if is_newer(key, version)]
    return next(iter(same or (entries if has_packages else ())), None)


def is_newer(version: str, other: str) -> bool:
    """True if another version is a newer point release of the same branch: 580.178.04 of
    580.105.08."""
    numbers_of_version, numbers_of_other = numbers(version), numbers(other)
    return numbers_of_version[:1] == numbers_of_other[:1] and numbers_of_other > numbers_of_version


def names_of(system: str) -> dict[str, str]:
    """Forms of a node's system in URLs and versions: ubuntu1804, ubuntu18.04, ubuntu; el9; and of
    its processor: aarch64, sbsa in NVIDIA's repositories, arm64 in Debian's names."""
    system, _, processor = system.partition(" ")
    name = re.match(r"[a-z]*", system)
    return {
        "machine": processor or X86,
        **MACHINES[processor or X86],
        "system": system.replace(".", ""),
        "distribution": system,
        "os": name.group() if name else "",
        "release": re.sub("^[a-z]*", "", system),
        "dist": system.replace("rhel", "el"),
    }


def refusal(*arguments: Any) -> str:
    """The error message of `release`; empty if it succeeds."""
    try:
        release(*arguments)
    except UserError as error:
        return str(error)
    return ""


def too_old(entry: Mapping[str, Any], driver: str, variable: str) -> str:
    """The reason why a release of CUDA cannot run on a driver; empty if it can or the driver is
    unknown."""
    wanted = str(entry["minimum_driver"])
    if not driver or numbers(driver) >= numbers(wanted):
        return ""
    return (
        f"CUDA {entry['version']} needs driver {wanted} or newer, but the driver is {driver};"
        f" change {variable}"
    )


def file_refusal(name: str, source: str, sha256: str, variables: str) -> str:
    """The reason why a vendor's file cannot be used; empty if its source and checksum are set.
    `variables` names those of both, such as `nccl_archive nccl_archive_sha256`."""
    of_source, of_sum = variables.split()
    has_sum = re.fullmatch("[0-9a-fA-F]{64}", sha256)
    if not source:
        also = "" if has_sum else f", and {of_sum} to the 64 digits that sha256sum prints for it"
        return (
            f"{name} cannot be downloaded from its vendor without a login. Download it yourself and"
            f" set {of_source} to its path or URL (or put it into the mirror){also}."
        )
    return "" if has_sum else without_checksum(name, "installed", of_sum)


def without_checksum(what: str, done: str, variable: str) -> str:
    return (
        f"{what} has no known checksum, and nothing is {done} without one. Set {variable} to the"
        " 64 hexadecimal digits that sha256sum prints for a file that you trust."
    )


def source_refusal(
    version: str,
    releases: Mapping[str, Mapping[str, str]],
    archive: str,
    sha256: str,
    role: str,
    name: str,
) -> str:
    """The reason why a version cannot be built from source; empty if it can. A version outside the
    role's release table, and an operator's own file, need a checksum from the operator."""
    versions = listed(newest_first(list(releases)))
    if not version:
        return f"a build of {name} from source needs {role}_version; known versions: {versions}"
    if version not in releases and not archive:
        return (
            f"{name} {version} is unknown; known versions: {versions}. For another version, set"
            f" {role}_archive to its source (a path or a URL) and {role}_sha256 to its checksum."
        )
    if not (sha256 or releases.get(version, {}).get("sha256")):
        return without_checksum(f"The source of {name} {version}", "built", f"{role}_sha256")
    if sha256 and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        return f"{role}_sha256 must have 64 hexadecimal digits, found {sha256}"
    return ""


def source(
    version: str,
    releases: Mapping[str, Mapping[str, str]],
    archive: str,
    sha256: str,
    mirror: str | None,
) -> dict[str, str]:
    """The source, file name and checksum of a version, from the operator or the release table."""
    entry = releases.get(version, {})
    url = archive or entry.get("url", "")
    return {
        "source": archive or address(url, mirror),
        "file": url.rpartition("/")[2],
        "sha256": sha256 or entry.get("sha256", ""),
    }


def substituted(value: Any, names: Mapping[str, str]) -> Any:
    """Replace {system} and the other names in all strings, including keys."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, Mapping):
        return {substituted(key, names): substituted(item, names) for key, item in value.items()}
    return [substituted(item, names) for item in value] if isinstance(value, list) else value


def address(url: str, mirror: str | None) -> str:
    """A vendor's URL, or its place in the mirror (by host and path) if there is a mirror.

    A mirror is a URL or a folder on the node.
    """
    if not mirror:
        return url
    path = re.sub(r"^[a-z]+://", "", url)
    prefix = "file:" if mirror.startswith("/") else ""
    return f"{prefix}{mirror.rstrip('/')}/{path}"


def mirror_key(stack: str, suite: str) -> str:
    """The place of the public key of the mirror that `bundle` makes by default."""
    return str(cache() / "mirror" / f"{stack}-{suite}" / "apt/dlperf-mirror.asc")


@functools.cache
def repositories() -> dict[str, Any]:
    """All vendors' repositories with their keys, by name."""
    loaded = yaml.safe_load(read_text(shipped() / REPOSITORIES))
    return dict(loaded["vendor_repositories"])


def repository(
    name: str, system: str, mirror: str | None, keys: Mapping[str, list[str]]
) -> dict[str, Any]:
    """A repository in the form that the module package_family takes.

    `keys`: key fingerprints of the repositories that a site's mirror signs with its own key.
    """
    entry = repositories()[name]
    if system.startswith("rhel"):
        entry = {**entry, **entry["rhel"]}
    entry = substituted(entry, names_of(system))
    key = entry["key"]
    described = {
        "name": name,
        "uri": address(entry["url"], mirror),
        "suite": entry.get("suite", "/"),
        "components": entry.get("components", []),
        "signed": entry.get("signed", "packages"),
        "key": address(key["url"], mirror),
        "fingerprints": keys.get(name, key["fingerprints"]),
    }
    has_sum = key.get("sha256") and name not in keys
    return described | ({"key_sha256": key["sha256"]} if has_sum else {})


def parts(
    entries: list[dict[str, Any]], system: str, mirror: str | None, keys: Mapping[str, list[str]]
) -> list[dict[str, Any]]:
    """The packages of several repositories, in the form that the module unpacked_packages takes."""
    return [
        {**entry, "repository": repository(entry["repository"], system, mirror, keys)}
        for entry in entries
    ]


def last_words(result: Mapping[str, Any]) -> str:
    """The last output lines of a failed step; a compiler prints its errors last."""
    output = str(result.get("stderr") or result.get("stdout") or "").strip()
    lines = "\n".join(output.splitlines()[-LINES:])
    message = str(result.get("msg") or "").strip()
    if lines and message in ("", "non-zero return code"):
        return lines
    return "\n".join(part for part in (message, lines) if part)
