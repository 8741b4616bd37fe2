"""Reads the nodes: the hosts in the inventory's group `nodes`, with their variables.

Ansible itself reads the inventory (`ansible-inventory --list`). Therefore every inventory that
works with Ansible works here, and both see the same values.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError

from ..catalog.reader import mpirun_of
from ..catalog.stack import ADOPTED
from ..catalog.suites import SUITES
from ..core.errors import UserError, lacks_nodes
from ..core.extras import require_cluster
from ..core.node import ENGINES, MPI_TRANSPORTS, Node
from ..core.paths import of_ansible
from .parameters import places

_VARIABLE = "DLPERF_EXTRA_VARS"
_BEGINNINGS = ("ansible_", "dlperf_", "node_base_")


def use_extra_variables(texts: Sequence[str]) -> None:
    """Take the values of `-e`: NAME=VALUE, an object in JSON, or @FILE.

    Raises UserError for what chooses runs, which has options of its own, and for a missing file."""
    taken = []
    for text in texts:
        where = f"-e {text.partition('=')[0]}"
        if text.startswith("@"):
            if not Path(text[1:]).is_file():
                raise UserError("file not found", where=where, expected="@ and a file's path")
            taken.append(f"@{Path(text[1:]).resolve()}")
            continue
        wrong = [name for name in _names(text, where) if not name.startswith(_BEGINNINGS)]
        if wrong:
            raise UserError(
                f"{wrong[0]} is no variable of nodes",
                where=where,
                expected=f"a name that begins with {', '.join(_BEGINNINGS)}",
                hint=f"what to run has options: dlperf run --help; look for"
                f" --{wrong[0].replace('_', '-')}",
            )
        taken.append(text)
    os.environ[_VARIABLE] = json.dumps(taken)


def _names(text: str, where: str) -> list[str]:
    if not text.startswith("{"):
        name, equals, _ = text.partition("=")
        if not equals:
            raise UserError("no value", where=where, expected="NAME=VALUE or @FILE", found=text)
        return [name]
    try:
        return list(json.loads(text))
    except ValueError as error:
        raise UserError("invalid JSON", where="-e", found=str(error)) from None


def extra_options() -> list[str]:
    """The options of ansible-playbook and ansible-inventory for them."""
    return [part for text in json.loads(os.environ.get(_VARIABLE) or "[]") for part in ("-e", text)]


GROUP = "nodes"

LAB_IS_DOWN = (
    "The lab is not running. Start it: dlperf lab up. To use your own servers, add -i INVENTORY;"
    " dlperf init makes one."
)
# The networks of RFC 5737, which the examples use.
_DOCUMENTATION = ("192.0.2.", "198.51.100.", "203.0.113.")
_REFERENCE = re.compile(r"\{\{\s*(?P<name>[A-Za-z_]\w*)\s*\}\}")


def read_inventory(
    inventories: Sequence[str] = (),
    limit: str | None = None,
    extra: Mapping[str, Any] | None = None,
    *,
    connects: bool = False,
) -> tuple[Node, ...]:
    """The nodes in inventory order.

    `inventories`: values of `-i`; none means the default in ansible.cfg. `limit`: a host pattern.
    `extra`: a playbook's extra variables, which take precedence. `connects`: the nodes are used at
    once, so one that cannot be there is refused. Raises UserError if the inventory cannot be read,
    has no nodes, or has an invalid variable.
    """
    listing = _list_inventory(inventories, limit)
    if connects and (why := refusal(_hosts(listing, GROUP), listing["_meta"]["hostvars"])):
        raise UserError(why)
    return nodes_of(listing, extra)


def refusal(names: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    """The reason why no connection to these hosts is tried: their lab is down, or the addresses are
    those of an example. Empty if there is none."""
    for name in names:
        host = hostvars[name]
        if "dlperf_lab_is_up" in host and not host["dlperf_lab_is_up"]:
            return LAB_IS_DOWN
        address = str(host["ansible_host"]) if "ansible_host" in host else name
        if address.startswith(_DOCUMENTATION):
            return (
                f"host {name}: the address is still the example's (expected that of your server,"
                f" found {address}). Edit ansible_host, and dlperf_address if there is one, of each"
                " node in hosts.yml of the inventory, and what differs in group_vars/nodes.yml."
            )
    return ""


def nodes_of(
    listing: Mapping[str, Any], extra: Mapping[str, Any] | None = None
) -> tuple[Node, ...]:
    """The nodes in the output of `ansible-inventory --list`."""
    hostvars = listing.get("_meta", {}).get("hostvars", {})
    names = list(dict.fromkeys(_hosts(listing, GROUP)))
    if not names:
        raise UserError(
            f"the inventory has no host in the group {GROUP!r}",
            expected="at least one node",
            hint="select an inventory with -i, or start the lab: dlperf lab up",
        )
    return tuple(_node(name, {**hostvars.get(name, {}), **(extra or {})}) for name in names)


def read_groups(inventories: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The hosts of each group, by its name. Raises UserError if the inventory cannot be read."""
    listing = _list_inventory(inventories, None)
    return {
        name: tuple(dict.fromkeys(_hosts(listing, name))) for name in listing if name != "_meta"
    }


