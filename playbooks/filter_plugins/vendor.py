"""Release tables of the roles that install vendors' software: which release, for which system,
from where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

REPOSITORIES = Path(__file__).parents[1] / "vars/vendor_repositories.yml"
# Of what a command that failed has printed.
LINES = 12
TITLES = {"ubuntu": "Ubuntu", "debian": "Debian"}


def title(system: str) -> str:
    """ubuntu18.04 as Ubuntu 18.04."""
    name, version = re.fullmatch(r"([a-z]+)(.*)", system).groups()  # type: ignore[union-attr]
    return f"{TITLES.get(name, name)} {version}".strip()


def listed(names: list[str]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names)


def newest_first(versions: list[str]) -> list[str]:
    return sorted(versions, key=numbers, reverse=True)


def release(
    releases: Mapping[str, Any], version: object, system: str, what: str, variable: str
) -> dict[str, Any]:
    """The entry of a release table for a system, with the system's own part laid over it.

    A version or system that is not there is refused, with the nearest that is.
    """
    version = str(version)
    if version not in releases:
        known = listed(newest_first(list(releases)))
        raise ValueError(f"{what} {version} is not known ({variable}); known is {known}")
    entry = dict(releases[version])
    systems = entry.pop("systems")
    if system not in systems:
        others = [v for v in newest_first(list(releases)) if system in releases[v]["systems"]]
        # The next newer one; where there is none, the newest.
        newer = [v for v in others if numbers(v) > numbers(version)]
        nearest = (
            f"the nearest that is: {what} {(newer or others[:1])[-1]}"
            if others
            else "none that is known here is"
        )
        where = listed([title(name) for name in systems])
        why = f" ({entry['why']})" if entry.get("why") else ""
        raise ValueError(
            f"{what} {version} is not for {title(system)}{why}: it is for {where};"
            f" for {title(system)}, {nearest} ({variable})"
        )
    own = systems[system] if isinstance(systems, Mapping) else {}
    found = {**entry, **own, "version": version, "system": system}
    own_names = {key: text for key, text in found.items() if isinstance(text, str)}
    return substituted(found, own_names | names_of(system))


def names_of(system: str) -> dict[str, str]:
    """What stands for a node's system in addresses: ubuntu1804, ubuntu18.04, ubuntu."""
    name = re.match(r"[a-z]*", system)
    return {
        "system": system.replace(".", ""),
        "distribution": system,
        "os": name.group() if name else "",
    }


def refusal(*arguments: Any) -> str:
    """Why `release` refuses what it is asked for; empty where it does not."""
    try:
        release(*arguments)
    except ValueError as error:
        return str(error)
    return ""


def too_old(entry: Mapping[str, Any], driver: str, variable: str) -> str:
    """Why a release of CUDA cannot run on a driver; empty where it can, or nothing is known."""
    wanted = str(entry["minimum_driver"])
    if not driver or numbers(driver) >= numbers(wanted):
        return ""
    return (
        f"CUDA {entry['version']} needs driver {wanted} or newer, and the stack has {driver};"
        f" change {variable}"
    )


def file_refusal(name: str, source: str, sha256: str, variables: str) -> str:
    """Why a vendor's file cannot be had; empty where its source and checksum are given.

    `variables` are those that give them, as `nccl_archive nccl_archive_sha256`.
    """
    of_source, of_sum = variables.split()
    if not source:
        return (
            f"{name} cannot be fetched from its vendor without a login. Fetch it yourself, and name"
            f" it in {of_source} (a path or an address), or put it into the mirror."
        )
    if not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        return without_checksum(name, "installed", of_sum)
    return ""


def without_checksum(what: str, done: str, variable: str) -> str:
    return (
        f"{what} has no known checksum, and nothing is {done} without one. Give its sha256"
        f" (64 hexadecimal digits, as sha256sum says it of a file that you trust) in {variable}."
    )


