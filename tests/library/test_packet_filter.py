"""What a node's packet filter closes to other nodes: recorded outputs of nft and iptables-save."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import packet_filter
import pytest
from standins import FIXTURES, call, needed, program, tree

MINE = (FIXTURES / "firewall/nft.json").read_text()
UFW = (FIXTURES / "firewall/ufw-nft.json").read_text()
SAVED = (FIXTURES / "firewall/ufw-iptables-save.txt").read_text()
NODE, STRANGER = "10.11.0.3", "10.12.0.3"


@pytest.mark.parametrize(
    ("source", "interface", "port", "blocked"),
    [
        (STRANGER, "eth0", 22, False),
        (STRANGER, "eth0", 85, False),  # a range
        (STRANGER, "eth0", 91, True),
        (NODE, "ib0", 40000, False),  # a named set of networks
        (NODE, "eth0", 40000, True),
        (STRANGER, "ib0", 40000, True),
        (NODE, "ib0", 61000, True),
        (STRANGER, "lo", 61000, False),
        (NODE, "ib0", 111, True),  # a map of verdicts
        (NODE, "ib0", 112, False),
    ],
)
def test_rules_of_nft(source: str, interface: str, port: int, blocked: bool) -> None:
    assert packet_filter.Ruleset(MINE).blocks(source, interface, port) is blocked


@pytest.mark.parametrize("printed", [UFW, None])
def test_rules_of_ufw_are_read_by_iptables(printed: str | None) -> None:
    rules = packet_filter.Ruleset(printed, SAVED)
    assert rules.blocks(STRANGER, "eth0", 22) is False
    assert rules.blocks(NODE, "ib0", 40000) is False
    assert rules.blocks(NODE, "eth0", 40000) is True
    assert rules.blocks(STRANGER, "ib0", 40000) is True
    # nft prints conntrack and addrtype of iptables without what they match.
    assert packet_filter.Ruleset(UFW).blocks(NODE, "eth0", 40000) is None


@pytest.mark.parametrize(
    ("rule", "blocked"),
    [
        ("-A INPUT -j ACCEPT", False),
        ("-A INPUT ! -s 10.11.0.0/24 -j ACCEPT", True),
        ("-A INPUT -p tcp -m multiport --dports 22,1024:65535 -j ACCEPT", False),
        ("-A INPUT -m set --match-set mesh src -j ACCEPT", None),
        ('-A INPUT -i ib+ -m comment --comment "the mesh" -j ACCEPT', False),
        ("-A INPUT -p udp -j ACCEPT", True),
        ("-A INPUT -m conntrack --ctstate NEW -j REJECT --reject-with icmp-port-unreachable", True),
    ],
)
def test_rules_of_iptables(rule: str, blocked: bool | None) -> None:
    text = f"*filter\n:INPUT DROP [0:0]\n{rule}\nCOMMIT\n"
    assert packet_filter.Ruleset(None, text).blocks(NODE, "ib0", 40000) is blocked


def firewall(tmp_path: Path, *path: Path, python: str | None = None, **files: str) -> Any:
    root = tree(
        tmp_path / "root", {"proc/sys/net/ipv4/ip_local_port_range": "32768\t60999", **files}
    )
    options = {"root": str(root), "interface": "ib0", "peers": [NODE, STRANGER, "node4"]}
    return call("fabric_info", tmp_path, path, python, **options)["firewall"]


@pytest.mark.parametrize("version", ["", "2.7", "3.6"])
def test_a_node_says_which_ports_are_closed_to_which_nodes(tmp_path: Path, version: str) -> None:
    (tmp_path / "nft").write_text(MINE)
    bins = program(tmp_path / "bin", "nft", f'/bin/cat "{tmp_path}/nft"')
    program(bins, "iptables-save", "true")
    found = firewall(tmp_path, bins, python=needed(version), **{"proc/7/comm": "firewalld\n"})
    assert found == {
        "closed": {STRANGER: ["32768-60999"]},
        "unsure": False,
        "services": ["firewalld"],
    }


def test_output_that_cannot_be_read_is_not_an_open_firewall(tmp_path: Path) -> None:
    bins = program(tmp_path / "bin", "nft", "echo '{\"nftables\": [{'; exit 1")
    program(bins, "iptables-save", "exit 1")
    found = firewall(tmp_path, bins, **{"etc/ufw/ufw.conf": "ENABLED=yes\n"})
    assert found == {"closed": {}, "unsure": True, "services": ["ufw"]}


def test_damage_is_never_taken_for_a_verdict() -> None:
    entries = json.loads(MINE)
    for entry in entries["nftables"]:
        if "rule" in entry:
            entry["rule"]["expr"] = [{"match": {}}, {"accept": None}]
    assert packet_filter.Ruleset(json.dumps(entries)).blocks(NODE, "ib0", 22) is None
