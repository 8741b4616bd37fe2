"""The facts that provisioning queries, and the arguments of its roles.

`settings` holds variables of the inventory by name (playbooks/provision.yml lists them). Those that
it leaves out are False.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from ..catalog.holes import known_holes
from ..catalog.reader import changed_stack, lookup, mpirun_of, own_stacks
from ..catalog.stack import Stack
from ..catalog.suites import RELEASES, SYSTEMS
from ..core.errors import UserError
from ..core.files import read_text
from ..core.node import ENVIRONMENTS
from ..core.paths import shipped
from . import adoption, environments, ssh_mesh
from .vendor import listed, title

# The parts of a stack that its vendors have packages of.
PARTS = {
    "driver": "the driver",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "cuda_libraries": "CUDA's libraries",
    "nccl": "NCCL",
    "container_runtime": "the container engine",
}


def stack_document(name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A stack with the inventory's `dlperf_stack_overrides`, with the keys that are set. Raises
    UserError for an unknown stack, key or value."""
    return as_document(stack_of(name, overrides))


def as_document(stack: Stack) -> dict[str, Any]:
    """The stack in the form that roles take: the keys that are set."""
    return stack.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def stack_of(name: str, overrides: Mapping[str, Any] | None) -> Stack:
    """The entry of the catalogue, with the inventory's changes."""
    stack = lookup("stack", name, own_stacks(), "dlperf_stack")
    return changed_stack(stack, overrides, "dlperf_stack_overrides") if overrides else stack


def stack_mpirun(name: str, overrides: Mapping[str, Any] | None = None) -> str:
    """The path of a stack's mpirun. Raises UserError as `document` does."""
    return mpirun_of(stack_of(name, overrides).name, overrides)


def stack_rails(
    name: str, overrides: Mapping[str, Any] | None, variables: Mapping[str, Any]
) -> str:
    """The network devices that NCCL uses, in the syntax of NCCL_IB_HCA; empty if unnamed.
    `variables` are those of dlperf_env, which override the stack."""
    fabric = stack_of(name, overrides).infiniband
    return str(variables.get("NCCL_IB_HCA", (fabric and fabric.rails) or ""))


# Systems that are newer than the release tables, and what is known of them (November 2026).
NEWER = {
    "ubuntu26.04": "NVIDIA's repository for it begins with driver 595 and has no CUDA 13.0",
    "debian13": "NVIDIA's repository for it begins with driver 590 and CUDA 13.1",
    "rhel10": "which versions NVIDIA's repository for it has is not known here",
}


def system_refusal(stack: Mapping[str, Any], system: str, node: str) -> str:
    """Everything of the stack that a node cannot have because of its system (as release tables name
    it), or of its processor; empty if nothing."""
    name, _, processor = system.partition(" ")
    # The release tables have packages for Arm of Debian and Ubuntu only.
    fits = not processor or (processor in stack.get("processors", ()) and "rhel" not in name)
    missing = _vendors_parts(stack)
    # The role rocm refuses by itself.
    if not missing or "rocm" in stack or (fits and name not in NEWER):
        return ""
    remedy = (
        "install them yourself and keep them (dlperf_adopt: [driver, container_runtime]), with"
        " dlperf_stack_overrides that leave out the others, or use an image of the frameworks."
    )
    lacks = f"Missing for stack {stack['name']}: {', '.join(missing)}"
    if name in NEWER:
        systems = [SYSTEMS.get(suite, suite) for suite in stack.get("suites", ())]
        systems_of_stack = listed([title(each) for each in [*systems, *stack.get("systems", ())]])
        return (
            f"{node} has {title(name)}, for which no versions are known here: {NEWER[name]}."
            f" {lacks}. Use {systems_of_stack}; or {remedy}"
        )
    others = [each.name for each in own_stacks().values() if processor in each.processors]
    return (
        f"{node} is {title(name)} on {processor}, and the release tables have that system's"
        f" packages of this stack for x86_64 only. {lacks}."
        f" For {processor}, use the stack {listed(others)} (dlperf_stack) on Ubuntu; or {remedy}"
    )


