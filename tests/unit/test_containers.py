"""Launches inside containers, as whole command lines: what runs bare, with an engine around it."""

import shlex
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from plan_examples import gpu_nodes, lab_nodes
from refusals import refusal
from standins import program

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.case import Command, Run
from dlperf_runner.core.node import Node
from dlperf_runner.launchers import Program
from dlperf_runner.plan.choice import Choice
from dlperf_runner.plan.containers import Image, enclose, launch
from dlperf_runner.plan.make import make_plan

NGC = "nvcr.io/nvidia/tensorflow:20.12-tf1-py3"
DIGEST, OTHER = "sha256:" + "5f" * 32, "sha256:" + "60" * 32
SOURCE = "/opt/dlperf/src/tensorflow-resnet50v1.5-builtin"


def v100_nodes(count: int = 4, **changes: Any) -> tuple[Node, ...]:
    """The cluster of the published tests, whose inventory gives the image's digest."""
    usual = {"frameworks": ("tensorflow",), "container_images": {NGC: DIGEST}}
    return gpu_nodes(count, **usual | changes)


def planned(inventory: tuple[Node, ...], **choice: object) -> list[Command]:
    chosen = Choice(framework=("tensorflow",), **choice)  # type: ignore[arg-type]
    return [run.commands[0] for run in make_plan(chosen, load_catalog(), inventory)]


# ---- the NGC image, docker


ON_FOUR_NODES = "dlperf-tensorflow-resnet50v1.5-builtin-docker_{precision}_b256_4n8g-r1"


def docker_options(name: str) -> tuple[str, ...]:
    """What the containers of all nodes are started with."""
    return (
        *("--rm", "--name", name, "--pull", "never", "--log-driver", "none"),
        *("--network", "host", "--uts", "host", "--ipc", "host", "--gpus", "all"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--ulimit", "nofile=65536:1048576"),
        *("--device", "/dev/infiniband", "--cap-add", "IPC_LOCK"),
        *("--volume", f"{SOURCE}:{SOURCE}:ro"),
        *("--volume", "/opt/dlperf/data:/opt/dlperf/data:ro"),
        *("--volume", "/datasets:/datasets:ro", "--workdir", SOURCE, "--env", "HOME=/tmp"),
        *("--volume", "/opt/dlperf/container:/opt/dlperf/container:ro"),
    )


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_the_published_case_on_four_nodes_in_nvidias_image(precision: str) -> None:
    nodes = v100_nodes(container_data=("/datasets",), container_args=("--shm-size=1g",))
    (command,) = planned(nodes, precision=(precision,), nodes=(4,))
    name = ON_FOUR_NODES.format(precision=precision)
    image = f"nvcr.io/nvidia/tensorflow@{DIGEST}"
    user = (
        'exec docker run --user "$(id -u):$(id -g)" --volume /etc/passwd:/etc/passwd:ro'
        " --volume /etc/group:/etc/group:ro"
    )
    assert command.argv == (
        *("/bin/sh", "-c", user + ' --volume "$HOME/.ssh:$HOME/.ssh:ro" "$@"', "docker"),
        *docker_options(name),
        *("--volume", "/etc/ssh/ssh_known_hosts:/etc/ssh/ssh_known_hosts:ro"),
        *("--env", "OMP_NUM_THREADS", "--env", "NCCL_DEBUG", "--env", "NCCL_DEBUG_SUBSYS"),
        *("--env", "NCCL_SOCKET_IFNAME", "--env", "DLPERF_REMOTE_CONTAINER"),
        *("--env", "DLPERF_REMOTE_USER", "--shm-size=1g", image),
        *("mpirun", "--host", "node1:8,node2:8,node3:8,node4:8", "-np", "32"),
        *("--bind-to", "none", "--map-by", "slot"),
        *("--mca", "btl_tcp_if_include", "ib0", "--mca", "oob_tcp_if_include", "ib0"),
        *("--mca", "pml", "ob1", "--mca", "btl", "^openib", "--wdir", SOURCE),
        *("-x", "OMP_NUM_THREADS", "-x", "NCCL_DEBUG", "-x", "NCCL_DEBUG_SUBSYS"),
        *("-x", "NCCL_SOCKET_IFNAME"),
        *("--mca", "plm_rsh_agent", "/opt/dlperf/container/remote_shell"),
        *("--mca", "plm_rsh_no_tree_spawn", "1", "--leave-session-attached"),
        *("python", "-u", "tensorflow_resnet50.py", "--batch-size", "256"),
        *("--precision", precision, "--iterations", "500", "--warmup-steps", "200"),
        *("--display-every", "10", "--image-size", "224", "--classes", "1001"),
        *("--xla", "--inter-op-threads", "4"),
    )
    assert command.cwd == SOURCE
    assert command.cleanup == ("docker", "rm", "--force", name)
    container = command.env["DLPERF_REMOTE_CONTAINER"]
    between_nodes = {"NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_SOCKET_IFNAME": "ib0"}
    remote = {"DLPERF_REMOTE_USER": "dlperf", "DLPERF_REMOTE_CONTAINER": container}
    usual = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "INFO"}
    assert command.env == {**usual, **between_nodes, **remote}
    # What the other nodes' shells are given: the same container, without the user's key.
    assert tuple(shlex.split(container)) == (
        *("/bin/sh", "-c", user + ' "$@"', "docker"),
        *(*docker_options(name), "--shm-size=1g", image),
    )


