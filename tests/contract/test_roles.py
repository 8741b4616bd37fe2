"""Every role has one skeleton and one signature, reads nothing private of another, and gets what it
declares."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from jinja2 import nodes
from provisioning_choices import choice, node

from dlperf_runner.catalog.entry import LOADER
from dlperf_runner.provision.arguments import for_node
from tools.role_readme import BEGIN, readme

PROJECT = Path(__file__).parents[2]
ROLES = {path.name: path for path in sorted(PROJECT.glob("roles/*"))}
SKELETON = (
    *("README.md", "defaults/main.yml", "meta/argument_specs.yml", "meta/main.yml"),
    "tasks/main.yml",
)
INCLUDES = [f"ansible.builtin.{kind}_role" for kind in ("include", "import")]
# Keys whose values are expressions without braces.
BARE = ("when", "that", "changed_when", "failed_when", "until")
# The words of a task that make variables, by what names them.
NAMING = ("register", "loop_var", "index_var")
PARSER = jinja2.Environment(autoescape=True)
STACKS = sorted(path.stem for path in PROJECT.glob("dlperf_runner/catalog/stacks/*.yml"))


@cache
def read(path: Path) -> Any:
    """The content of a file, which callers do not change."""
    return LOADER(path.read_text(encoding="utf-8")).get_single_data()


def documents(role: Path) -> list[Any]:
    found = [*role.glob("tasks/*.yml"), *role.glob("handlers/*.yml"), *role.glob("vars/*.yml")]
    return [read(path) for path in [*found, role / "defaults/main.yml"]]


def walk(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with the key that it stands under."""
    yield key, value
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from walk(inner, str(name))
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner, key)


def names_in(template: str) -> set[str]:
    """The variables that a template reads; hostvars are read by texts."""
    tree = PARSER.parse(template)
    found = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "load"}
    texts = {text.value for text in tree.find_all(nodes.Const) if isinstance(text.value, str)}
    attributes = {item.attr for item in tree.find_all(nodes.Getattr)}
    private = {part for text in texts for part in re.findall(r"__[a-z]\w*", text)}
    return found | private | {attribute for attribute in attributes if attribute.startswith("__")}


@cache
def variables_read(role: Path) -> set[str]:
    found: set[str] = set()
    for key, value in walk(documents(role)):
        if isinstance(value, str) and ("{{" in value or "{%" in value):
            found |= names_in(value)
        elif isinstance(value, str) and key in BARE:
            found |= names_in("{{ " + value + " }}")
    for path in role.glob("templates/*"):
        found |= names_in(path.read_text(encoding="utf-8"))
    for path in role.glob("*_plugins/*.py"):
        found |= set(re.findall(r"\b__[a-z]\w*[a-z]\b(?!__)", path.read_text(encoding="utf-8")))
    return found


@cache
def variables_made(role: Path) -> set[str]:
    """What the role registers, sets and counts with."""
    found: set[str] = set()
    for key, value in walk(documents(role)):
        if key in NAMING and isinstance(value, str):
            found.add(value)
        elif key in ("ansible.builtin.set_fact", "vars") and isinstance(value, dict):
            found |= set(value)
    return found