def _vendors_parts(stack: Mapping[str, Any]) -> list[str]:
    parts = [
        f"{name} {stack[part].get('version') or ''}".strip()
        for part, name in PARTS.items()
        if part in stack and stack[part].get("method") != "adopted"
    ]
    if (runtime := stack.get("container_runtime")) and "toolkit" in runtime:
        parts.append(f"NVIDIA's container toolkit {runtime['toolkit']}")
    return parts


def default_engine(release: str) -> str:
    """The container engine of a node whose inventory and stack name none."""
    return RELEASES.engine(release)


def engine_refusal(engine: str, release: str, installed: str | None) -> str:
    """The reason why a node cannot give containers of the engine its GPUs; empty if it can.
    `installed` is the version of its podman."""
    version = installed or RELEASES.podman(release)
    if engine != "podman" or RELEASES.has_cdi(version):
        return ""
    return (
        f"podman gives containers the GPUs by CDI, which it knows from"
        f" {RELEASES.podman_with_cdi} on; this node's is {version or 'none'}."
        " Set dlperf_container_engine to docker, or install a newer podman on the nodes"
    )


def release_refusal(stated: str, release: str) -> str:
    """The reason why dlperf_suite, which the plan believes, is wrong; empty if it is not."""
    if not stated or stated == release:
        return ""
    actual = release or "of an unknown release"
    return f"dlperf_suite is {stated}, but the node is {actual}. Correct it"


def user_refusal(user: Mapping[str, Any], name: str) -> str:
    """The reason why a user that the node has cannot run benchmarks; empty if it can. Its home may
    only not be mounted, and no tool of the node changes a user of a directory service (LDAP)."""
    another = "or set node_base_user to another user"
    if not user.get("has_home", True):
        return (
            f"the user {name} has no home here ({user['home']} does not exist). Mount it, or make"
            f" it (mkhomedir_helper {name}, or one login if PAM makes homes), {another}"
        )
    if user.get("is_local", True) or user["shell"] in SHELLS:
        return ""
    return (
        f"the user {name} is not in /etc/passwd, but in a directory service (getent passwd {name}),"
        f" and has the shell {user['shell']}. Give it /bin/bash in the directory service, {another}"
    )


# Roles with a variable that says whether they have nothing to do on the node.
JUDGES = {"node_base", "ssh_mesh", "openmpi", "framework", "horovod"}
UV, PYTHON = "/opt/dlperf/uv", "/opt/dlperf/python"
SHELLS = ("/bin/bash", "/usr/bin/bash")
YES = ("true", "yes", "on", "1", "y", "t")


def setting(
    groups: Mapping[str, Sequence[str]], hostvars: Mapping[str, Any], name: str, default: object
) -> object:
    """A variable of the first node, for keywords of a play, which are the same for all nodes."""
    first = next(iter(groups.get("nodes", ())), "localhost")
    value = hostvars[first].get(name) if first in hostvars else None
    return default if value in (None, "") else value