def test_one_node_needs_no_way_to_others() -> None:
    command = planned(v100_nodes(), precision=("fp32",), nodes=(1,), gpus_per_node=(8,))[0]
    assert not {"plm_rsh_agent", "--leave-session-attached"} & set(command.argv)
    assert "ssh" not in " ".join(command.argv)
    assert command.env == {"OMP_NUM_THREADS": "1"}


def test_podman_gives_the_gpus_by_its_own_name_and_raises_no_limit() -> None:
    nodes = v100_nodes(container_engine="podman")
    argv = planned(nodes, precision=("fp32",), nodes=(1,), gpus_per_node=(1,))[0].argv
    gpus = argv.index("nvidia.com/gpu=all")
    assert argv[gpus - 1 : gpus + 3] == ("--device", "nvidia.com/gpu=all", "--ulimit", "host")
    assert "--gpus" not in argv


def test_a_locally_built_image_runs_by_its_id() -> None:
    """`docker build . -t nvidia_rn50_tf`, as the report has it, gives an image without a digest."""
    nodes = v100_nodes(container_images={NGC: f"id:{DIGEST}"})
    run = make_plan(Choice(framework=("tensorflow",)), load_catalog(), nodes)[0]
    assert run.container == f"docker {DIGEST}"
    assert DIGEST in run.commands[0].argv
    assert not [part for part in run.commands[0].argv if "tensorflow@" in part or "id:" in part]


@pytest.mark.parametrize(
    ("images", "engine", "said"),
    [
        ({}, "docker", ("host node1: dlperf_container_images", "a tag alone", f"{NGC}: sha256:")),
        ({NGC: "20.12-tf1-py3"}, "docker", ("invalid digest", "64 hexadecimal", "'20.12-tf1-py3'")),
        ({NGC: DIGEST[:-1]}, "docker", ("invalid digest",)),
        ({NGC.split(":")[0]: DIGEST}, "docker", ("found nvcr.io/nvidia/tensorflow)",)),
        # A digest of another tag does not mean to run without the image.
        ({NGC.replace("12", "11"): DIGEST}, "", ("found nvcr.io/nvidia/tensorflow:20.11-tf1-py3",)),
    ],
)
def test_an_image_needs_a_digest(
    images: dict[str, str], engine: str, said: tuple[str, ...]
) -> None:
    chosen = {"container": engine} if engine else {}
    told = refusal(planned, v100_nodes(container_images=images), **chosen)
    assert all(text in told for text in said)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({NGC: DIGEST}, {NGC: OTHER}, "node2: dlperf_container_images: the nodes of one run"),
        ({NGC: f"id:{DIGEST}"}, {NGC: f"id:{OTHER}"}, "`docker load`. IDs of Docker 29"),
        ("", "other:5000", "dlperf_registry: the nodes of one run"),
    ],
)
def test_nodes_with_different_images_are_refused(first: Any, second: Any, said: str) -> None:
    name = "registry" if first == "" else "container_images"
    nodes = (*v100_nodes(1, **{name: first}), *v100_nodes(2, **{name: second})[1:])
    assert said in refusal(planned, nodes, nodes=(2,), gpus_per_node=(8,))


