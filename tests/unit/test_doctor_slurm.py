"""The doctor on a login node: what Slurm 22.05.8 printed in the lab, and forms of others."""

from dataclasses import replace
from pathlib import Path

import pytest
import standins
from captured import captured
from command_line import call, output

from dlperf_runner.doctor.findings import Finding
from dlperf_runner.doctor.slurm import (
    COMMANDS,
    CommandResult,
    Probe,
    findings,
    has_pmix,
    idle_nodes,
    partition_of,
    pmix_argv,
    probe_argv,
    seconds,
)

CONFIG = """\
Configuration data as of 2026-11-22T22:27:17
AccountingStorageEnforce = none
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = dlperf
PluginDir               = /usr/lib/x86_64-linux-gnu/slurm-wlm
SLURM_VERSION           = 22.05.8
"""
PARTITIONS = (
    "PartitionName=main AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL AllocNodes=ALL Default=YES"
    " QoS=N/A DefaultTime=NONE MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 Nodes=node[1-2]"
    " OverSubscribe=NO State=UP TotalCPUs=4 TotalNodes=2 JobDefaults=(null)\n"
)
NODES = """\
main*|node1|idle|(null)|Unknown|Unknown|none
main*|node2|idle|(null)|Unknown|Unknown|none
"""
MPI = """\
MPI plugin types are...
\tpmix
\tpmi2
\tnone
\tcray_shasta
specific pmix plugin versions available: pmix_v4
"""
GOOD = {
    "config": CommandResult(0, CONFIG),
    "partitions": CommandResult(0, PARTITIONS),
    "nodes": CommandResult(0, NODES),
    "mpi": CommandResult(0, MPI),
    "options": CommandResult(0, "      --mem=MB\n"),
    "associations": CommandResult(0, "dlperf|dlperf||normal||\n"),
    "qos": CommandResult(0, "normal||\n"),
}
ON_NODES = "".join(
    f"dlperf|{node}|read|t0ken\ndlperf|{node}|written|\ndlperf|{node}|pmix|yes\n"
    for node in ("node1", "node2")
)
RANKS = "dlperf|node2|rank|1\ndlperf|node1|rank|0\n"
BOTH = frozenset({"node1", "node2"})
PROBE = Probe(CommandResult(0, ON_NODES), "/shared", "t0ken", BOTH, CommandResult(0, RANKS))


def found(
    probe: Probe | None = PROBE, chosen: dict[str, str] | None = None, **other: str
) -> dict[tuple[str, str], Finding]:
    told = GOOD | {name: CommandResult(0, text) for name, text in other.items()}
    return {(each.node, each.check): each for each in findings(told, chosen or {}, probe)}


def test_a_cluster_as_it_should_be_has_only_good_findings() -> None:
    own = found()
    assert {each.status for each in own.values()} == {"ok"}
    assert own["login node", "mpi plugins"].found == "pmix, pmi2, none, cray_shasta, pmix_v4"
    assert own["partition main", "pmix"].found == "yes, on 2 nodes"
    assert own["node1", "container engines"].found == "none"
    assert partition_of(GOOD, {}) == "main"
    assert idle_nodes(GOOD, "main") == 2


def test_locked_memory_in_jobs_is_that_of_the_login_node_or_of_slurmd() -> None:
    """stackhpc/ansible-slurm-appliance#568: jobs had the 64 KiB of the login node."""

    def of(limit: str, config: str = "") -> Finding:
        text = ON_NODES + f"dlperf|node1|memlock|{limit}\n"
        return found(replace(PROBE, result=CommandResult(0, text)), config=CONFIG + config)[
            "node1", "locked memory"
        ]

    assert of("unlimited").status == "ok"
    assert (of("64").status, of("64").found) == ("warning", "64 KiB")
    assert "LimitMEMLOCK=infinity" in of("64").hint
    default = "PropagateResourceLimits = ALL\nPropagateResourceLimitsExcept = (null)\n"
    assert "PropagateResourceLimitsExcept=MEMLOCK" in of("64", default).hint
    excepted = "PropagateResourceLimits = ALL\nPropagateResourceLimitsExcept = MEMLOCK\n"
    assert "LimitMEMLOCK=infinity" in of("64", excepted).hint