def refusal(settings: Mapping[str, Any]) -> str:
    """The reason why the catalogue lacks what the inventory names; empty if it has it."""
    for name in ("dlperf_stack", "dlperf_frameworks"):
        if settings[name] is False:
            return f"the inventory must set {name} for all nodes"
    try:
        choice(settings)
    except UserError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class StackChoice:
    """The inventory's choices, with what the catalogue has of them.

    `stack` and `environments` are in the form that roles take. `engine` is the container engine
    that the inventory names, `runtime` the container runtime of the node's release. `interpreter`
    is the operator's own Python, `python` the version that nodes build if there is none.
    """

    stack: dict[str, Any]
    environments: list[dict[str, Any]]
    images: list[str]
    engine: str
    runtime: dict[str, Any]
    interpreter: str
    python: str
    mpirun: str
    mirror: str
    has_mesh: bool
    user: str
    limits: dict[str, Any]
    datasets: dict[str, Any]
    shared: str
    time: str
    slurm: bool

    @property
    def has_gpus(self) -> bool:
        return bool(self.stack["accelerator"] == "gpu")

    @property
    def has_containers(self) -> bool:
        """A GPU stack pins and installs its own container engine."""
        return bool(self.engine) and not self.has_gpus

    @property
    def has_downloads(self) -> bool:
        """True if the node may read something by HTTPS: all but a mirror without TLS alone."""
        is_plain = self.mirror.startswith(("http://", "file://", "/"))
        return bool(not is_plain or self.has_gpus or self.engine or self.images or self.datasets)

    @property
    def own_interpreter(self) -> str:
        """The interpreter of the nodes' environments, unless the operator names another one."""
        return f"{PYTHON}/bin/python3" if self.python else "/usr/bin/python3"

    @property
    def openmpi(self) -> dict[str, Any]:
        return {"method": "package", "version": "", **self.stack.get("openmpi", {})}

    @property
    def packages(self) -> list[str]:
        """The packages of the distribution that the roles of the node need."""
        has = {"ssh_mesh": self.has_mesh, "container": self.has_containers}
        # The roles slurm and python_env install these themselves, on the nodes that need them.
        has |= {"time_service": bool(self.time), "slurm": self.slurm}
        has |= {"slurm_accounting": False, "uv": False, "https": self.has_downloads}
        of_roles = [
            names for role, names in self.stack["apt_packages"].items() if has.get(role, True)
        ]
        of_environments = [item["apt_packages"] for item in self.environments]
        return list(dict.fromkeys(itertools.chain(*of_roles, *of_environments)))


def choice(
    settings: Mapping[str, Any], release: str = "", software: Mapping[str, Any] | None = None
) -> StackChoice:
    """The choices of the settings on a node. `release`: the node's, such as noble. `software`: from
    software_info, if the node keeps some of it. Raises UserError if the catalogue lacks
    something."""
    name, frameworks = settings["dlperf_stack"], settings["dlperf_frameworks"]
    overrides = settings["dlperf_stack_overrides"] or {}
    images = settings["dlperf_container_images"] or {}
    wheels = settings["dlperf_operator_wheels"] or {}
    entry, engine = stack_of(name, overrides), settings["dlperf_container_engine"] or ""
    stack = adoption.adopted_stack(as_document(entry), settings["dlperf_adopt"] or [], software)
    runtime = as_document(RELEASES.on(release, entry, engine)).get("container_runtime")
    interpreter = settings["python_env_interpreter"] or ""
    stacks_python = stack.get("python", {}).get("version", "")
    return StackChoice(
        stack=stack,
        environments=[
            {**item, "device": _device(item, stack["accelerator"])}
            for item in environments.installed(frameworks, name, wheels, images=images)
        ],
        images=environments.images(frameworks, name, images),
        engine=engine,
        runtime=runtime or {"engine": engine or RELEASES.engine(release)},
        interpreter=interpreter,
        python="" if interpreter else settings["python_version"] or stacks_python,
        mpirun=settings["dlperf_mpirun"] or stack_mpirun(name, overrides),
        mirror=settings["dlperf_mirror"] or "",
        # A single node needs neither a mesh nor sshd.
        has_mesh=int(settings["provision_nodes"]) > 1,
        user=settings["node_base_user"],
        limits=settings["node_base_limits"],
        datasets=settings["dlperf_datasets"] or {},
        shared=settings["dlperf_shared_dir"] or "",
        time=settings["dlperf_time"] or "",
        slurm=str(settings["dlperf_slurm"]).lower() in YES,
    )


