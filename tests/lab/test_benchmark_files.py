"""What stands on the nodes for benchmarks: data sets are made and checked there. A run's program
puts what only root may read where root's connection finds the run's files.

tests/library/test_benchmark_fetch.py and test_dataset_modules.py, which are in `make test`, have
the modules' own tests.
"""

import base64
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_under_test import Lab
from PIL import Image

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.campaigns]

SECRET = "planted-0c7b1e5fa9"  # noqa: S105
INSTEAD_OF_LOG = "echo trained; rm {log}; ln -s /root/secret {log}"
# The first sample replaces a link that is there before it.
BESIDE_LOG = (
    "until [ -e telemetry-node1.csv ]; do sleep 0.1; done; ln -sf /root/secret telemetry-node1.csv"
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("files") / "lab").running(nodes=2, mirror=mirror) as made:
        made.play("provision.yml", "--tags", "node_base")
        made.said("node1", f"umask 077 && echo {SECRET} > /root/secret")
        made.said("node1", "install -d -o dlperf /opt/dlperf/runs")  # as benchmark_source does
        yield made


def campaign_of(lab: Lab, directory: Path, script: str) -> dict[str, Any]:
    """Run a shell script as the user of benchmarks, in a planned run's place; its outcome."""
    argv = ["plan", "--json", "--model", "resnet50v1b", "--nodes", "1", "--gpus-per-node", "1"]
    done = lab.command(sys.executable, "-m", "dlperf_runner", *argv, "--campaign", str(directory))
    assert done.returncode == 0, done.stdout
    (run,) = json.loads(done.stdout)["runs"]
    command = run["commands"][0]
    command |= {"argv": ["sh", "-c", script.format(log=run["log_name"])], "env": {}, "cwd": ""}
    given = {"benchmark_run_campaign": str(directory), "benchmark_run_run": run}
    lab.play("tests/lab/plays/role.yml", "-e", json.dumps({"role": "benchmark_run"} | given))
    record = json.loads((directory / "runs" / run["id"] / "run.json").read_text())
    return record["outcome"]


def kept(directory: Path) -> dict[str, str]:
    files = [path for path in (directory / "runs").rglob("*") if path.is_file()]
    return {path.name: path.read_text() for path in files}


@pytest.mark.parametrize("script", [INSTEAD_OF_LOG, BESIDE_LOG])
def test_link_to_what_root_keeps_is_not_followed(lab: Lab, tmp_path: Path, script: str) -> None:
    assert SECRET in lab.said("node1", "cat /root/secret")  # the connection is root's
    outcome = campaign_of(lab, tmp_path / "campaign", script)
    assert (outcome["status"], outcome["exit_status"]) == ("failed", 0)
    assert "was not fetched: /opt/dlperf/runs/campaign/" in outcome["message"]
    assert "it is a symbolic link, not a regular file" in outcome["message"]
    files = kept(tmp_path / "campaign")
    assert not [name for name, text in files.items() if SECRET in text]
    assert len(files) == 2  # run.json, and either the telemetry or a log


# ---- data sets

DATASETS = {
    "imagenet-recordio": {"synthetic": True, "records": 300},
    "imagenet-ofrecord": {"path": "/opt/dlperf/data/packed", "images": "/srv/images", "parts": 2},
}
ROLE = ["tests/lab/plays/role.yml", "-e", json.dumps({"role": "dataset"})]
MADE = "/opt/dlperf/data/synthetic/imagenet-recordio"


def jpeg() -> str:
    """A photograph for a folder of images."""
    file = io.BytesIO()
    Image.new("RGB", (60, 40), (9, 90, 200)).save(file, "JPEG")
    return base64.b64encode(file.getvalue()).decode()


def recap(printed: str) -> dict[str, str]:
    """What changed, by node."""
    return dict(re.findall(r"(node\d) .*changed=(\d+)", printed.rpartition("PLAY RECAP")[2]))


@pytest.fixture
def data(lab: Lab) -> Iterator[list[str]]:
    """The variables of an inventory with data sets, which are made on the nodes."""
    given = ["-e", json.dumps({"dlperf_datasets": DATASETS})]
    for node in ("node1", "node2"):
        for folder in ("/srv/images/n01", "/srv/images/n02"):
            lab.said(node, f"mkdir -p {folder} && echo {jpeg()} | base64 -d > {folder}/a.JPEG")
    first = recap(lab.play(*ROLE, *given))
    assert first == {"node1": "2", "node2": "2"}  # the folder of data, and the loop over both sets
    yield given
    for node in ("node1", "node2"):
        lab.said(node, "rm -r /srv/images; rm -rf /opt/dlperf/data")


def test_data_sets_are_made_once_and_equal_on_all_nodes(lab: Lab, data: list[str]) -> None:
    assert set(recap(lab.play(*ROLE, *data)).values()) == {"0"}
    sums = {lab.said(n, f"cd {MADE} && sha256sum train.rec train.idx") for n in ("node1", "node2")}
    assert len(sums) == 1
    assert lab.said("node1", f"stat -c %U {MADE}/train.rec") == "dlperf"
    # 300 photographs of 110 kB
    assert 31e6 < int(lab.said("node1", f"stat -c %s {MADE}/train.rec")) < 35e6
    assert lab.said("node2", "ls /opt/dlperf/data/packed/train") == "part-00000\npart-00001"


def test_damage_on_one_node_stops_the_check_and_is_named(lab: Lab, data: list[str]) -> None:
    check = [*ROLE, "-e", "part=verify", *data]
    lab.play(*check)
    lab.said("node2", f"truncate -s -9 {MADE}/train.rec")
    done = lab.command("ansible-playbook", *check)
    assert done.returncode != 0
    said = " ".join(done.stdout.split())
    assert f"node2: imagenet-recordio in {MADE}: 1 files have another size than when" in said
    assert "node1: imagenet-recordio" not in said
    lab.said("node2", f"truncate -s +9 {MADE}/train.rec; rm {MADE}/dlperf-dataset.json")
    lab.said("node2", f"printf x >> {MADE}/train.idx")
    done = lab.command("ansible-playbook", *check)
    assert "cannot read it as recordio: the index" in " ".join(done.stdout.split())


def test_the_removal_leaves_what_the_role_did_not_make(lab: Lab, data: list[str]) -> None:
    lab.said("node2", f"rm {MADE}/dlperf-dataset.json")
    lab.play(*ROLE, "-e", "part=absent", *data)
    assert lab.said("node1", "cd /opt/dlperf/data && find . -type f; ls /srv/images") == "n01\nn02"
    # Without the manifest, nothing says that the role made it.
    assert lab.said("node2", "ls /opt/dlperf/data/synthetic") == "imagenet-recordio"
