# -*- coding: utf-8 -*-
"""Whether a node's packet filter accepts new TCP connections, from what `nft --json list ruleset` and `iptables-save` print."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import shlex
import socket
import struct

FAMILIES = ("ip", "inet")
END = ("accept", "drop", "reject", "queue")
OF_IPTABLES = [("ip", name) for name in ("filter", "mangle", "nat", "raw", "security")]


class Unsure(Exception):
    """A rule has a part that this module does not know."""


def number(address):
    """An IPv4 address as a number; None for anything else."""
    try:
        return struct.unpack("!I", socket.inet_aton(address))[0] if address.count(".") == 3 else None
    except (AttributeError, socket.error):
        return None


def same(value, wanted):
    """Whether a value is the one of a rule: a value, a prefix, a range, a set, or a list."""
    if isinstance(wanted, list):
        return any(same(value, item) for item in wanted)
    if isinstance(wanted, dict):
        if "set" in wanted:
            return same(value, wanted["set"])
        if "elem" in wanted:
            return same(value, wanted["elem"]["val"])
        if "range" in wanted:
            low, high = [number(part) if number(part) is not None else part for part in wanted["range"]]
            own = number(value) if number(value) is not None else value
            return low <= own <= high
        if "prefix" in wanted:
            shift = 32 - wanted["prefix"]["len"]
            base = number(wanted["prefix"]["addr"])
            return base is not None and number(value) is not None and number(value) >> shift == base >> shift
        raise Unsure()
    if hasattr(wanted, "endswith") and wanted.endswith("*") and hasattr(value, "startswith"):
        return value.startswith(wanted[:-1])
    return value == wanted


def numbers(text):
    """The ports of `22`, `1024:2048` or `22,80:90` in nft's form."""
    ranges = [part.split(":") for part in text.split(",")]
    return [int(part[0]) if len(part) == 1 else {"range": [int(part[0] or 0), int(part[1] or 65535)]} for part in ranges]


def network(text):
    address, _slash, length = text.partition("/")
    return {"prefix": {"addr": address, "len": int(length or 32)}}


# Options of iptables-save: the part of the packet, and its value in nft's form.
OPTIONS = {
    "-s": (("ip", "saddr"), network),
    "-i": (("meta", "iifname"), lambda text: text[:-1] + "*" if text.endswith("+") else text),
    "-p": (("meta", "l4proto"), lambda text: text),
    "--dport": (("tcp", "dport"), numbers),
    "--dports": (("tcp", "dport"), numbers),
    "--ctstate": (("ct", "state"), lambda text: text.lower().split(",")),
    "--state": (("ct", "state"), lambda text: text.lower().split(",")),
    "--dst-type": (("fib", "type"), lambda text: text.lower()),
}


def expressions(words):
    """A rule of iptables-save in nft's form."""
    negated, parts = False, []
    while words:
        word = words.pop(0)
        if word == "!":
            negated = True
            continue
        if word in ("-j", "-g"):
            target = words.pop(0)
            if target.lower() in END + ("return",):
                parts.append({target.lower(): None})
            elif target in ("LOG", "NFLOG"):
                parts.append({"log": None})
            else:
                parts.append({"jump" if word == "-j" else "goto": {"target": target}})
            break  # options of the target follow
        if word in ("-m", "--comment", "--limit", "--limit-burst"):
            words.pop(0)
        elif word in OPTIONS:
            (kind, field), form = OPTIONS[word]
            left = {kind: {"key": field}} if kind in ("meta", "ct") else {"payload": {"protocol": kind, "field": field}}
            left = {"fib": {"result": "type", "flags": "daddr"}} if kind == "fib" else left
            parts.append({"match": {"op": "!=" if negated else "==", "left": left, "right": form(words.pop(0))}})
        else:
            parts.append({"unknown": word})
        negated = False
    return parts


def saved(printed):
    """The output of iptables-save as entries of nft's JSON."""
    entries, table = [], ""
    for line in printed.splitlines():
        if line.startswith("*"):
            table = line[1:].strip()
        elif line.startswith(":"):
            name, policy = line[1:].split()[:2]
            chain = {"family": "ip", "table": table, "name": name}
            if name == "INPUT" and table != "nat":
                chain.update(hook="input", prio=0, policy=policy.lower())
            entries.append({"chain": chain})
        elif line.startswith("-A "):
            words = shlex.split(line)
            entries.append({"rule": {"family": "ip", "table": table, "chain": words[1], "expr": expressions(words[2:])}})
    return entries