def query(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the module node_facts, which provisioning runs before any change."""
    chosen = choice(settings)
    return {
        "interpreter": chosen.interpreter or chosen.own_interpreter,
        "packages": [name.partition("=")[0] for name in chosen.packages],
        "user": chosen.user,
        "limits": chosen.limits,
        "environments": [UV, *(item["path"] for item in chosen.environments)],
        "builds": [PYTHON],
        "links": [ENVIRONMENTS],
    }


def of_all(
    names: Sequence[str], hostvars: Mapping[str, Any], reached: Sequence[str]
) -> dict[str, Any]:
    """The variables that are the same on all nodes. If each node computed them, the cost would grow
    with the square of the cluster's size."""
    hosts = ssh_mesh.hosts(names, hostvars)
    stamps = [hostvars[name]["ansible_facts"]["dlperf_node"]["stamps"] for name in reached]
    return {
        "node_base_hosts": hosts,
        "slurm_addresses": {name: name for name in names} | hosts,
        "imex_domains": ssh_mesh.nvlink_domains({name: name for name in names} | hosts, hostvars),
        "ssh_mesh_addresses": ssh_mesh.addresses(names, hostvars),
        "provision_mesh": ssh_mesh.agreed(stamps),
    }


def arguments(
    settings: Mapping[str, Any],
    facts: Mapping[str, Any],
    mesh: Mapping[str, Any],
    software: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The variables that provisioning sets on a node, from its facts: those of `for_node`, and

    - `provision_judges`: the variables by which roles say that they have nothing to do;
    - `provision_problems`, `provision_notes`: why the node cannot keep its software or is of a
      wrong release, and what its software means for the workloads, with published holes;
    - `dlperf_vendor_mirror`: the mirror of vendors' files, which `bundle` puts into the mirror.
    """
    release = facts.get("distribution_release") or ""
    adopted = adoption.chosen(settings["dlperf_adopt"] or [])
    chosen = choice(settings, release, software)
    result = for_node(chosen, facts["dlperf_node"], mesh)
    wrong = release_refusal(settings["dlperf_suite"] or "", release)
    nameless = ssh_mesh.unresolved_refusal(facts["dlperf_node"].get("unresolved") or ())
    locked_out = ssh_mesh.sshd_refusal(facts["dlperf_node"].get("sshd") or (), chosen.user)
    unfit = user_refusal(facts["dlperf_node"]["user"], chosen.user)
    drained = facts["dlperf_node"].get("work", {}).get("drained", "")
    problems: list[str] = []
    meanings: dict[str, list[str]] = {"problems": [], "notes": []}
    if adopted:
        overrides = settings["dlperf_stack_overrides"] or {}
        stack = stack_document(settings["dlperf_stack"], overrides)
        meanings = adoption.meanings(adopted, software or {}, stack)
        problems = adoption.problems(
            adopted,
            software or {},
            settings["dlperf_mpirun"] or "",
            chosen.engine,
            settings["dlperf_container_images"] or {},
        )
    vendors = settings["dlperf_vendor_mirror"]
    if vendors is False:
        vendors = f"{chosen.mirror}/vendor" if chosen.mirror else ""
    # What others on the node see stays as it is; the nodes' names are then the site's to resolve.
    if "hosts" in adopted:
        result["node_base_hosts"] = {}
    if "known_hosts" in adopted:
        result["ssh_mesh_known_hosts"] = f"~{chosen.user}/.ssh/known_hosts"
    return {
        **result,
        "provision_judges": judges(
            result["provision_roles"], adopted, wrong or nameless or locked_out or unfit or drained
        ),
        "provision_problems": [
            *problems,
            *meanings["problems"],
            *filter(None, (wrong, nameless, locked_out, unfit)),
        ],
        "provision_notes": [
            *meanings["notes"],
            *_holes(chosen),
            *_overwritten(facts["dlperf_node"].get("cloud_hosts"), adopted),
        ],
        "dlperf_vendor_mirror": vendors,
    }


def _holes(chosen: StackChoice) -> list[str]:
    """Notes on releases that the inventory asks for although they have published holes."""
    driver = chosen.stack.get("driver", {})
    runtime = chosen.runtime if "container_runtime" in chosen.stack else {}
    wanted = {
        "driver": ("driver", "version", {} if driver.get("method") == "adopted" else driver),
        "docker": ("container_runtime", "version", runtime),
        "toolkit": ("container_runtime", "toolkit", runtime),
    }
    holes = known_holes({name: part.get(key) for name, (_, key, part) in wanted.items()})
    return [
        f"the inventory asks for {name} {version}, which {hole}. For another one:"
        f" dlperf_stack_overrides: {{{wanted[name][0]}: {{{wanted[name][1]}: ...}}}}"
        for name, version, hole in (each.split(" ", 2) for each in holes)
    ]


def _overwritten(place: str | None, adopted: Sequence[str]) -> list[str]:
    """The note on a node whose /etc/hosts does not last; `place`: what says so."""
    if not place or "hosts" in adopted:
        return []
    # cloud-init makes the instance's files anew, too.
    where = "in the instance's user data" if "/instance/" in place else "there"
    return [
        f"cloud-init writes /etc/hosts anew at each boot ({place}), without the nodes' names: set"
        f" manage_etc_hosts: false {where}, or resolve them otherwise (dlperf_adopt: [hosts])"
    ]


def for_node(
    chosen: StackChoice, node: Mapping[str, Any], mesh: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of roles. Unless all nodes have verified the same `mesh`, the node's own record
    of it does not count.

    `dlperf_node` holds the facts of the module node_facts, but for environments only the paths of
    those that match their pins (`complete`). `provision_roles` and `provision_preflights` list the
    roles to run and to check.
    """
    apt = chosen.stack["apt_packages"]
    uv = {"path": UV, "requirements": f"{shipped()}/requirements/uv.txt"}
    lasting = _lasting_environments(chosen, node)
    # If the interpreter is missing, the stack's own will be installed.
    version = node["python_version"] or chosen.python or None
    return {
        **_roles(chosen, node),
        **_of_stack(chosen),
        **_of_environments(chosen),
        "dlperf_node": {
            **{key: value for key, value in node.items() if key != "environments"},
            "python_version": version,
            "complete": complete([uv, *chosen.environments], lasting, version or ""),
            "stamps": {k: v for k, v in node["stamps"].items() if mesh or k != "ssh_mesh"},
        },
        "node_base_packages": chosen.packages,
        "ssh_mesh_packages": apt["ssh_mesh"],
        "python_version": chosen.python,
        "python_env_packages": [*apt["python_env"], *apt.get("uv", ())],
        "python_env_own_interpreter": chosen.own_interpreter,
    }


def _lasting_environments(chosen: StackChoice, node: Mapping[str, Any]) -> dict[str, Any]:
    """The node's environments, without those that a change of the inventory takes away."""
    # Environments made with a Python that will be removed are lost.
    if node["builds"] and not chosen.python:
        return {}
    link = chosen.shared and f"{chosen.shared}/envs"
    if node["links"].get(ENVIRONMENTS, "") == link:
        return dict(node["environments"])
    # The inventory means others.
    return {k: v for k, v in node["environments"].items() if not k.startswith(ENVIRONMENTS)}


def _roles(chosen: StackChoice, node: Mapping[str, Any]) -> dict[str, list[str]]:
    # Whether the node needs the role, and whether the role can refuse the node.
    roles = {
        "node_base": (True, chosen.mirror),
        "time_service": (chosen.time, chosen.time),
        "gpu_node": (chosen.has_gpus, chosen.has_gpus),
        "ssh_mesh": (chosen.has_mesh, False),
        "openmpi": (True, chosen.openmpi["method"] == "source"),
        "python": (chosen.python or node["builds"], chosen.python),
        "python_env": (False, True),  # where framework or horovod needs uv
        "framework": (True, chosen.shared),
        "horovod": (True, False),
        "container": (chosen.has_containers or chosen.images, False),
        "dataset": (chosen.datasets, chosen.datasets),
        "slurm": (chosen.slurm, chosen.slurm),
    }
    return {
        "provision_roles": [role for role, (is_needed, _) in roles.items() if is_needed],
        "provision_preflights": [role for role, (_, refuses) in roles.items() if refuses],
    }


def _of_stack(chosen: StackChoice) -> dict[str, Any]:
    stack, runtime = dict(chosen.stack), chosen.runtime
    if not any(item["libraries"] for item in chosen.environments):
        stack.pop("cuda_libraries", None)
    if "container_runtime" in stack:
        stack["container_runtime"] = runtime
    toolkit = re.match(r"\d+\.\d+", stack["cuda"]["version"]) if "cuda" in stack else None
    return {
        "gpu_node_stack": stack if chosen.has_gpus else {},
        "openmpi_method": chosen.openmpi["method"],
        "openmpi_version": chosen.openmpi["version"],
        "openmpi_cuda": f"/usr/local/cuda-{toolkit.group()}" if toolkit else "",
        "openmpi_mpirun": chosen.mpirun,
        "openmpi_packages": stack["apt_packages"]["openmpi"],
        "container_engine": runtime["engine"],
        "slurm_mpirun": chosen.mpirun,
        "slurm_stack": chosen.stack,
    }


def _of_environments(chosen: StackChoice) -> dict[str, Any]:
    items = chosen.environments
    tensor = ("name", "path", "import_name", "tensor", "eager")
    keys = (*tensor, "device", "requirements", "operator_wheels", "libraries", "variables")
    of_horovod = ("name", "path", "distribution", "tensor", "eager", "device", "requirements")
    with_horovod = only(items, *of_horovod, "horovod", "variables")
    arguments_of = {item["name"]: {"horovod": item} for item in with_horovod}
    for_framework = [
        item | arguments_of.get(item["name"], {}) for item in only(items, *keys, "apt_packages")
    ]
    contained = only(items, *tensor, "horovod")
    contained += only([item for item in items if "horovod" not in item], *tensor)
    return {
        "python_env_environments": only(items, "name", "requires_python"),
        "framework_environments": for_framework,
        "framework_interpreter": chosen.interpreter or chosen.own_interpreter,
        "horovod_environments": with_horovod,
        "horovod_interpreter": chosen.interpreter or chosen.own_interpreter,
        "horovod_mpirun": chosen.mpirun,
        "container_packages": chosen.stack["apt_packages"].get("container", ["podman"]),
        "container_environments": contained if chosen.has_containers else [],
        "container_images": chosen.images,
        "container_mpirun": chosen.mpirun,
    }


def judges(roles: Sequence[str], adopted: Sequence[str], obstacle: str = "") -> list[str]:
    """The variables that must all be true for a node to lack nothing, one of each role that it
    needs. None if provisioning must look further: a role has no such variable, the node keeps
    software of its own, its release is a wrong one, or an earlier run left it drained in Slurm."""
    if adopted or obstacle or not JUDGES.issuperset(roles):
        return []
    return [f"{role}_stands" for role in roles]


def _device(environment: Mapping[str, Any], accelerator: str) -> str:
    """The device that an environment computes on. NumPy stands for a framework without tensors."""
    is_numpy = environment["tensor"].startswith("numpy.")
    return "gpu" if accelerator == "gpu" and not is_numpy else ""


def only(items: Sequence[Mapping[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """The items reduced to these keys; items that lack a key are left out."""
    return [{key: item[key] for key in keys} for item in items if all(key in item for key in keys)]


def as_pinned(requirements: str, environment: Mapping[str, Any] | None, python: str) -> bool:
    """True if an environment (from node_facts) matches the pinned requirements. `python` is the
    version of the interpreter to make it with."""
    minor = ".".join(python.split(".")[:2])
    if not environment or ".".join(environment["python"].split(".")[:2]) != minor:
        return False
    have = environment["distributions"]
    for line in requirements.replace("\\\n", " ").splitlines():
        text = line.split(" #")[0].split(" --hash")[0].strip()
        if not text or text.startswith(("#", "-")):
            continue
        pin = Requirement(text)
        if pin.marker and not pin.marker.evaluate(
            {"python_version": minor, "python_full_version": python}
        ):
            continue
        installed = have.get(re.sub(r"[-_.]+", "-", pin.name).lower())
        if not installed or installed["version"] not in pin.specifier or pin.url:
            return False
    return True


def complete(
    items: Sequence[Mapping[str, Any]], existing: Mapping[str, Any], python: str
) -> list[str]:
    """Paths of the environments that match their requirements files and Python version. `existing`:
    those of the node by path, from node_facts."""
    return [
        item["path"]
        for item in items
        if as_pinned(
            read_text(Path(item["requirements"]))
            + "".join(
                f"{wheel['distribution']}=={wheel['version']}\n"
                for wheel in item.get("operator_wheels", [])
            ),
            existing.get(item["path"]),
            python,
        )
    ]
