"""The repositories in apt's sources on a node, in one-line files (.list) and in stanzas (.sources), and the keys that apt accepts for them.

apt refuses every command if two sources have one repository with different options, such as Signed-By.
"""

from __future__ import absolute_import, division, print_function

import glob
import os
import re

from ansible.module_utils.openpgp_key import ARMOR, dearmored, fingerprints
from ansible.module_utils.whole_files import read_bytes

OURS = "dlperf-"
TRUSTED = ("/etc/apt/trusted.gpg", "/etc/apt/trusted.gpg.d/*.gpg", "/etc/apt/trusted.gpg.d/*.asc")
LINE = re.compile(r"^\s*(deb|deb-src)\s+(?:\[([^\]]*)\]\s*)?(\S+)\s+(\S+)([^#]*)")
# Names in one-line files, as stanzas have them
NAMES = {"arch": "architectures", "arch+": "architectures-add", "arch-": "architectures-remove"}
NO = ("no", "false", "without", "off", "disable", "0")


def address(uri, architecture):
    """host/folder of a repository: apt keeps the lists of http and https, and of file:/ and file:///, under the same names."""
    uri = re.sub(r"^[a-z+]+:(//)?", "", uri.replace("$(ARCH)", architecture))
    return re.sub(r"^[^/@]*@", "", uri).rstrip("/")


def line_entries(text):
    """deb [arch=amd64 signed-by=/etc/apt/keyrings/docker.gpg] https://download.docker.com/linux/ubuntu jammy stable"""
    for number, line in enumerate(text.splitlines(), 1):
        match = LINE.match(line)
        if match:
            kind, options, uri, suite, components = match.groups()
            pairs = (option.partition("=") for option in (options or "").split())
            options = dict((NAMES.get(name.lower(), name.lower()), value.replace(",", " ")) for name, _equals, value in pairs)
            yield dict(options=options, type=kind, uri=uri, suite=suite, components=components.split(), line=number, text=line + "\n")


def stanza_entries(text):
    """Types: deb, URIs: https://download.docker.com/linux/ubuntu, Suites: jammy, Components: stable, Signed-By: a path or a key"""
    lines = [line for line in enumerate(text.splitlines(), 1) if not line[1].startswith("#")]
    while lines:
        length = next((at for at, (_number, line) in enumerate(lines) if not line.strip()), len(lines))
        stanza, lines = lines[:length], lines[length + 1 :]
        fields, name = {}, None
        for _number, line in stanza:
            if line[0] not in " \t":
                name, _colon, line = line.partition(":")
                name = name.strip().lower()
            fields[name] = fields[name] + "\n" + line.strip() if name in fields else line.strip()
        if not fields or fields.get("enabled", "yes").lower() in NO:
            continue
        raw = "".join(line + "\n" for _number, line in stanza)
        for kind in fields.get("types", "").split():
            for uri in fields.get("uris", "").split():
                for suite in fields.get("suites", "").split():
                    yield dict(options=fields, type=kind, uri=uri, suite=suite, components=fields.get("components", "").split(),
                               line=stanza[0][0], text=raw)  # fmt: skip


def sources(main, parts):
    """All entries of apt's sources, in apt's order. `main`: sources.list; `parts`: sources.list.d."""
    entries = []
    for path in [main] + sorted(glob.glob(os.path.join(parts, "*"))):
        reader = {".list": line_entries, ".sources": stanza_entries}.get(os.path.splitext(path)[1])
        # apt skips other names.
        if path != main and (reader is None or not re.match(r"[A-Za-z0-9_.-]+$", os.path.basename(path))) or not os.path.isfile(path):
            continue
        text = (read_bytes(path) or b"").decode("utf-8", "replace")
        entries += [dict(entry, path=path) for entry in (reader or line_entries)(text)]
    return entries


def is_ours(entry):
    return os.path.basename(entry["path"]).startswith(OURS)


def of_repository(entries, repository, architecture):
    """The entries that name the repository, a dictionary with uri and suite."""

    def identity(one):
        suite = one["suite"].replace("$(ARCH)", architecture)
        return address(one["uri"], architecture), re.sub(r"^(\./)+$", "/", suite)

    return [entry for entry in entries if identity(entry) == identity(repository)]


def overtaken(entries, architecture):
    """Those of this project's entries whose repository another source has, too."""
    foreign = [entry for entry in entries if not is_ours(entry)]
    return [entry for entry in entries if is_ours(entry) and of_repository(foreign, entry, architecture)]


def place_of(entry):
    return "%s:%d" % (entry["path"], entry["line"])


def serves(entry, architecture):
    """True if apt takes the architecture's packages from an entry."""
    options = entry["options"]
    some = options.get("architectures", "").split()
    return (entry["type"] == "deb" and (not some or architecture in some + options.get("architectures-add", "").split())
            and architecture not in options.get("architectures-remove", "").split())  # fmt: skip