def _hosts(listing: Mapping[str, Any], group: str) -> list[str]:
    entry = listing.get(group, {})
    hosts = list(entry.get("hosts", []))
    for child in entry.get("children", []):
        hosts += _hosts(listing, child)
    return hosts


def _list_inventory(inventories: Sequence[str], limit: str | None) -> dict[str, Any]:
    for inventory in inventories:
        if "," not in inventory and not Path(inventory).exists():
            raise UserError(
                "inventory not found",
                where=f"-i {inventory}",
                expected="a file or a directory, or host names separated by commas",
            )
    require_cluster()
    program = Path(sys.executable).parent / "ansible-inventory"
    argv = [str(program), "--list"]
    for inventory in inventories:
        argv += ["-i", inventory]
    if limit:
        argv += ["--limit", limit]
    argv += extra_options()
    project = of_ansible()
    if Path("ansible.cfg").exists():
        del project["ANSIBLE_CONFIG"]
    environment = {**project, **os.environ, "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "1"}
    environment["ANSIBLE_HOST_PATTERN_MISMATCH"] = "error"
    try:
        # bench.yml plans in a worker of Ansible, whose own standard input Ansible refuses.
        done = subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise UserError(
            "ansible-inventory is not installed in this Python environment",
            expected=str(program),
            hint="run `make setup`, then `. .venv/bin/activate`",
        ) from None
    if done.returncode != 0:
        if limit and (unknown := re.search(r"could not match .*: (.+)", done.stderr, re.I)):
            names = list(dict.fromkeys(_hosts(_list_inventory(inventories, None), GROUP)))
            raise lacks_nodes("the inventory", names, unknown[1].strip(), f"--limit {limit}")
        raise _unreadable(inventories, done.stderr)
    return dict(json.loads(done.stdout))


def _unreadable(inventories: Sequence[str], stderr: str) -> UserError:
    """The error of an invalid inventory: the message of the inventory plugin for the type of the
    file, and the line number from any of them."""
    origin = re.search(r"Origin: (\S+:\d+)", stderr)
    where = origin[1] if origin else " ".join(f"-i {name}" for name in inventories)
    complaints = re.findall(
        r"^(?:YAML parsing failed|Failed to parse inventory): (.+)", stderr, re.M
    )
    is_yaml = where.split(":")[0].endswith((".yml", ".yaml", ".json"))
    if complaints:
        problem = complaints[0 if is_yaml else -1]
    else:
        lines = [line for line in stderr.splitlines() if line.strip()]
        problem = lines[-1].strip() if lines else "no reason given"
    return UserError(f"Ansible cannot read the inventory: {problem}", where=where or None)


def _of_digits(value: object) -> object:
    """Group variables in INI inventories, and Jinja, give numbers as strings."""
    is_number = isinstance(value, str) and value.isascii() and value.isdigit()
    return int(str(value)) if is_number else value


def _as_text(value: object) -> object:
    return str(value) if type(value) in (int, float) else value


def _without_name(value: dict[str, Any]) -> dict[str, Any]:
    # Keys and values are validated with the stack. Its name says which stack is changed.
    if "name" in value:
        raise ValueError
    return value


# The types of variables. No text has control characters.
_Count = Annotated[int, BeforeValidator(_of_digits), Field(strict=True, ge=1)]
_Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
_OptionalText = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
_Texts = tuple[_OptionalText, ...]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
_Environment = dict[_Name, Annotated[_OptionalText, BeforeValidator(_as_text)]]
_Overrides = Annotated[dict[str, Any], AfterValidator(_without_name)]
_Adopted = Annotated[
    tuple[Annotated[str, Field(pattern=f"^({'|'.join(ADOPTED)})$")], ...],
    BeforeValidator(lambda parts: tuple(ADOPTED) if parts == "all" or "all" in parts else parts),
]
_Path = Annotated[str, Field(pattern=r"^/[^\x00-\x1f\x7f]*$")]
# Container engines separate source and target with a colon.
_Mounts = tuple[Annotated[str, Field(pattern=r"^/[^:\x00-\x1f\x7f]*$")], ...]
# A digest is validated when it is used, so that the message can name the image.
_Digests = dict[_Text, _Text]
_Engine = Annotated[str, Field(pattern=f"^({'|'.join(ENGINES)})?$")]
_Suite = Annotated[str, Field(pattern=f"^({'|'.join(SUITES)})?$")]
_Domain = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9_-]*)?$")]
_Transport = Annotated[str, Field(pattern=f"^({'|'.join(MPI_TRANSPORTS)})$")]
# A leading dash would be an option of mpirun. A comma would add a second interface.
_Interface = Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9_.:@-]*)?$")]
_Address = Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.:-]*$")]
_PLACE = r"^[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*$"
_Registry = Annotated[str, Field(pattern=_PLACE)]