def source_refusal(
    version: str,
    releases: Mapping[str, Mapping[str, str]],
    archive: str,
    sha256: str,
    role: str,
    name: str,
) -> str:
    """Why a version cannot be built from source as it is asked for; empty where it can.

    A version that the role's release table lacks, and a file of the operator's, need the operator's
    checksum: the table's is that of the project's own file.
    """
    known = listed(newest_first(list(releases)))
    if not version:
        return f"to build {name} from its source needs {role}_version; known is {known}"
    if version not in releases and not archive:
        return (
            f"{name} {version} is not known here; known is {known}. For another one give its"
            f" source in {role}_archive (a path or an address) and its checksum in {role}_sha256."
        )
    if not (sha256 or releases.get(version, {}).get("sha256")):
        return without_checksum(f"The source of {name} {version}", "built", f"{role}_sha256")
    if sha256 and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        return f"{role}_sha256: 64 hexadecimal digits were expected, found {sha256}"
    return ""


def source(
    version: str,
    releases: Mapping[str, Mapping[str, str]],
    archive: str,
    sha256: str,
    mirror: str | None,
) -> dict[str, str]:
    """Where the source of a version comes from, its name as a file, and its checksum: what the
    operator gives, or the release table."""
    known = releases.get(version, {})
    url = archive or known.get("url", "")
    return {
        "source": archive or address(url, mirror),
        "file": url.rpartition("/")[2],
        "sha256": sha256 or known.get("sha256", ""),
    }


def numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def substituted(value: Any, names: Mapping[str, str]) -> Any:
    """{system} and the other names in all texts, keys included."""
    if isinstance(value, str):
        for name, text in names.items():
            value = value.replace("{" + name + "}", text)
        return value
    if isinstance(value, Mapping):
        return {substituted(key, names): substituted(item, names) for key, item in value.items()}
    return [substituted(item, names) for item in value] if isinstance(value, list) else value


def address(url: str, mirror: str | None) -> str:
    """Where a vendor's address is found: behind the mirror, by host and path, where there is one.

    A mirror is an address, or a folder of the node.
    """
    if not mirror:
        return url
    path = re.sub(r"^[a-z]+://", "", url)
    prefix = "file:" if mirror.startswith("/") else ""
    return f"{prefix}{mirror.rstrip('/')}/{path}"


@cache
def repositories() -> dict[str, Any]:
    """Every vendor's repository, and its key."""
    loaded = yaml.safe_load(REPOSITORIES.read_text(encoding="utf-8"))
    return dict(loaded["vendor_repositories"])


def repository(
    name: str, system: str, mirror: str | None, keys: Mapping[str, list[str]]
) -> dict[str, Any]:
    """A repository in the form that the module apt_family takes.

    `keys`: by repository, the fingerprints of those that a site's mirror signs anew.
    """
    entry = substituted(repositories()[name], names_of(system))
    key = entry["key"]
    found = {
        "name": name,
        "uri": address(entry["url"], mirror),
        "suite": entry.get("suite", "/"),
        "components": entry.get("components", []),
        "key": address(key["url"], mirror),
        "fingerprints": keys.get(name, key["fingerprints"]),
    }
    has_sum = key.get("sha256") and name not in keys
    return found | ({"key_sha256": key["sha256"]} if has_sum else {})


def last_words(result: Mapping[str, Any]) -> str:
    """What a failed step said last: warnings of a compiler come first, the error at the end."""
    said = str(result.get("stderr") or result.get("stdout") or "").strip()
    lines = "\n".join(said.splitlines()[-LINES:])
    message = str(result.get("msg") or "").strip()
    if lines and message in ("", "non-zero return code"):
        return lines
    return "\n".join(part for part in (message, lines) if part)


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "vendor_address": address,
            "vendor_file_refusal": file_refusal,
            "vendor_last_words": last_words,
            "vendor_refusal": refusal,
            "vendor_release": release,
            "vendor_repository": repository,
            "vendor_source": source,
            "vendor_source_refusal": source_refusal,
            "vendor_too_old": too_old,
        }
