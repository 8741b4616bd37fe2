"""Changes that provisioning would make on nodes: the tasks of check mode as one list for each node.

The list has no model of the roles. It is made of the results that the modules give in check mode:
of their diffs, and of the arguments of modules that give none. A task that cannot run in check mode
is listed by what it starts or, if nothing else is known, by its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Item = tuple[str, str]  # kind and text
RECORDS = "/var/lib/dlperf, /opt/dlperf/stamps (this project's records)"
NOTES = "notes"  # they change nothing
KINDS = (
    *("packages", "holds", "package sources", "files", "users", "services", "settings", "reboots"),
    *("other steps", NOTES),
)
# They change nothing but their records.
VERIFICATIONS = ("proof", "family_proof", "gpu_compute", "assert")
PACKAGES, SETTINGS = "packages", "settings"


def of_task(
    name: str, action: str, arguments: Mapping[str, Any], result: Mapping[str, Any], note: str = ""
) -> list[Item]:
    """The changes that a task would make. `arguments`: those of its module, as far as known. `note`
    is the role's text for what check mode cannot know, such as `reboots: ...`."""
    if note:
        kind, _, text = note.partition(": ")
        return [(kind, text)]
    action = action.rpartition(".")[2]
    diffs = result.get("diff") or []
    items = [
        item
        for diff in ([diffs] if isinstance(diffs, Mapping) else diffs)
        for item in _of_diff(diff)
    ]
    path = next((arguments[key] for key in ("path", "dest", "prefix") if arguments.get(key)), None)
    if items:
        return items
    if action == "node_service":
        state = "restarted" if arguments.get("restart") is True else "started"
        return [("services", f"{arguments['name']}: {state}, at boot")]
    if action in ("systemd_service", "systemd", "service", "sysvinit"):
        return [("services", _service(arguments) or name)]
    if action in ("user", "group"):
        # The node has the user, which keeps all but its shell.
        shell = f": shell {arguments['shell']}" if arguments.get("create_home") is False else ""
        return [("users", f"{action} {arguments.get('name') or name}{shell}")]
    if action == "ssh_mesh_identity":
        return [("files", f"~{arguments.get('user')}/.ssh")]
    if action in VERIFICATIONS:
        return []
    if path and "{{" not in str(path):
        return [_file(str(path), "removed" if arguments.get("state") == "absent" else "")]
    return [("other steps", name)]


def _service(arguments: Mapping[str, Any]) -> str:
    name, state = str(arguments.get("name") or ""), str(arguments.get("state") or "")
    states = [state, "at boot" if arguments.get("enabled") in (True, "true", "yes") else ""]
    return "" if "{{" in name + state else f"{name}: {', '.join(filter(None, states)) or 'changed'}"


def _of_diff(diff: Mapping[str, Any]) -> Iterator[Item]:
    header = diff.get("after_header") or diff.get("before_header") or ""
    before, after = diff.get("before") or "", diff.get("after") or ""
    if isinstance(after, Mapping):  # of ansible.builtin.file
        if path := after.get("path"):
            yield _file(path, "removed" if after.get("state") == "absent" else "")
    elif header.startswith(PACKAGES):
        yield from _packages(before, after)
    elif header == SETTINGS:
        values = dict(line.split(" ", 1) for line in before.splitlines())
        for line in after.splitlines():
            setting, _, value = line.partition(" ")
            yield SETTINGS, f"{setting}: {values.get(setting)} -> {value}"
    elif header.startswith("/"):
        is_removed = after in ("", "absent\n") and before
        yield _file(
            header.partition(" ")[0],
            "removed" if is_removed else "" if before not in ("", "absent\n") else "new",
        )


def _file(path: str, how: str) -> Item:
    is_source = path.startswith(("/etc/apt/", "/etc/yum.repos.d/", "/etc/pki/rpm-gpg/"))
    return "package sources" if is_source else "files", f"{path} ({how})" if how else path


def _packages(before: str, after: str) -> Iterator[Item]:
    """Lines such as `libnccl2 2.30.7-1 held`."""
    was, will = (
        {(words := line.split())[0]: words[1:] for line in text.splitlines()}
        for text in (before, after)
    )
    for name in sorted({*was, *will}):
        old, new = was.get(name, []), will.get(name, [])
        if old[:1] != new[:1]:
            yield PACKAGES, _moved(name, old, new)
        if "held" in new and "held" not in old:
            yield "holds", name
        elif "held" in old and "held" not in new:
            yield "holds", f"{name} (released)"


def _moved(name: str, old: Sequence[str], new: Sequence[str]) -> str:
    if not new:
        return f"{name} {old[0]} removed"
    return f"{name} {old[0]} -> {new[0]}" if old else f"{name} {' '.join(new[:1])} (new)"


def is_change(items: Sequence[Item]) -> bool:
    """True if anything of a node's list would change it."""
    return any(kind != NOTES for kind, _ in items)


def listed(changes: Mapping[str, Sequence[Item]], failures: Mapping[str, str]) -> str:
    """The lists of all nodes; nodes with equal lists have one."""
    groups: dict[tuple[Item, ...], list[str]] = {}
    for node, pairs in changes.items():
        groups.setdefault(tuple(dict.fromkeys(pairs)), []).append(node)
    texts = []
    for items, nodes in groups.items():
        state = "what would change" if is_change(items) else "nothing would change"
        lines = [f"{', '.join(nodes)}: {state}"]
        for kind in KINDS:
            of_kind = [text for each, text in items if each == kind]
            lines += [f"  {kind}:", *(f"    {text}" for text in of_kind)] if of_kind else []
        if is_change(items):
            lines.append(f"  records:\n    {RECORDS}")
        texts.append("\n".join(lines))
    texts += [f"{node}: refused\n  {reason}" for node, reason in failures.items()]
    return "\n\n".join(texts)
