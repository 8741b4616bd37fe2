"""Launchers as whole command lines, so that a reader sees what is run."""

from dataclasses import replace
from itertools import pairwise

import pytest
from plan_examples import gpu_nodes, lab_nodes

from dlperf_runner.core.case import Command
from dlperf_runner.core.errors import UserError
from dlperf_runner.launchers import Program, launch, torchrun

BETWEEN_NODES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_SOCKET_IFNAME": "ib0"}
PYTHON = "/opt/dlperf/envs/mxnet/bin/python"
SOURCE = "/opt/dlperf/src/w-builtin"
TRAIN = (PYTHON, "-u", "train.py", "--batch-size", "128")


def program(on_gpu: bool = True, gpus_per_node: int = 8) -> Program:
    return Program(
        argv=TRAIN,
        gpus_per_node=gpus_per_node,
        on_gpu=on_gpu,
        environment={"OMP_NUM_THREADS": "1"},
        cwd=SOURCE,
        launcher_options=("--bind-to", "none", "--map-by", "slot"),
    )


def exported(command: Command) -> list[str]:
    return [after for word, after in pairwise(command.argv) if word == "-x"]


def test_mpirun_on_two_gpu_nodes() -> None:
    (command,) = launch("mpirun", program(), gpu_nodes(2))
    env = {"OMP_NUM_THREADS": "1", **BETWEEN_NODES}
    mca = {"btl_tcp_if_include": "ib0", "oob_tcp_if_include": "ib0", "pml": "ob1"}
    mca["btl"] = "^openib"
    assert command == Command(
        host="node1",
        argv=(
            *("/usr/bin/mpirun", "--host", "node1:8,node2:8", "-np", "16"),
            *("--bind-to", "none", "--map-by", "slot"),
            *("--mca", "btl_tcp_if_include", "ib0", "--mca", "oob_tcp_if_include", "ib0"),
            *("--mca", "pml", "ob1", "--mca", "btl", "^openib", "--wdir", SOURCE),
            *("-x", "OMP_NUM_THREADS", "-x", "NCCL_DEBUG", "-x", "NCCL_DEBUG_SUBSYS"),
            *("-x", "NCCL_SOCKET_IFNAME", *TRAIN),
        ),
        env=env,
        cwd=SOURCE,
        each_rank={"argv": TRAIN, "env": env | {f"OMPI_MCA_{n}": v for n, v in mca.items()}},
    )


def test_mpi_goes_over_ucx_where_the_inventory_says_so() -> None:
    ucx = tuple(replace(node, mpi_transport="ucx") for node in gpu_nodes(2))
    (command,), (usual,) = (launch("mpirun", program(), nodes) for nodes in (ucx, gpu_nodes(2)))
    assert command.argv == tuple("ucx" if word == "ob1" else word for word in usual.argv)


def test_mpirun_on_one_device_of_the_lab() -> None:
    """One device is started by mpirun too, as the published runs were."""
    (command,) = launch("mpirun", program(on_gpu=False, gpus_per_node=1), lab_nodes(1))
    assert command.argv == (
        *("/usr/bin/mpirun", "--host", "node1:1", "-np", "1"),
        *("--bind-to", "none", "--map-by", "slot"),
        *("--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0"),
        *("--mca", "pml", "ob1", "--mca", "btl", "^openib"),
        *("--wdir", SOURCE, "-x", "OMP_NUM_THREADS", "--oversubscribe", *TRAIN),
    )
    assert command.env == {"OMP_NUM_THREADS": "1"}


