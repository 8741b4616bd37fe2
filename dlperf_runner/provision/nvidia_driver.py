"""Obstacles to NVIDIA's or AMD's driver on a node, with their remedies; `node` holds the facts of
the module driver_info."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

# modprobe's message -> what it means and what to do.
LOAD_FAILURES = (
    (
        "Key was rejected|Required key not available",
        "Secure Boot refuses the module: enroll the key that signs it (mokutil --import), or turn"
        " Secure Boot off",
    ),
    (
        "No such device",
        "this driver supports none of the node's GPUs: look for them with lspci and in the kernel"
        " log",
    ),
    (
        "[Ii]nvalid module format|Exec format error|[Uu]nknown symbol",
        "the module was built for another kernel: build it again (dkms autoinstall)",
    ),
    ("not found", "the running kernel has no such module: run again, which builds it"),
)


def others(node: Mapping[str, Any], version: str, names: Sequence[str]) -> str:
    """The running driver, with its packages if those of its version (`names`) would replace them,
    such as the signed modules of Ubuntu; empty without a driver."""
    running, packages = str(node["running"] or ""), node["driver_packages"]
    is_plain = running != version or not names or not packages or {*names} & {*packages}
    return running if node["is_ours"] or is_plain else f"{running} ({', '.join(packages)})"


def secure_boot_refusal(node: Mapping[str, Any], version: str, keys: Sequence[str]) -> str:
    """The reason why Secure Boot would refuse a driver's module; empty if it would not."""
    # Signed modules of the distribution are no proof that those of dkms would be loaded.
    is_signed = any(name.startswith("linux-modules-nvidia-") for name in node["driver_packages"])
    if node["is_container"] or not node["secure_boot"]:
        return ""
    if node["running"] == version and not is_signed:
        return ""
    if node["enrolled_keys"]:
        return ""
    reason = (
        "it is unknown which keys the firmware trusts, because mokutil is not installed"
        if node["enrolled_keys"] is None
        else f"the firmware trusts none of the keys that sign modules ({', '.join(keys)})"
    )
    return (
        f"Secure Boot is on (mokutil --sb-state), and {reason}: the kernel would refuse the driver."
        " Turn Secure Boot off in the firmware's setup, or enroll a key: create it"
        " (update-secureboot-policy --new-key on Ubuntu, dkms generate_mok on Debian), run"
        " mokutil --import with its path, reboot, and confirm it on the node's console. For a key"
        " at another path, set nvidia_driver_signing_keys."
    )


OPERATORS = (
    "The node's driver is in a container of NVIDIA's GPU Operator (/run/nvidia/driver): programs of"
    " the node cannot use it, and a second driver would disturb it. Leave the node to Kubernetes,"
    " or tell the operator that the node has a driver (driver.enabled=false), reboot, and run again"
)


def image_refusal(node: Mapping[str, Any]) -> str:
    """The reason why the driver of a vendor's system image, or of a container, is not replaced;
    empty if there is none. The image's other packages need exactly this driver."""
    if node.get("is_operators"):
        return OPERATORS
    if not node.get("image") or node["is_ours"]:
        return ""
    return (
        f"The node has {node['image']}, whose packages need its own driver. Keep its software:"
        " dlperf_adopt: [driver, container_runtime, infiniband]"
    )


# Where the kernels of earlier minor releases are. Red Hat's own repositories keep them.
_VAULTS = {
    "rocky": "https://dl.rockylinux.org/vault/rocky/{release}/{part}/{machine}/os/",
    "almalinux": "https://vault.almalinux.org/{release}/{part}/{machine}/os/",
}


def headers_refusal(node: Mapping[str, Any], distribution: str) -> str:
    """The reason why dkms could build nothing for the running kernel of the RHEL family, whose
    headers no repository has; empty if one has them."""
    kernel = node["kernel"]
    if node["is_container"] or node.get("offers_headers") is not False:
        return ""
    remedy = "Boot the newest kernel (dnf update kernel, then reboot)"
    # 5.14.0-427.13.1.el9_4.x86_64
    match = re.search(r"\.el(\d+)_(\d+)\.(\w+)$", kernel)
    vault = _VAULTS.get(distribution.lower())
    if match and vault:
        major, minor, machine = match.groups()
        part = "BaseOS" if major == "8" else "AppStream"
        address = vault.format(release=f"{major}.{minor}", part=part, machine=machine)
        remedy += (
            ", or install them from the vault of its release: dnf install"
            f" --repofrompath=vault,{address} kernel-devel-{kernel}"
        )
    elif match:
        remedy += ", or enable a repository that has the packages of earlier minor releases"
    return (
        f"No repository of the node has the headers of its running kernel (kernel-devel-{kernel}),"
        " without which dkms builds no module. If dnf hides them (excludepkgs in its"
        f" configuration), allow them there. {remedy}"
    )


def build_failure(
    node: Mapping[str, Any], version: str, dkms: Mapping[str, Any], module: str = "nvidia"
) -> str:
    """The reason why the running kernel has no module of a driver; empty if it has."""
    if node["module"] == version:
        return ""
    kernel, status = node["kernel"], "; ".join(node["dkms"]) or "nothing"
    output = str(dkms.get("stderr") or dkms.get("stdout") or dkms.get("msg") or "").strip()
    headers = (
        f"look into /var/lib/dkms/{module}/*/build/make.log"
        if node["has_headers"]
        else f"the headers of this kernel are missing: install linux-headers-{kernel} (on RHEL"
        f" kernel-devel-{kernel}), or boot a kernel whose headers the node's sources have"
    )
    if compiler := node.get("compiler"):
        headers += (
            f", where unknown options of the compiler mean that cc is not the kernel's {compiler}:"
            f" update-alternatives --install /usr/bin/gcc gcc /usr/bin/{compiler} 100"
        )
    return (
        f"the kernel {kernel} has no module of driver {version}, found"
        f" {node['module'] or 'none'}; {headers}. dkms status says: {status}."
        + (f" dkms said: {output[-1000:]}" if output else "")
    )


def reboot_needed(
    node: Mapping[str, Any],
    version: str,
    cause: str,
    load: Mapping[str, Any],
    module: str = "nvidia",
) -> str:
    """The reason why an installed driver does not run, and what to do; empty if it runs."""
    if node["running"] == version:
        return ""
    message = str(load.get("stderr") or "").strip()
    meaning = next((text for pattern, text in LOAD_FAILURES if re.search(pattern, message)), "")
    why = f" modprobe {module} failed: {message}." if message else ""
    if node["nouveau"]:
        why += " The module nouveau holds the GPUs."
    state = f"driver {version} is installed, but the running driver is {node['running'] or 'none'}."
    if node["rebooted_for"] == cause:
        named = "amdgpu" if module == "amdgpu" else "NVRM and nouveau"
        hint = meaning or f"look for {named} in the kernel log (journalctl -k)"
        return (
            f"{state}{why} The node was rebooted for this already, and another reboot would not"
            f" help: {hint}."
        )
    if meaning:
        return f"{state}{why} To do: {meaning}."
    return (
        f"reboot needed: {state}{why} Allow it with -e dlperf_reboot=true, or reboot the node"
        " yourself, then run again."
    )


def pins(release: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A release's pins, with those of NVLink's packages: they move with the driver wherever they
    are installed."""
    parts = (release.get(f"{part}_packages", {}) for part in ("fabric", "nvlink5", "imex"))
    exact = [*itertools.chain.from_iterable(part.items() for part in parts)]
    exact_pins = [{"packages": [name], "version": version} for name, version in exact]
    return [*release["pins"], *exact_pins]