class Ruleset(object):
    """Chains, rules and named sets: `printed` by nft, and those of iptables, which nft shows incompletely."""

    def __init__(self, printed, of_iptables=None):
        entries = json.loads(printed)["nftables"] if printed else []
        if of_iptables is not None:
            items = [(entry, list(entry.values())[0]) for entry in entries]
            entries = [entry for entry, item in items if (item.get("family"), item.get("table") or item.get("name")) not in OF_IPTABLES]
            entries += saved(of_iptables)
        self.chains, self.rules, self.sets = [], {}, {}
        for entry in entries:
            for kind, item in entry.items():
                place = (item.get("family"), item.get("table"), item.get("chain" if kind == "rule" else "name"))
                if kind == "chain":
                    self.chains.append((place, item))
                elif kind == "rule":
                    self.rules.setdefault(place, []).append(item["expr"])
                elif kind in ("set", "map"):
                    self.sets[place] = item.get("elem", [])

    def blocks(self, source, interface, port):
        """Whether a new connection is dropped or rejected; None if a rule is not understood."""
        packet = {
            ("meta", "iifname"): interface, ("meta", "iif"): interface, ("meta", "l4proto"): "tcp", ("meta", "nfproto"): "ipv4",
            ("meta", "protocol"): "ip", ("meta", "pkttype"): "host", ("ct", "state"): "new", ("ip", "saddr"): source,
            ("ip", "protocol"): "tcp", ("tcp", "dport"): port, ("th", "dport"): port, ("tcp", "flags"): "syn",
        }  # fmt: skip
        unsure = False
        for place, chain in sorted(self.chains, key=lambda item: item[1].get("prio", 0)):
            if chain.get("hook") != "input" or place[0] not in FAMILIES:
                continue
            self.unsure = False
            verdict = self.walk(place, packet) or chain.get("policy", "accept")
            if verdict in ("drop", "reject") and not self.unsure:
                return True
            unsure = unsure or self.unsure
        return None if unsure else False

    def walk(self, place, packet, depth=0):
        """The verdict of a chain; None if its end is reached."""
        for expressions in self.rules.get(place, ()) if depth < 32 else ():
            try:
                verdict = self.verdict(expressions, place, packet)
            except (Unsure, KeyError, TypeError, ValueError):
                # A rule that may only count or log decides nothing.
                self.unsure = self.unsure or any(key in part for part in expressions for key in END + ("jump", "goto", "return", "vmap"))
                continue
            if verdict is None:
                continue
            kind, target = verdict
            if kind == "return":
                return None
            if kind in END:
                return kind
            ended = self.walk(place[:2] + (target,), packet, depth + 1)
            if ended or kind == "goto":
                return ended
        return None

    def verdict(self, expressions, place, packet):
        """(kind, target) of a rule that matches; None if it does not match or decides nothing."""
        for part in expressions:
            for kind, value in part.items():
                if kind == "match":
                    if not self.matches(value, place, packet):
                        return None
                elif kind == "vmap":
                    known = self.value(value["key"], packet)
                    data = self.named(value["data"], place)
                    for key, then in data["set"] if isinstance(data, dict) else data:
                        if same(known, key):
                            return self.decided(then)
                    return None
                elif kind in END + ("return", "jump", "goto"):
                    return self.decided(part)
                elif kind not in ("counter", "log", "comment", "limit"):
                    raise Unsure()
        return None

    def decided(self, part):
        ((kind, value),) = part.items()
        return kind, value["target"] if kind in ("jump", "goto") else None

    def matches(self, match, place, packet):
        left, operation = match["left"], match["op"]
        found = same(self.value(left, packet), self.named(match["right"], place))
        if operation in ("==", "in"):
            return found
        if operation == "!=":
            return not found
        raise Unsure()

    def named(self, right, place):
        """A rule's own value, or the elements of the set that it names with @."""
        if hasattr(right, "startswith") and right.startswith("@"):
            return self.sets[place[:2] + (right[1:],)]
        return right

    def value(self, left, packet):
        ((kind, what),) = left.items()
        if kind == "payload":
            key = (what["protocol"], what["field"])
            # Another protocol's port or address is not one of this packet.
            return packet[key] if key in packet else (None if key[0] in ("udp", "icmp", "icmpv6", "ip6", "sctp", "dccp") else packet[key])
        if kind == "fib":
            if what.get("result") == "type" and what.get("flags") in ("daddr", ["daddr"]):
                return "local"
            raise Unsure()
        return packet[(kind, what["key"])]