def test_mpirun_as_the_operator_has_it() -> None:
    own = {"interface": "", "env": {"NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "4"}}
    own["mpirun"] = "/usr/local/openmpi/bin/mpirun"
    (command,) = launch("mpirun", program(), [replace(node, **own) for node in gpu_nodes(1)])
    assert command.argv == (
        *("/usr/local/openmpi/bin/mpirun", "--host", "node1:8", "-np", "8"),
        *("--bind-to", "none", "--map-by", "slot"),
        *("--mca", "pml", "ob1", "--mca", "btl", "^openib"),
        *("--wdir", SOURCE, "-x", "OMP_NUM_THREADS", "-x", "NCCL_DEBUG", *TRAIN),
    )
    assert command.env == {"OMP_NUM_THREADS": "4", "NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize(
    "change", [{"interface": "eth1"}, {"env": {"A": "1"}}, {"mpi_transport": "ucx"}]
)
def test_mpirun_refuses_nodes_that_one_command_cannot_serve(change: dict[str, object]) -> None:
    first, second = gpu_nodes(2)
    with pytest.raises(UserError, match=r"host node2: dlperf_\w+: mpirun needs the same dlperf_"):
        launch("mpirun", program(), (first, replace(second, **change)))
    variables = {"A": "1", "B": "2"}
    reordered = dict(reversed(variables.items()))
    launch("mpirun", program(), (replace(first, env=variables), replace(second, env=reordered)))


def test_one_process_sees_the_devices_of_the_run() -> None:
    for on_gpu, nodes, devices in ((True, gpu_nodes(1), "0,1,2,3"), (False, lab_nodes(1), "")):
        env = {"CUDA_VISIBLE_DEVICES": devices, "OMP_NUM_THREADS": "1"}
        given = program(on_gpu, gpus_per_node=4)
        assert launch("single_process", given, nodes) == (Command("node1", TRAIN, env, SOURCE),)
    # Without a launcher, a program has its own variables only.
    (direct,) = launch("direct", program(), gpu_nodes(1))
    assert (direct.argv, direct.env) == (TRAIN, {"OMP_NUM_THREADS": "1"})
    for launcher in ("single_process", "direct"):
        with pytest.raises(UserError, match="one process cannot use several nodes"):
            launch(launcher, program(), gpu_nodes(2))


def test_torchrun_once_per_node() -> None:
    """Static: no node is asked for its own name, which may resolve to 127.0.0.1."""
    first, second = launch("torchrun", program(), gpu_nodes(2))
    assert first == Command(
        host="node1",
        argv=(
            *(PYTHON, "-u", "-m", "torch.distributed.run"),
            *("--nnodes=2", "--node-rank=0", "--nproc-per-node=8"),
            *("--master-addr=10.11.0.2", "--master-port=29500"),
            *("train.py", "--batch-size", "128"),
        ),
        env={"OMP_NUM_THREADS": "1", **BETWEEN_NODES},
        cwd=SOURCE,
    )
    assert (second.host, second.argv[5]) == ("node2", "--node-rank=1")


def test_torchrun_on_cpu_without_libuv() -> None:
    """As Debian builds PyTorch: the rendezvous must not ask for libuv, nor must Gloo for a name."""
    own = replace(program(on_gpu=False, gpus_per_node=2), environment={"USE_LIBUV": "0"})
    (command,) = launch("torchrun", own, lab_nodes(1))
    assert command.argv[:4] == (PYTHON, "-u", "-c", torchrun.WITHOUT_LIBUV)
    assert command.argv[4:7] == ("--nnodes=1", "--node-rank=0", "--nproc-per-node=2")
    assert command.env == {"GLOO_SOCKET_IFNAME": "eth0", "USE_LIBUV": "0"}


def test_mpirun_tells_pytorch_where_to_meet() -> None:
    (command,) = launch("torch_mpirun", program(on_gpu=False, gpus_per_node=2), lab_nodes(2))
    plain = launch("mpirun", program(on_gpu=False, gpus_per_node=2), lab_nodes(2))[0]
    assert command.env == {
        "MASTER_ADDR": "10.11.0.2",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": "1",
    }
    names = exported(command)
    assert names == list(command.env)
    assert [word for word in command.argv if word not in (*names, "-x")] == [
        word for word in plain.argv if word not in (*names, "-x")
    ]


def test_jax_is_one_process_per_node_and_is_told_who_it_is() -> None:
    """Address, number and rank: JAX neither detects a launcher nor resolves a host name."""
    first, second = launch("jax", program(), gpu_nodes(2))
    assert first == Command(
        host="node1",
        argv=TRAIN,
        env={
            "JAX_PROCESS_ID": "0",
            "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
            "JAX_COORDINATOR_ADDRESS": "10.11.0.2:29500",
            "JAX_NUM_PROCESSES": "2",
            "OMP_NUM_THREADS": "1",
            **BETWEEN_NODES,
        },
        cwd=SOURCE,
    )
    assert (second.host, second.argv) == ("node2", first.argv)
    assert second.env == {**first.env, "JAX_PROCESS_ID": "1"}
    (by_mpirun,) = launch("jax_mpirun", program(), gpu_nodes(2))
    assert by_mpirun.argv[:5] == ("/usr/bin/mpirun", "--host", "node1:1,node2:1", "-np", "2")
    assert {**by_mpirun.env, "JAX_PROCESS_ID": "0"} == first.env
    assert exported(by_mpirun) == list(by_mpirun.env) and len(by_mpirun.env) == len(first.env) - 1
    (alone,) = launch("jax", program(on_gpu=False, gpus_per_node=2), lab_nodes(1))
    assert (alone.env["CUDA_VISIBLE_DEVICES"], alone.env["JAX_NUM_PROCESSES"]) == ("", "1")


def test_mpirun_tells_tensorflow_the_addresses_of_the_nodes() -> None:
    (command,) = launch("tensorflow_workers", program(), gpu_nodes(2))
    (plain,) = launch("mpirun", program(), gpu_nodes(2))
    assert command.env == {"TF_WORKER_HOSTS": "10.11.0.2,10.11.0.3", **plain.env}
    assert exported(command) == list(command.env)
    assert command.argv[:5] == plain.argv[:5]


def test_the_operators_variables_override_those_between_nodes() -> None:
    hosts = tuple(replace(node, env={"NCCL_DEBUG": "WARN"}) for node in gpu_nodes(2))
    for launcher in ("mpirun", "paddle_launch", "paddle_launch_1", "same_command_everywhere"):
        for command in launch(launcher, program(), hosts):
            assert command.env == {**BETWEEN_NODES, "OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"}
        for command in launch(launcher, program(), gpu_nodes(1)):
            assert not [name for name in command.env if name.startswith("NCCL_")]


@pytest.mark.parametrize(
    ("launcher", "options"),
    [
        (
            "paddle_launch",  # in the run's own directory, where the processes' logs are written
            ("--ips=10.11.0.2,10.11.0.3", "--host={}", "--devices=0,1", "--log_dir=log"),
        ),
        (
            "paddle_launch_1",  # the options that were published, of 1.8
            ("--cluster_node_ips=10.11.0.2,10.11.0.3", "--node_ip={}", "--selected_gpus=0,1"),
        ),
    ],
)
def test_paddle_launch_once_per_node(launcher: str, options: tuple[str, ...]) -> None:
    commands = launch(launcher, program(gpus_per_node=2), gpu_nodes(2))
    assert [command.host for command in commands] == ["node1", "node2"]
    for command, address in zip(commands, ("10.11.0.2", "10.11.0.3"), strict=True):
        assert command.argv == (
            *(PYTHON, "-u", "-m", "paddle.distributed.launch"),
            *(option.format(address) for option in options),
            *(f"{SOURCE}/train.py", "--batch-size", "128"),
        )
        assert (command.env, command.cwd) == ({"OMP_NUM_THREADS": "1", **BETWEEN_NODES}, "")


def test_paddle_1_8_on_cpu_is_one_process() -> None:
    one = program(on_gpu=False, gpus_per_node=1)
    (command,) = launch("paddle_launch_1", one, lab_nodes(1))
    assert command.argv == (PYTHON, "-u", f"{SOURCE}/train.py", "--batch-size", "128")
    for two, hosts in ((one, lab_nodes(2)), (replace(one, gpus_per_node=2), lab_nodes(1))):
        with pytest.raises(UserError, match="has no collective operations on the CPU"):
            launch("paddle_launch_1", two, hosts)


def test_paddle_launch_on_cpu_says_how_many_processes() -> None:
    _, second = launch("paddle_launch", program(on_gpu=False, gpus_per_node=2), lab_nodes(2))
    (_, on_gpu) = launch("paddle_launch", program(gpus_per_node=2), gpu_nodes(2))
    assert second.argv == tuple(
        "--nproc_per_node=2" if word == "--devices=0,1" else word for word in on_gpu.argv
    )
    assert second.env == {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    assert second.cwd == ""
    # The interface of Gloo is left to the operator.
    (node,) = lab_nodes(1)
    lo = {"GLOO_SOCKET_IFNAME": "lo"}
    for theirs, env in ((replace(node, interface=""), {}), (replace(node, env=lo), lo)):
        (command,) = launch("paddle_launch", program(on_gpu=False), (theirs,))
        assert command.env == {"OMP_NUM_THREADS": "1", **env}


def test_the_same_command_everywhere_knows_all_nodes() -> None:
    commands = launch("same_command_everywhere", program(), gpu_nodes(4))
    assert [command.host for command in commands] == ["node1", "node2", "node3", "node4"]
    assert {command.argv for command in commands} == {
        (*TRAIN, "--node_ips=10.11.0.2,10.11.0.3,10.11.0.4,10.11.0.5")
    }