def test_bad_nodes_are_named_with_their_reasons() -> None:
    rows = (
        "main*|node1|drained|(null)|root|2026-11-22T21:03:20|ECC | errors\n"
        "main*|node2|unknown*|(null)|Unknown|Unknown|none\nmain*|node3|idle~|(null)|a|b|none\n"
        "main*|node4|mixed#|(null)|Unknown|Unknown|none\nlong|node1|drained|(null)|root|x|y\n"
    )
    own = found(nodes=rows, partitions=PARTITIONS + PARTITIONS.replace("main", "long"))
    assert own["node1", "state"].status == "warning"
    assert own["node2", "state"].found == "unknown, not responding"
    assert {node for node, check in own if check == "state"} == {
        *("partition main", "partition long", "node1", "node2")
    }
    assert own["partition main", "nodes"].found == (
        "2 of 4 usable (1 drained, 1 unknown*, 1 idle~, 1 mixed#)"
    )
    assert own["partition main", "nodes"].status == "warning"
    assert own["partition long", "nodes"].status == "failed"
    chosen = found(nodes=rows, chosen={"partition": "main"})
    assert chosen["node1", "state"].found == "drained: ECC | errors (root, 2026-11-22T21:03:20)"


def test_gpus_limits_and_permissions_of_a_partition() -> None:
    partition = (
        "PartitionName=gpu AllowAccounts=ml,vision AllowQos=ALL Default=NO DefaultTime=00:30:00"
        " MaxNodes=4 MaxTime=00:05:00 State=DRAIN\n"
    )
    rows = "gpu|g1|idle|gpu:h100:8(S:0-1)|a|b|none\n" * 6 + "gpu|g2|mixed|gpu:a100:4|a|b|none\n"
    chosen = {"partition": "gpu", "account": "dlperf"}
    told = {"partitions": partition, "nodes": rows}
    own = {check: each for (_, check), each in found(chosen=chosen, **told).items()}
    assert own["gres"].status == "warning"
    assert own["gres"].found == "gpu:h100:8 on 6 nodes; gpu:a100:4 on 1 node"
    assert own["time limit"].status == "warning"
    assert own["time limit"].found == "00:05:00, by default 00:30:00, on up to 4 nodes"
    assert own["state"].status == "failed"
    of_partition = found(chosen=chosen, **told)["partition gpu", "account"]
    assert (of_partition.status, of_partition.expected) == ("failed", "one of ml,vision")
    assert idle_nodes(GOOD | {k: CommandResult(0, v) for k, v in told.items()}, "gpu") == 4
    assert partition_of(GOOD | {"partitions": CommandResult(0, partition)}, {}) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30:00", 1800), ("02:00:00", 7200), ("1-00:00:00", 86400), ("2-12", 216000), ("90", 5400)],
)
def test_the_forms_of_a_time(text: str, expected: int) -> None:
    assert seconds(text) == expected


def test_accounts_and_qualities_of_service() -> None:
    enforced = CONFIG.replace("= none", "= associations,limits,qos")
    own = found(config=enforced, associations="other|dlperf||normal||\n")
    assert own["login node", "account"].status == "failed"
    assert found(associations="")["login node", "account"].status == "warning"
    rows = "dlperf|ml||normal,high|1-00:00:00|node=4\n"
    limits = "normal|2-00:00:00|\nhigh||gres/gpu=64\nother|1:00|\n"
    own = found(chosen={"qos": "low"}, associations=rows, qos=limits)
    assert own["login node", "qos"].status == "failed"
    own = found(associations=rows, qos=limits)
    assert own["login node", "accounting limits"].found == (
        "account ml: 1-00:00:00 at most node=4; qos normal: 2-00:00:00 at most;"
        " qos high: gres/gpu=64"
    )
    without = CONFIG.replace("accounting_storage/slurmdbd", "accounting_storage/none")
    own = found(config=without)
    assert own["login node", "accounting"].status == "ok"
    assert ("login node", "account") not in own