_REQUIRED = ("dlperf_devices_per_node", "dlperf_accelerator", "dlperf_stack")
VARIABLES: dict[str, tuple[str, Any, str]] = {
    "dlperf_devices_per_node": ("devices_per_node", _Count, "an integer of at least 1"),
    "dlperf_accelerator": ("accelerator", _Text, "cpu, or the accelerator's name"),
    "dlperf_stack": ("stack", _Text, "the name of a stack"),
    "dlperf_suite": ("suite", _Suite, f"one of {', '.join(SUITES)}"),
    "dlperf_stack_overrides": ("stack_overrides", _Overrides, "keys of a stack, without its name"),
    "dlperf_adopt": ("adopted", _Adopted, f"all, or a list of {', '.join(ADOPTED)}"),
    "dlperf_address": ("address", _Address, "an address or a host name"),
    "dlperf_interface": ("interface", _Interface, "the name of a network interface"),
    "dlperf_frameworks": ("frameworks", _Texts, "a list of frameworks"),
    "dlperf_user": ("user", _Text, "a user name"),
    "dlperf_matrix": ("matrix", _Text, "the name of a matrix"),
    "dlperf_env": ("env", _Environment, "variable names with strings or numbers"),
    "dlperf_mpirun": ("mpirun", _Path, "an absolute path"),
    "dlperf_mpirun_args": ("mpirun_args", _Texts, "a list of arguments"),
    "dlperf_mpi_transport": ("mpi_transport", _Transport, f"one of {', '.join(MPI_TRANSPORTS)}"),
    "dlperf_nvlink_domain": ("nvlink_domain", _Domain, "letters, digits, - and _"),
    "dlperf_container_engine": ("container_engine", _Engine, f"one of {', '.join(ENGINES)}"),
    "dlperf_container_images": ("container_images", _Digests, "image names with digests"),
    "dlperf_registry": ("registry", _Registry, "a registry, like registry.example:5000/ngc"),
    "dlperf_container_data": ("container_data", _Mounts, "a list of absolute paths"),
    "dlperf_container_args": ("container_args", _Texts, "a list of options for the engine"),
}


def _node(name: str, variables: Mapping[str, Any]) -> Node:
    address = _resolved(name, "ansible_host", variables) if "ansible_host" in variables else name
    values: dict[str, Any] = {"name": name, "address": address}
    for variable in _REQUIRED:
        if variable not in variables:
            _, _, expected = VARIABLES[variable]
            similar = difflib.get_close_matches(variable, list(variables), n=1, cutoff=0.8)
            raise UserError(
                f"the variable {variable} is missing",
                where=f"host {name}",
                expected=expected,
                found=f"the variable {similar[0]}" if similar else "none",
            )
    for variable, (key, _, expected) in VARIABLES.items():
        if variable not in variables:
            continue
        try:
            values[key] = _type(variable).validate_python(_resolved(name, variable, variables))
        except ValidationError:
            raise UserError(
                "invalid value",
                where=f"host {name}: {variable}",
                expected=expected,
                found=repr(variables[variable]),
            ) from None
    if "openmpi" in values.get("adopted", ()) and "mpirun" not in values:
        raise UserError(
            "a node that keeps its OpenMPI needs the path of its mpirun",
            where=f"host {name}: dlperf_adopt",
            expected="dlperf_mpirun, an absolute path",
        )
    values.setdefault("mpirun", mpirun_of(values["stack"], values.get("stack_overrides")))
    if (given := variables.get("dlperf_datasets")) is not None:
        values["datasets"] = places(given, f"host {name}: dlperf_datasets")
    return Node(**values)


@cache
def _type(variable: str) -> TypeAdapter[Any]:
    return TypeAdapter(VARIABLES[variable][1])


def _resolved(host: str, variable: str, variables: Mapping[str, Any], depth: int = 0) -> Any:
    """The value of a variable, with plain references such as `{{ ansible_host }}` resolved:
    `ansible-inventory` prints templates. Any other expression raises a UserError."""
    value = variables[variable]
    if not isinstance(value, str) or "{{" not in value:
        return value
    match = _REFERENCE.fullmatch(value.strip())
    if match and depth < 10:
        if match["name"] == "inventory_hostname":
            return host
        if match["name"] in variables:
            return _resolved(host, match["name"], variables, depth + 1)
    raise UserError(
        "this template can only be evaluated in a playbook",
        where=f"host {host}: {variable}",
        expected="a value, or a reference to another variable of the host",
        found=repr(value),
    )