@cache
def arguments(role: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in read(ROLES[role] / "meta/argument_specs.yml")["argument_specs"].values():
        found |= entry.get("options") or {}
    return found


def owner(variable: str) -> str:
    """The role that a variable belongs to, by its name: the longest that fits."""
    name = variable.removeprefix("__")
    return max((role for role in ROLES if name.startswith(f"{role}_")), key=len, default="")


@pytest.mark.parametrize("role", ROLES)
def test_a_role_has_the_skeleton(role: str) -> None:
    assert [name for name in SKELETON if not (ROLES[role] / name).is_file()] == []
    told = read(ROLES[role] / "meta/main.yml")["galaxy_info"]
    main = read(ROLES[role] / "meta/argument_specs.yml")["argument_specs"]["main"]
    assert told["description"] == main["short_description"]


def defaults(role: str) -> dict[str, Any]:
    return read(ROLES[role] / "defaults/main.yml") or {}


@pytest.mark.parametrize("role", ROLES)
def test_arguments_are_required_or_have_the_value_of_the_defaults(role: str) -> None:
    """A value that is computed stands in the defaults alone."""
    options, own = arguments(role), defaults(role)
    assert set(own) <= set(options)
    without = set(options) - set(own)
    assert not {name for name in without if not options[name].get("required")}
    assert all(name.startswith(f"{role}_") for name in options)
    for name, argument in options.items():
        is_computed = "{{" in str(own.get(name))
        if name in own and not (is_computed and "default" not in argument):
            assert argument["default"] == own[name], name


def test_what_provisioning_brings_decommissioning_removes_in_reverse() -> None:
    # Each role once, of a stack that needs it.
    gpu = for_node(choice(stack="v100-cuda10.2", datasets={"faces_emore": {}}), node(), {})[
        "provision_roles"
    ]
    chosen = choice(container_engine="podman", time="chrony", slurm=True)
    cpu = for_node(chosen, node(), {})["provision_roles"]
    (play,) = read(PROJECT / "playbooks/decommission.yml")
    (removing,) = (task["vars"]["decommission_roles"] for task in play["tasks"])
    assert set(removing) == {*gpu, *cpu, "python_env", "benchmark_source"}
    for brought in (gpu, cpu):
        # An image is made of an environment, with which it goes.
        order = [role for role in removing if role in brought and role != "container"]
        assert order == [role for role in reversed(brought) if role != "container"]
    for role in removing:
        assert (ROLES[role] / "tasks/absent.yml").is_file(), role


def test_every_preflight_collects_its_problems_with_those_of_others() -> None:
    for path in sorted(PROJECT.glob("roles/*/tasks/preflight.yml")):
        for task in read(path):
            failing = {"ansible.builtin.assert", "ansible.builtin.fail"} & set(task)
            assert not failing, f"{path}: {task['name']}: use the action refuse"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_reads_only_what_it_declares_or_makes_or_another_publishes(role: str) -> None:
    own = ROLES[role] / "vars/main.yml"
    computed = set(read(own) if own.is_file() else ())
    known = set(arguments(role)) | variables_made(ROLES[role]) | computed
    for name in variables_read(ROLES[role]):
        of = owner(name)
        if name.startswith("__"):
            assert of == role, f"{name} is private"
        elif of == role:
            assert name in known
        elif of:
            assert name in variables_made(ROLES[of]), f"{name} is no result of {of}"


def test_playbooks_read_no_private_variable() -> None:
    for path in PROJECT.glob("playbooks/*.yml"):
        assert not re.findall(r"\b__[a-z]\w*", path.read_text(encoding="utf-8")), path


def inclusions() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Where a role is included by name, which, and with which variables."""
    for path in [*PROJECT.glob("playbooks/*.yml"), *PROJECT.glob("roles/*/tasks/*.yml")]:
        for _, task in walk(read(path)):
            if not isinstance(task, dict):
                continue
            given = next((task[kind] for kind in INCLUDES if kind in task), None)
            if given and "{{" not in given["name"]:
                yield str(path.relative_to(PROJECT)), given["name"], task.get("vars") or {}


def test_a_role_is_given_only_arguments_that_it_declares() -> None:
    found = list(inclusions())
    assert len(found) > 20
    for path, role, given in found:
        own = {name for name in given if not name.startswith("__")}
        assert own <= set(arguments(role)), f"{path}: {role}"


@pytest.mark.parametrize("stack", STACKS)
def test_what_provisioning_tells_a_role_is_declared_and_of_its_type(stack: str) -> None:
    frameworks = [
        framework["name"]
        for framework in map(read, PROJECT.glob("dlperf_runner/catalog/frameworks/*.yml"))
        if "requirements" in framework["environments"].get(stack, {})
        and not framework["environments"][stack].get("operator_wheels")
    ]
    chosen = choice(stack=stack, frameworks=frameworks, container_engine="podman")
    document = for_node(chosen, node(), {})
    told = [name for name in document if not name.startswith(("provision_", "dlperf_"))]
    assert {owner(name) for name in told} >= {"openmpi", "framework", "horovod", "python_env"}
    for role in {owner(name) for name in told}:
        given = {name: document[name] for name in told if owner(name) == role}
        declared = {name: arguments(role)[name] for name in given}
        result = ArgumentSpecValidator(declared).validate(given)
        assert not result.error_messages, role


def test_no_argument_carries_what_a_task_found_out() -> None:
    """What is present or proven on a node stands in its stamps, not in arguments of roles."""
    found = {name for role in ROLES for name in arguments(role)}
    assert len(found) > 100
    assert {name for name in found if name.endswith(("_present", "_proven", "_complete"))} == set()


def paths_of(role: str, is_removal: bool) -> set[str]:
    """The absolute paths that a role removes, or those that it makes."""
    own = defaults(role)
    found: set[str] = set()
    for path in ROLES[role].glob("tasks/*.yml"):
        if (path.name == "absent.yml") != is_removal:
            continue
        for _, entry in walk(read(path)):
            # What only looks at a path does not say how it shall be.
            says = isinstance(entry, dict) and {"state", "content", "mode", "unpack"} & set(entry)
            if says and (entry.get("state") == "absent") == is_removal:
                found |= {str(entry[key]) for key in ("path", "dest", "unpack") if key in entry}
    resolved = (
        re.sub(r"{{ (\w+) }}", lambda match: str(own.get(match[1], match[0])), path)
        for path in found
    )
    return {path for path in resolved if path.startswith("/")}


def test_a_role_removes_nothing_that_another_makes() -> None:
    made = {role: paths_of(role, is_removal=False) for role in ROLES}
    assert "/opt/dlperf/operator-wheels" in made["framework"]
    removed = {role: paths_of(role, is_removal=True) for role in ROLES}
    assert "/opt/dlperf/wheels" in removed["horovod"]
    # node_base removes the folder of the whole project, as the last.
    for role in set(ROLES) - {"node_base"}:
        others = {path for other in ROLES if other != role for path in made[other]}
        for path in removed[role]:
            assert not {each for each in others if f"{each}/".startswith(f"{path}/")}, role


@pytest.mark.parametrize("role", ROLES)
def test_a_readme_has_the_variables_of_the_argument_specs_and_a_text_by_hand(role: str) -> None:
    text = (ROLES[role] / "README.md").read_text()
    assert text == readme(ROLES[role]), "run make docs"
    assert len(text.partition(BEGIN)[0].split()) > 20
