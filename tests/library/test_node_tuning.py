"""node_tuning on made /sys and /proc, and a stand-in for nvidia-smi that keeps what it is told."""

from pathlib import Path
from typing import Any

import pytest
from fabric_standins import NVIDIA_SMI
from standins import execute, program, tree

WANTED: dict[str, Any] = {
    "cpu_governor": "performance",
    "numa_balancing": False,
    "persistence": True,
    "application_clocks": {"memory": 877, "graphics": 1530},
}
CPU = "sys/devices/system/cpu"


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder, self.root = folder, folder / "root"
        cpus = {f"{CPU}/cpu{n}/cpufreq/scaling_governor": "powersave" for n in range(2)}
        known = {
            f"{CPU}/cpu{n}/cpufreq/scaling_available_governors": "performance powersave"
            for n in range(2)
        }
        kernel = {
            "proc/sys/kernel/numa_balancing": "1",
            "proc/sys/kernel/random/boot_id": "one",
            f"{CPU}/online": "0-1",
        }
        tree(self.root, cpus | known | kernel)
        self.bin = folder / "bin"
        script = NVIDIA_SMI.replace("/srv/smi", str(self.bin))
        program(self.bin, "nvidia-smi", script)
        for gpu in range(2):
            (self.bin / f"pm.{gpu}").write_text("Disabled\n")
            (self.bin / f"ac.{gpu}").write_text("877, 1290\n")
            (self.bin / f"uuid.{gpu}").write_text(f"GPU-{gpu}\n")

    def run(self, check: bool = False, **given: Any) -> Any:
        arguments = {
            "root": str(self.root),
            "record": str(self.folder / "kept/tuning.json"),
            "state": "present",
            "timeout": 20,
            "_ansible_check_mode": check,
            **given,
        }
        path = f"{self.bin}:/usr/bin:/bin"
        return execute("node_tuning", self.folder, None, path, **arguments)

    def governors(self) -> list[str]:
        return [
            (self.root / CPU / f"cpu{n}/cpufreq/scaling_governor").read_text().strip()
            for n in range(2)
        ]

    def said(self, name: str) -> list[str]:
        return [(self.bin / f"{name}.{gpu}").read_text().strip() for gpu in range(2)]

    def numa(self) -> str:
        return (self.root / "proc/sys/kernel/numa_balancing").read_text().strip()

    def told(self) -> list[str]:
        return (self.bin / "argv").read_text().splitlines()


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_it_sets_once_and_gives_back_what_was_there(node: Node) -> None:
    assert node.run(check=True, **WANTED)["changed"]
    assert node.governors() == ["powersave"] * 2
    first = node.run(**WANTED)
    assert first["changed"]
    assert "cpu_governor/cpu0 powersave\n" in first["diff"]["before"]
    assert "cpu_governor/cpu0 performance\n" in first["diff"]["after"]
    assert (node.governors(), node.numa()) == (["performance"] * 2, "0")
    assert (node.said("pm"), node.said("ac")) == (["Enabled"] * 2, ["877, 1530"] * 2)
    second = node.run(**WANTED)
    assert (second["changed"], second["skipped"]) == (False, [])
    assert node.run(state="absent")["changed"]
    assert (node.governors(), node.numa()) == (["powersave"] * 2, "1")
    assert (node.said("pm"), node.said("ac")) == (["Disabled"] * 2, ["877, 1290"] * 2)
    assert not (node.folder / "kept").exists()
    assert not node.run(state="absent")["changed"]


def test_what_is_not_named_any_more_is_given_back(node: Node) -> None:
    node.run(**WANTED)
    less = {key: value for key, value in WANTED.items() if key != "cpu_governor"}
    assert node.run(**less)["changed"]
    assert node.governors() == ["powersave"] * 2
    assert node.numa() == "0"


def test_what_somebody_else_has_set_since_stays(node: Node) -> None:
    node.run(**WANTED)
    (node.bin / "pm.0").write_text("Disabled\n")
    (node.bin / "ac.1").write_text("877, 1380\n")
    node.run(state="absent")
    assert node.said("ac") == ["877, 1290", "877, 1380"]


def test_the_value_before_the_first_change_is_the_one_that_is_kept(node: Node) -> None:
    node.run(**WANTED)
    node.run(**{**WANTED, "application_clocks": {"memory": 877, "graphics": 1380}})
    node.run(state="absent")
    assert node.said("ac") == ["877, 1290"] * 2


def test_locked_clocks_are_locked_once_a_boot(node: Node) -> None:
    locked = {"locked_clocks": {"minimum": 1200, "maximum": 1980}}
    assert node.run(**locked)["changed"]
    assert [line for line in node.told() if "lgc" in line] == [
        "-i 0 -lgc 1200,1980",
        "-i 1 -lgc 1200,1980",
    ]
    assert not node.run(**locked)["changed"]
    (node.root / "proc/sys/kernel/random/boot_id").write_text("two\n")
    assert node.run(**locked)["changed"]
    assert node.run(state="absent")["changed"]
    assert node.told()[-2:] == ["-i 0 -rgc", "-i 1 -rgc"]


def test_what_a_node_does_not_have_is_skipped_with_the_reason(node: Node) -> None:
    for gpu in range(2):
        (node.bin / f"ac.{gpu}").write_text("[N/A], [N/A]\n")
    for n in range(2):
        (node.root / CPU / f"cpu{n}/cpufreq/scaling_governor").unlink()
    (node.root / "proc/sys/kernel/numa_balancing").unlink()
    found = node.run(**WANTED)
    text = "\n".join(found["skipped"])
    assert "cpu_governor: the kernel does not control this machine's clocks" in text
    assert "numa_balancing: this kernel does not support it" in text
    assert "application_clocks: GPU 0 does not support it" in text
    assert set(found["settings"]) == {"persistence/0", "persistence/1"}
    (node.bin / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'; exit 6\n")
    assert "persistence: nvidia-smi failed: No devices were found" in node.run(**WANTED)["skipped"]


def test_a_container_is_left_alone(node: Node) -> None:
    """The root of this test's own machine, which is one or has to say that it is none."""
    if not any(Path(path).exists() for path in ("/.dockerenv", "/run/.containerenv")):
        pytest.skip("this machine is no container")
    found = node.run(root="/", **WANTED)
    assert not found["changed"]
    assert "belong to its host: set application_clocks, cpu_governor" in found["skipped"][0]