def test_without_a_digest_the_nodes_own_environment_runs_with_its_libraries() -> None:
    """On bare nodes: no engine, and CUDA 10.0 where TensorFlow looks for it."""
    (command,) = planned(v100_nodes(container_images={}), precision=("fp32",), nodes=(4,))
    assert command.argv[0] == "/usr/bin/mpirun"
    assert "/opt/dlperf/envs/tensorflow/bin/python" in command.argv
    cuda = "/opt/dlperf/cuda-10.0"
    xla = f"--xla_gpu_cuda_data_dir={cuda}/usr/local/cuda-10.0"
    variables = {"LD_LIBRARY_PATH": f"{cuda}/lib", "XLA_FLAGS": xla}
    assert variables.items() <= command.env.items()
    assert variables.keys() <= {b for a, b in pairwise(command.argv) if a == "-x"}
    (inside,) = planned(v100_nodes(), precision=("fp32",), nodes=(4,))
    assert not variables.keys() & inside.env.keys()


@pytest.mark.parametrize("registry", ["registry.example:5000", "harbor.example/mirror/ngc"])
def test_the_image_of_a_sites_own_registry(registry: str) -> None:
    nodes = v100_nodes(registry=registry)
    run = make_plan(Choice(framework=("tensorflow",)), load_catalog(), nodes)[0]
    assert run.container == f"docker {registry}/nvidia/tensorflow@{DIGEST}"


def on_two_nodes(workload: str, stack: str, framework: str, image: str) -> Run:
    """A run on two nodes of today, whose inventory gives the image's digest."""
    of_today = {"stack": stack, "suite": "noble", "frameworks": (framework,)}
    nodes = v100_nodes(2, container_images={image: DIGEST}, **of_today)
    chosen = Choice(workload=(workload,), nodes=(2,), gpus_per_node=(8,))
    return make_plan(chosen, load_catalog(), nodes)[0]


@pytest.mark.parametrize(
    ("stack", "release"),
    [("a100-cuda11.8", "25.06"), ("h100-cuda12.9", "25.06"), ("b200-cuda13", "25.12")],
)
def test_torchrun_in_nvidias_image_once_per_node(stack: str, release: str) -> None:
    """The launcher needs no shell into the other nodes' containers: each node starts its own."""
    image = f"nvcr.io/nvidia/pytorch:{release}-py3"
    run = on_two_nodes("pytorch-resnet50v1.5", stack, "pytorch", image)
    assert run.container == f"podman nvcr.io/nvidia/pytorch@{DIGEST}"
    torchrun = ("python", "-u", "-m", "torch.distributed.run", "--nnodes=2")
    for rank, command in enumerate(run.commands):
        start = command.argv.index(f"nvcr.io/nvidia/pytorch@{DIGEST}")
        assert command.argv[start + 1 :][:6] == (*torchrun, f"--node-rank={rank}")
        assert "nvidia.com/gpu=all" in command.argv[:start]
        assert not [variable for variable in command.env if variable.startswith("DLPERF_REMOTE")]


def test_mpirun_in_nvidias_image_tells_tensorflow_the_addresses() -> None:
    image = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
    run = on_two_nodes("tensorflow2-resnet50v1.5", "h100-cuda12.9", "tensorflow2", image)
    assert run.container == f"podman nvcr.io/nvidia/tensorflow@{DIGEST}"
    (command,) = run.commands
    assert command.env["TF_WORKER_HOSTS"] == "10.11.0.2,10.11.0.3"
    assert "TF_WORKER_HOSTS" in command.argv


# ---- an environment in an image made of a node, podman


