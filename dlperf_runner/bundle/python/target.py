"""The interpreter that wheels are for: that of the nodes, not the one that runs pip here."""

from __future__ import annotations

from dataclasses import dataclass

# Debian's name of an architecture, and Python's.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Target:
    """An interpreter of the nodes. `glibc` decides which wheels run."""

    python: str
    glibc: str
    architecture: str

    @property
    def markers(self) -> dict[str, str]:
        """The PEP 508 marker variables of that interpreter."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": MACHINES[self.architecture],
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
            "extra": "",
        }

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags of the wheels that run there, newest first (PEP 600 and its ancestors)."""
        machine = MACHINES[self.architecture]
        minor = int(self.glibc.split(".")[1])
        oldest = 5 if machine == "x86_64" else 17
        old = ["manylinux2014"] + (["manylinux2010", "manylinux1"] if machine == "x86_64" else [])
        names = [f"manylinux_2_{version}" for version in range(minor, oldest - 1, -1)]
        return tuple(f"{name}_{machine}" for name in (*names, *old, "linux"))