def signers(entry):
    return entry["options"].get("signed-by", "").replace(",", " ").split()


def site_problem(entries, repository, architecture):
    """(problem, remedy) of the site's entries of a repository, in which apt could not find or not verify its packages; None if they are right."""
    entry, url = entries[0], repository["uri"]
    good = [one for one in entries if serves(one, architecture)]
    missing = sorted(set(repository.get("components") or []) - set(name for one in good for name in one["components"]))
    if not good or missing:
        lacks = "component %s" % " ".join(missing) if good else "packages of %s" % architecture
        return "%s has %s without %s" % (place_of(entry), url, lacks), "add them there, or remove that source: the role then adds its own"
    # apt takes these for one, so that their options must agree; to it, http and https differ in this.
    same = [one for one in entries if (one["uri"].rstrip("/"), one["suite"]) == (entry["uri"].rstrip("/"), entry["suite"])]
    other = next((one for one in same if signers(one) != signers(entry)), None)
    if other:
        return ("two sources on the node have the same repository, %s, with different keys (Signed-By): %s and %s, and no apt command works"
                % (url, place_of(entry), place_of(other)), "remove one of them")  # fmt: skip
    odd = next((one for one in entries if "trusted" in one["options"]), None)
    if odd:
        return ("%s has %s with trusted=%s, so apt does not verify it" % (place_of(odd), url, odd["options"]["trusted"]),
                "name the vendor's key there (signed-by) instead, or remove that source: the role then adds its own")  # fmt: skip
    wanted = set(name.replace(" ", "").upper() for name in repository["fingerprints"])
    keys, problems = accepted_keys(entry["options"].get("signed-by", ""))
    if not wanted & set(keys):
        return ("%s has %s with another key: expected fingerprint %s, found %s"
                % (place_of(entry), url, " or ".join(sorted(wanted)), ", ".join(keys + problems) or "none"),
                "put the vendor's key there, or remove that source: the role then adds its own")  # fmt: skip
    return None


def accepted_keys(signed_by):
    """(fingerprints of the keys that apt accepts, problems of their files) by a source's Signed-By: files, fingerprints, a key, or nothing."""
    if ARMOR.decode("ascii") in signed_by:
        key = "\n".join("" if line == "." else line for line in signed_by.splitlines())
        return keys_in([("Signed-By", key.encode("utf-8"))])
    words = signed_by.replace(",", " ").split()
    files = [word for word in words if word.startswith("/")]
    keys, problems = keys_in([(path, read_bytes(path)) for path in files or sorted(sum(map(glob.glob, TRUSTED), []))])
    if words and not files:
        keys = [key for key in keys if key in [word.rstrip("!").upper() for word in words]]
    return keys, problems


def keys_in(files):
    """(fingerprints of the primary keys, problems of the unreadable ones) of key files, (name, content or None)."""
    keys, problems = [], []
    for name, content in files:
        try:
            keys += fingerprints(dearmored(content or b""))
        except ValueError as error:
            problems.append("%s: %s" % (name, "no such file" if content is None else error))
    return keys, problems


def where(module):
    """(sources.list, sources.list.d, architecture) of apt; on a node with a mirror, apt reads another folder."""
    names = "MAIN Dir::Etc::sourcelist/f PARTS Dir::Etc::sourceparts/d ARCHITECTURE APT::Architecture"
    output = module.run_command(["apt-config", "shell"] + names.split())[1]
    values = dict(re.findall(r"(?m)^([A-Z]+)='(.*)'$", output))
    return (values.get("MAIN", "/etc/apt/sources.list"), values.get("PARTS", "/etc/apt/sources.list.d/"),
            values.get("ARCHITECTURE", "amd64"))  # fmt: skip


def unreadable(module):
    """(problem, remedy) if apt cannot read the node's sources, so that no apt command works; else None.

    E: Malformed entry 1 in list file /etc/apt/sources.list.d/cuda.list ([option] not assignment)
    """
    code, _output, errors = module.run_command(["apt-get", "-qq", "--print-uris", "update"], environ_update={"LC_ALL": "C"})
    main, parts, architecture = where(module)
    if code == 0 or overtaken(sources(main, parts), architecture):  # `make_way` ends that
        return None
    words = "; ".join(line[3:].rstrip(".") for line in errors.splitlines() if line.startswith("E: ")) or errors.strip()
    return "apt cannot read the node's sources, and no apt command works: " + words, "correct or remove the source that it names"


def make_way(module, undo):
    """Remove this project's sources whose repositories the site has set up since: apt works again, and the families use the site's.

    apt's lists stay, because both sources share them.
    """
    main, parts, architecture = where(module)
    for entry in overtaken(sources(main, parts), architecture):
        undo.disown([entry["path"], entry["options"].get("signed-by")])