def test_the_lab_in_podman() -> None:
    chosen = Choice(model=("resnet50v1b",), nodes=(2,), container="podman")
    nodes = lab_nodes(2, container_images={"localhost/dlperf-mxnet": DIGEST})
    (run,) = make_plan(chosen, load_catalog(), nodes)
    (command,) = run.commands
    name = "dlperf-mxnet-resnet50v1b-builtin-podman_fp32_b2_2n2g-r1"
    source = "/opt/dlperf/src/mxnet-resnet50v1b-builtin"
    end = command.argv.index("/usr/bin/mpirun")
    assert command.argv[:end] == (
        *("/bin/sh", "-c", 'exec podman run --volume "$HOME/.ssh:/root/.ssh:ro" "$@"', "podman"),
        *("--rm", "--name", name, "--pull", "never", "--log-driver", "none"),
        *("--network", "host", "--uts", "host", "--ipc", "host"),
        *("--volume", f"{source}:{source}:ro"),
        *("--volume", "/opt/dlperf/data:/opt/dlperf/data:ro"),
        *("--workdir", source, "--env", "HOME=/tmp"),
        *("--volume", "/opt/dlperf/container:/opt/dlperf/container:ro"),
        *("--volume", "/etc/ssh/ssh_known_hosts:/etc/ssh/ssh_known_hosts:ro"),
        *("--env", "OMP_NUM_THREADS", "--env", "OMPI_ALLOW_RUN_AS_ROOT"),
        *("--env", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "--env", "DLPERF_REMOTE_CONTAINER"),
        *("--env", "DLPERF_REMOTE_USER", f"localhost/dlperf-mxnet@{DIGEST}"),
    )
    assert "/opt/dlperf/envs/mxnet/bin/python" in command.argv[end:]
    assert command.cleanup == ("podman", "rm", "--force", "--ignore", "--time", "0", name)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_gpus_of_amd_are_devices_of_groups_that_the_user_is_in(engine: str) -> None:
    of_amd = {"stack": "mi300-rocm7", "accelerator": "AMD Instinct MI300X"}
    images = {"docker.io/rocm/pytorch:latest": DIGEST}
    nodes = v100_nodes(1, frameworks=("pytorch",), container_images=images, **of_amd)
    names = {"workload": ("pytorch-resnet50v1.5",), "nodes": (1,), "gpus_per_node": (8,)}
    run, *_ = make_plan(Choice(**names, container=engine), load_catalog(), nodes)
    argv = run.commands[0].argv
    assert f"docker.io/rocm/pytorch@{DIGEST}" in argv
    shown = " ".join(argv)
    assert "--device /dev/kfd --device /dev/dri --security-opt seccomp=unconfined --ulimit" in shown
    assert "nvidia" not in shown and "--gpus" not in shown
    groups = {"docker": '$(printf " --group-add %s" $(id -G))', "podman": "--group-add keep-groups"}
    assert groups[engine] in argv[2]


def test_what_runs_in_its_own_directory_finds_it_mounted() -> None:
    """Without mpirun the other nodes' commands are containers of their own."""
    python = "/opt/dlperf/envs/paddle/bin/python"
    image = Image("podman", f"localhost/dlperf-paddle@{DIGEST}", python)
    nodes = lab_nodes(2)
    program = Program((python, "-u", "train.py"), 2, on_gpu=False, cwd="/opt/dlperf/src/p")
    for command in launch("paddle_launch", program, nodes, image):
        enclosed = enclose(command, image, nodes, "p/r1", source="/opt/dlperf/src/p")
        assert enclosed.host == command.host
        assert enclosed.argv[2] == 'exec podman run --volume "$PWD:$PWD" --workdir "$PWD" "$@"'
        assert enclosed.argv[-len(command.argv) :] == command.argv
        assert "--workdir" not in enclosed.argv
        assert "DLPERF_REMOTE_CONTAINER" not in enclosed.env


# ---- the remote shell, with a stand-in for ssh


REMOTE_SHELL = Path(__file__).parents[2] / "roles/container/files/remote_shell.sh"


def remote_shell(path: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    # The container is a program here that shows its arguments, one a line.
    container = shlex.join(["/usr/bin/printf", "<%s>\n", "it's", "two words"])
    env = {"DLPERF_REMOTE_CONTAINER": container, "DLPERF_REMOTE_USER": "bench", "PATH": f"{path}"}
    words = ["/bin/sh", REMOTE_SHELL, *argv]
    return subprocess.run(words, check=False, capture_output=True, text=True, env=env)


def test_the_remote_shell_brings_a_command_through_two_shells(tmp_path: Path) -> None:
    """mpirun's own command line: it quotes for one shell, pieces and all."""
    (tmp_path / "sed").symlink_to("/bin/sed")
    assert remote_shell(tmp_path, "node2", "orted").returncode == 127
    assert "the image has no ssh" in remote_shell(tmp_path, "node2", "orted").stderr
    program(tmp_path, "ssh", 'echo "$1 $2 $3 $4 $5"\nshift 5\nexec /bin/sh -c "$*"')
    command = ["PATH=/opt/mpi/bin:$PATH ; export PATH ;", "orted", "-mca", "a", '"it\'s; $HOME"']
    done = remote_shell(tmp_path, "node2", *command)
    assert done.stdout.splitlines() == [
        "-o BatchMode=yes -l bench node2",
        *("<it's>", "<two words>", "</bin/sh>", "<-c>"),
        '<PATH=/opt/mpi/bin:$PATH ; export PATH ; orted -mca a "it\'s; $HOME">',
    ]
