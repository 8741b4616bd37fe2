#!/usr/bin/python
from __future__ import absolute_import, division, print_function, unicode_literals

DOCUMENTATION = {
    "module": "node_tuning",
    "short_description": "Set clocks, persistence mode, CPU governor and NUMA balancing, or restore the previous values",
    "description": [
        "Records the value of each setting before its first change. O(state=absent) restores this value, unless somebody has changed the "
        "setting since.",
        "A setting that the node does not support or does not own (a container shares its host's kernel and GPUs) is skipped, with the "
        "reason in RV(skipped). A setting that is no longer named is restored.",
        "Changes only the current values. The role installs a service that sets them again after each boot.",
    ],
    "options": {
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present", "description":
            "Whether to set the values or restore the previous ones."},
        "cpu_governor": {"type": "str", "description": "Governor of every CPU."},
        "numa_balancing": {"type": "bool", "description": "Whether the kernel moves memory between NUMA nodes."},
        "persistence": {"type": "bool", "description": "Whether the driver keeps idle GPUs initialised."},
        "application_clocks": {"type": "dict", "description": "Clocks of the GPUs under load, in MHz.", "options": {
            "memory": {"type": "int", "required": True, "description": "Memory clock."},
            "graphics": {"type": "int", "required": True, "description": "GPU clock."},
        }},
        "locked_clocks": {"type": "dict", "description":
            "Range of the GPUs' clocks, in MHz. Earlier locks cannot be queried, so restoring unlocks the clocks.", "options": {
            "minimum": {"type": "int", "required": True, "description": "Lowest clock."},
            "maximum": {"type": "int", "required": True, "description": "Highest clock."},
        }},
        "root": {"type": "path", "default": "/", "description": "The node's root directory. Tests set another one with recorded files."},
        "record": {"type": "path", "default": "/var/lib/dlperf/tuning.json", "description": "File with the previous values."},
        "timeout": {"type": "int", "default": 30, "description": "Time limit of each nvidia-smi command in seconds."},
    },
}  # fmt: skip

RETURN = r"""
settings: {description: Current value of each setting; in check mode, the value it would get., returned: always, type: dict}
skipped: {description: Skipped settings, with reasons., returned: always, type: list, elements: str}
"""

import io
import json
import os
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import bounded, is_container, names, program, text
from ansible.module_utils.whole_files import difference, make_folder, read_bytes, remove_if_empty, write_whole

CONTAINER = "this node is a container, and %s"
NUMA = "proc/sys/kernel/numa_balancing"
QUERIES = {
    "persistence": "persistence_mode",
    "application_clocks": "clocks.applications.memory,clocks.applications.graphics",
    "locked_clocks": "uuid",  # nvidia-smi cannot query them; a reboot unlocks them
}


class Node(object):
    """Reads and writes settings {name: value}; a name is the kind and the CPU or GPU, such as persistence/0."""

    def __init__(self, module):
        self.module = module
        self.root = module.params["root"]
        self.timeout = module.params["timeout"]
        self.is_container = self.root == "/" and is_container(self.root)
        self.skipped = []
        self.smi = None

    def skip(self, what, why):
        self.skipped.append("%s: %s" % (what, why))

    # Read

    def governors(self, wanted):
        folder = os.path.join(self.root, "sys/devices/system/cpu")
        current = {}
        for cpu in (name for name in names(folder) if re.match(r"cpu[0-9]+\Z", name)):
            value = text(folder, cpu, "cpufreq/scaling_governor")
            if value is None:
                continue
            supported = (text(folder, cpu, "cpufreq/scaling_available_governors") or "").split()
            if wanted and supported and wanted not in supported:
                self.module.fail_json(
                    msg="cpu_governor: expected one of %s, which the clock driver of %s supports, found %s"
                    % (", ".join(supported), cpu, wanted)
                )
            current["cpu_governor/" + cpu] = value
        if wanted and not current:
            self.skip("cpu_governor", "the kernel does not control this machine's clocks (its firmware or host does)")
        return current

    def numa(self, wanted):
        value = text(self.root, NUMA)
        if value is None and wanted is not None:
            self.skip("numa_balancing", "this kernel does not support it")
        return {} if value is None else {"numa_balancing/kernel": value}

    def gpus(self, kind, query, wanted):
        """{kind/index: value} from nvidia-smi; empty without a driver, or if no GPU supports the setting."""
        self.smi = self.smi or program("nvidia-smi", ["/usr/bin", "/usr/local/bin"])
        if not self.smi:
            if wanted:
                self.skip(kind, "nvidia-smi is not installed")
            return {}
        reply = bounded([self.smi, "--query-gpu=index," + query, "--format=csv,noheader,nounits"], self.timeout)
        if reply["code"] != 0:
            if wanted:
                messages = (reply["errors"] or reply["output"]).strip().split("\n")[0]
                self.skip(kind, "nvidia-smi did not answer in time" if reply["late"] else "nvidia-smi failed: " + messages)
            return {}
        answers = {}
        for line in reply["output"].splitlines():
            index, _comma, answer = line.partition(",")
            answer = re.sub(r"\s*,\s*", ",", answer.strip())
            if re.search(r"N/A|Not Supported|Unknown", answer):
                if wanted:
                    self.skip(kind, "GPU %s does not support it (%s)" % (index.strip(), answer))
                continue
            answers["%s/%s" % (kind, index.strip())] = answer
        return answers

    def current(self, wanted):
        """The current values of all wanted or recorded settings."""
        readers = {"cpu_governor": self.governors, "numa_balancing": self.numa}
        settings = {}
        for kind, value in sorted((k, v) for k, v in wanted.items() if k in readers or k in QUERIES):
            settings.update(readers[kind](value) if kind in readers else self.gpus(kind, QUERIES[kind], value))
        return settings

    # Change

    def write(self, name, value):
        kind, _slash, which = name.partition("/")
        if kind == "cpu_governor":
            self.put("sys/devices/system/cpu/%s/cpufreq/scaling_governor" % which, value)
        elif kind == "numa_balancing":
            self.put(NUMA, value)
        elif kind == "persistence":
            self.ask(which, "-pm", "1" if value == "Enabled" else "0")
        elif kind == "application_clocks":
            self.ask(which, "-ac", value)
        elif value is None:
            self.ask(which, "-rgc")
        else:
            self.ask(which, "-lgc", value)

    def put(self, path, value):
        path = os.path.join(self.root, path)
        try:
            with io.open(path, "w", encoding="ascii") as stream:
                stream.write("%s\n" % value)
        except (IOError, OSError) as error:
            self.module.fail_json(msg="cannot set %s to %s: %s" % (path, value, error))

    def ask(self, index, *options):
        argv = [self.smi, "-i", index] + list(options)
        answer = bounded(argv, self.timeout)
        if answer["code"] != 0:
            messages = "no answer within %d s" % self.timeout if answer["late"] else (answer["errors"] or answer["output"]).strip()
            self.module.fail_json(msg="%s failed: %s" % (" ".join(argv), messages), rc=answer["code"])