def test_nodes_that_do_not_share_the_folder() -> None:
    text = (
        "dlperf|node1|read|cat: /tmp/.dlperf-doctor-x/login: No such file or directory\n"
        "dlperf|node2|read|t0ken\n"
        "dlperf|node2|written|bash: line 5: /tmp/x/node.node2: Read-only file system\n"
    )
    own = found(replace(PROBE, result=CommandResult(0, text), wrote=frozenset()))
    assert own["node1", "shared folder"].status == "failed"
    assert "No such file" in own["node1", "shared folder"].found
    assert own["node2", "shared folder"].status == "ok"
    assert own["node2", "writes"].status == "failed"
    assert "Read-only" in own["node2", "writes"].found
    silent = replace(PROBE, wrote=frozenset({"node1"}))
    assert found(silent)["node2", "writes"].found == "the login node does not see the file"


def test_a_test_job_that_does_not_run() -> None:
    assert found(None)["partition main", "test job"].status == "warning"
    busy = "srun: error: Unable to allocate resources: Immediate execution impossible"
    wrong = "srun: error: Invalid account or account/partition combination specified"
    for status, text in (("warning", busy), ("failed", wrong)):
        probe = replace(PROBE, result=CommandResult(1, f"{text}\n"))
        own = found(probe)["partition main", "test job"]
        assert (own.status, own.found) == (status, text)


def test_engines_of_the_nodes_are_compared() -> None:
    engines = "dlperf|node1|apptainer|apptainer version 1.3.4\ndlperf|node1|enroot|3.5.0\n"
    engines += "dlperf|node2|singularity|singularity-ce version 4.1.0\ndlperf|node2|podman|\n"
    probe = replace(PROBE, result=CommandResult(0, ON_NODES + engines))
    found_on = found(probe, options="  --container-image=...\n")
    first, second = (found_on[node, "container engines"].found for node in ("node1", "node2"))
    assert first == "apptainer 1.3.4, enroot 3.5.0, pyxis"
    assert second == "singularity 4.1.0, podman (does not start), pyxis"
    assert found_on["", "container engines"].status == "warning"


def test_pmix_is_tried_only_where_its_library_is() -> None:
    lacks = CommandResult(0, ON_NODES.replace("dlperf|node2|pmix|yes", "dlperf|node2|pmix|"))
    assert has_pmix(PROBE.result)
    assert not has_pmix(lacks)
    assert not has_pmix(CommandResult(0, "dlperf|node1|read|t0ken\n"))
    own = found(replace(PROBE, result=lacks, pmix=None))["partition main", "pmix"]
    assert (own.status, own.found) == ("warning", "libpmix.so is missing on node2")
    alone = CommandResult(0, RANKS.replace("|1", "|0"))
    assert found(replace(PROBE, pmix=alone))["partition main", "pmix"].status == "warning"


def test_a_controller_that_does_not_answer_is_the_only_finding() -> None:
    said = CommandResult(1, "slurm_load_partitions: Unable to contact slurm controller\n")
    (own,) = findings(GOOD | {"partitions": said}, {}, None)
    assert (own.check, own.status, own.found) == ("controller", "failed", said.output.strip())


def test_the_commands_of_the_test_job() -> None:
    argv = probe_argv("/plugins", {"partition": "gpu", "qos": "high"}, 5, "/home/me", "own", "/bin")
    assert argv[:14] == (
        *("srun", "--partition=gpu", "--qos=high"),
        *("--nodes=5", "--ntasks=5", "--ntasks-per-node=1"),
        *("--time=2", "--mem=500", "--quiet", "--immediate=30", "--chdir=/", "--mpi=none"),
        *("--export=NIL", "--job-name=dlperf-doctor"),
    )
    assert argv[14:16] == ("/bin/bash", "-c")
    engines = "apptainer singularity enroot podman"
    assert argv[17:] == ("probe", "/home/me", "own", "/bin", engines, "/plugins")
    assert pmix_argv({}, 5)[1:3] == ("--nodes=2", "--ntasks=2")
    assert "--mpi=pmix" in pmix_argv({}, 5)