def values(given):
    """{kind: value} of the wanted settings, in the form in which they are read."""
    wanted = {
        "cpu_governor": given["cpu_governor"],
        "numa_balancing": {True: "1", False: "0"}.get(given["numa_balancing"]),
        "persistence": {True: "Enabled", False: "Disabled"}.get(given["persistence"]),
        "application_clocks": given["application_clocks"] and "%(memory)d,%(graphics)d" % given["application_clocks"],
        "locked_clocks": given["locked_clocks"] and "%(minimum)d,%(maximum)d" % given["locked_clocks"],
    }
    return dict((kind, value) for kind, value in wanted.items() if value)


def planned(current, wanted, record, boot):
    """({name: value} to set, the record afterwards); each value is by its setting's name."""
    changes, new = {}, dict(record)
    for name, value in sorted(current.items()):
        aim = wanted.get(name.partition("/")[0])
        if aim is not None:
            before = record[name]["before"] if name in record else value
            if value != aim:
                changes[name] = aim
                new[name] = {"before": before, "set": aim, "boot": boot}
        elif name in record:
            # A value that somebody has changed since is kept.
            if value == record[name]["set"] and value != record[name]["before"]:
                changes[name] = record[name]["before"]
            del new[name]
    for name in record:
        if name not in current and name.partition("/")[0] not in wanted:
            del new[name]  # the GPU or its driver was removed
    return changes, new


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    wanted = values(given) if given["state"] == "present" else {}
    record = json.loads((read_bytes(given["record"]) or b"{}").decode("utf-8"))
    node = Node(module)
    if node.is_container and wanted:
        node.skip("tuning", CONTAINER % "its kernel and GPUs belong to its host: set %s there" % ", ".join(sorted(wanted)))
        module.exit_json(changed=False, settings={}, skipped=node.skipped, diff={"before": "", "after": ""})
    kinds = dict((name.partition("/")[0], None) for name in record)
    current = node.current(dict(kinds, **wanted))
    boot = text(node.root, "proc/sys/kernel/random/boot_id") or ""
    for name in [name for name in current if name.startswith("locked_clocks/")]:
        noted = record.get(name) or {}
        current[name] = noted.get("set") if noted.get("boot") == boot else None
    changes, new = planned(current, wanted, record, boot)
    after = dict(current, **changes)
    lines = [["%s %s\n" % (name, side[name]) for name in sorted(changes)] for side in (current, after)]
    diff = difference("settings", *map("".join, lines))
    if (changes or new != record) and not module.check_mode:
        # Recorded before the change, so that an interrupted run can be undone.
        folder = os.path.dirname(given["record"])
        if new:
            make_folder(folder)
        write_record(given["record"], dict(record, **new))
        for name, value in sorted(changes.items()):
            node.write(name, value)
        write_record(given["record"], new)
        if not new:
            remove_if_empty(folder)
    settings = dict((name, value) for name, value in after.items() if value is not None)
    module.exit_json(changed=bool(changes) or new != record, settings=settings, skipped=node.skipped, diff=diff)


def write_record(path, record):
    if record:
        write_whole(path, json.dumps(record, indent=1, sort_keys=True).encode("utf-8"), 0o600)
    elif os.path.exists(path):
        os.unlink(path)


if __name__ == "__main__":
    main()