def test_the_probe_finds_the_folder_the_engines_and_the_library(tmp_path: Path) -> None:
    """The very script, on this machine as a node, with engines and plugins of its own."""
    for folder in ("own", "pmix", "plugins"):
        (tmp_path / folder).mkdir()
    (tmp_path / "own/login").write_text("t0ken\n")
    standins.program(tmp_path / "bin", "podman", "echo podman version 4.3.1")
    standins.program(tmp_path / "bin", "enroot", '[ "$1" = version ] && echo 3.5.0')
    plugin = tmp_path / "plugins/mpi_pmix_v4.so"
    plugin.write_bytes(b"\x7fELF\0" + bytes(tmp_path / "pmix") + b"\0/usr/lib\0libpmix.so\0")

    def run() -> dict[str, str]:
        path = f"{tmp_path}/bin:/usr/bin:/bin"
        argv = probe_argv(str(plugin.parent), {}, 1, str(tmp_path), "own", path)
        done = captured(*argv[argv.index("/bin/bash") :], env={"SLURMD_NODENAME": "n1"})
        rows = [line.split("|", 3) for line in done.stdout.splitlines()]
        assert {(row[0], row[1]) for row in rows} == {("dlperf", "n1")}
        return {row[2]: row[3] for row in rows}

    told = run()
    assert (told["read"], told["written"], told["pmix"]) == ("t0ken", "", "")
    assert (told["podman"], told["enroot"]) == ("podman version 4.3.1", "3.5.0")
    assert told["memlock"] == "unlimited" or told["memlock"].isdigit()
    assert (tmp_path / "own/node.n1").exists()
    (tmp_path / "pmix/libpmix.so").touch()
    assert run()["pmix"] == "yes"


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A login node on which each command prints what stands in a file; srun runs its program."""
    place = tmp_path / "slurm"
    place.mkdir()
    for name, said in GOOD.items():
        (place / f"{name}.out").write_text(said.output)
    cases: dict[str, str] = {}
    for name, argv in COMMANDS.items():
        words = " ".join(argv[1:3] if argv[0] == "sacctmgr" else argv[1:]).replace("'", "")
        key = {"associations": "*associations*", "qos": "*qos*"}.get(name, f"'{words}'")
        cases[argv[0]] = cases.get(argv[0], "") + f"{key}) cat {place}/{name}.out ;;\n"
    cases["srun"] += """*--mpi=pmix*) printf 'dlperf|node1|rank|0\\n' ;;
*) until [ "$1" = /bin/bash ]; do shift; done; SLURMD_NODENAME=node1 exec "$@" ;;
"""
    for name, text in cases.items():
        standins.program(place, name, f'case "$*" in\n{text}esac')
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    return place


def test_the_command_says_text_json_and_an_exit_status(login: Path, tmp_path: Path) -> None:
    document = call("doctor", "--scheduler", "slurm", "--json").document
    # This machine's own limit of locked memory.
    others = [each for each in document["findings"] if each["check"] != "locked memory"]
    assert {each["status"] for each in others} == {"ok"}, document
    own = {(each["node"], each["check"]): each["found"] for each in document["findings"]}
    assert own["node1", "shared folder"] == own["node1", "writes"] == "yes"
    assert not list(tmp_path.glob(".dlperf-doctor-*"))
    (login / "nodes.out").write_text("main*|node1|drained|(null)|root|now|broken fan\n")
    found = call("doctor", "--scheduler", "slurm", status=1).out
    assert "warning state: expected usable, found drained: broken fan (root, now)" in found
    assert "failed  nodes: expected all usable, found 0 of 1 usable (1 drained)" in found
    line = call("doctor", "--scheduler", "slurm", "--nhc", status=1).out
    assert line.startswith("ERROR:  nhc:  Health check failed:  partition main: nodes:")


def test_options_that_do_not_fit_are_refused(login: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert login.is_dir()
    for options, where in (
        (("--scheduler", "slurm", "--limit", "n1"), "--limit"),
        (("--partition", "gpu"), "--partition"),
        (("--scheduler", "pbs"), "--scheduler"),
    ):
        assert where in output("doctor", *options, status=2)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "sinfo not found" in output("doctor", "--scheduler", "slurm", status=2)
