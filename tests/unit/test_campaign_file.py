"""The campaign file: one document for `run`, `plan` and bench.yml, and its schema for editors."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import jsonschema
import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.vars.reserved import get_reserved_names
from command_line import call
from make_logs import ROOT
from plan_examples import lab_nodes
from slurm_standin import slurm

from dlperf_runner.control import rounds, scheduled
from dlperf_runner.control.campaigns import plan_of_playbook
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan import inventory
from dlperf_runner.plan.campaign_file import CampaignModel, read_campaign_file
from dlperf_runner.plan.choice import FURTHER, VARIABLES

SCHEMA = json.loads((ROOT / "docs" / "campaign.schema.json").read_text())
FILE = """\
# yaml-language-server: $schema=campaign.schema.json
inventory: nodes.ini
model: resnet50v1b
batch_size: [2, 4]
nodes: 1
repeats: 2
run_order: random
seed: 7
parameters: {image_size: [64, 32]}
notes: two image sizes
campaign_tags: [trial, lab]
"""
OPTIONS = (
    "--model resnet50v1b --batch-size 2,4 --nodes 1 --repeats 2 --order random --seed 7"
    " -p image_size=64,32"
)


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The inventories that were read; the lab's nodes are the answer."""
    inventories: list[tuple[str, ...]] = []

    def read(names: Sequence[str] = (), *_: object, **__: object) -> object:
        inventories.append(tuple(names))
        return lab_nodes()

    monkeypatch.setattr(inventory, "read_inventory", read)
    return inventories


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "campaign.yml"
    path.write_text(FILE)
    return path


def test_the_committed_schema_is_that_of_the_model() -> None:
    again = "python -m dlperf_runner plan --schema > docs/campaign.schema.json"
    assert call("plan", "--schema").document == SCHEMA, f"docs/campaign.schema.json is old; {again}"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_keys_are_variables_of_bench_that_ansible_does_not_reserve() -> None:
    keys = set(CampaignModel.model_fields)
    assert keys == {*VARIABLES, *FURTHER} - {"campaign", "resume"}
    assert not keys & get_reserved_names()
    assert set(SCHEMA["properties"]) == keys


def test_the_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "running.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "c.yml").write_text(example)
    jsonschema.validate(yaml.safe_load(example), SCHEMA)
    assert read_campaign_file(tmp_path / "c.yml").values["nodes"] == (1, 2, 4)


def test_a_file_plans_what_its_options_plan(file: Path, asked: list[tuple[str, ...]]) -> None:
    by_file = call("plan", "--json", file).document
    assert by_file == call("plan", "--json", *OPTIONS.split()).document
    assert asked == [(str(file.parent / "nodes.ini"),), ()]


REFUSED_BY_THE_SCHEMA = [
    ("repeats: two", "7: repeats", "expected a valid integer, found 'two'"),
    ("repeats: 0", "7: repeats", "greater than or equal to 1"),
    ("batch_size: [2, x]", "7: batch_size.1", "expected a valid integer, found 'x'"),
    ("run_order: alphabetic", "7: run_order", "'interleaved', 'grouped' or 'random'"),
    ("campaign_tags: two words", "7: campaign_tags", "found 'two words'"),
    ("parameters: {image_size: {}}", "7: parameters.image_size", "found {}"),
    ("parameters: {image-size: 1}", "7: parameters.image-size", ""),
    ("modle: llama", "7: modle", "unknown key .*one of .*model"),
    ("nodes: true", "7: nodes", "found True"),
    ("source: [mine]", "7: source.0", "expected 'builtin' or 'upstream', found 'mine'"),
    ("notes: 3", "7: notes", "expected a valid string, found 3"),
]
# What only the plan can know, and what no schema says.
OTHERS = [
    ("batch_size: x", "7: batch_size", "expected a valid integer, found 'x'"),
    ("until_ci: much", "7: until_ci", "found 'much'"),
    ("wait: soon", "7: wait", "a duration like 90s"),
    ("model: resnt", "7: model", "unknown model 'resnt'"),
    ("parameters: {image: 3}", "7: parameters", "unknown parameter 'image'"),
    ("seed: 1", "7: seed", "--order random"),
]


def refused(path: Path, text: str, where: str, message: str) -> None:
    path.write_text(f"{text}\n")
    error = call("plan", path, status=2).err
    assert error.startswith(f"error: {path}:{where}: "), error
    assert re.search(message, error)


@pytest.mark.parametrize(("line", "where", "message"), [*REFUSED_BY_THE_SCHEMA, *OTHERS])
def test_an_error_names_line_and_key(tmp_path: Path, line: str, where: str, message: str) -> None:
    if (line, where, message) in REFUSED_BY_THE_SCHEMA:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(yaml.safe_load(line), SCHEMA)
    key = line.split(":")[0]
    lines = ["#" if before.startswith(key) else before for before in FILE.splitlines()[:6]]
    refused(tmp_path / "c.yml", "\n".join([*lines, line]), where, message)


def test_what_is_no_campaign_file_is_refused(tmp_path: Path) -> None:
    for content, problem in ((b"- 1", "keys and values"), (b"a: [", "YAML"), (b"\xff", "UTF-8")):
        (tmp_path / "c.yml").write_bytes(content)
        assert problem in call("run", tmp_path / "c.yml", status=2).err
    assert "cannot read" in call("plan", tmp_path / "other.yml", status=2).err
    (tmp_path / "c.yml").write_text("model: llama\nmodel: resnet50\n")
    assert "c.yml:2: duplicate key" in call("plan", tmp_path / "c.yml", status=2).err


def test_options_override_the_file_and_say_so(file: Path, asked: list[tuple[str, ...]]) -> None:
    changes = ("--repeats", "3", "-p", "classes=10", "-p", "image_size=16", "-i", "other.ini")
    done = call("plan", "--json", file, *changes)
    choice = done.document["choice"]
    assert choice["repeats"] == 3
    assert choice["parameters"] == {"classes": "10", "image_size": "16"}
    assert choice["batch_size"] == [2, 4]
    assert asked == [("other.ini",)]
    assert done.err.splitlines()[:3] == [
        f"--repeats 3 overrides {file}:6: repeats",
        f"--parameter classes=10,image_size=16 overrides {file}:9: parameters",
        f"--inventory other.ini overrides {file}:2: inventory",
    ]
    # What an option says is not the file's mistake.
    error = call("plan", file, "--model", "resnt", status=2).err
    assert "error: --model: unknown model 'resnt'" in error
    # The same value, or a parameter more, overrides nothing.
    assert "overrides" not in call("plan", file, "--repeats", "2", "-p", "classes=10").err


def test_a_run_keeps_its_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "execute_campaign", lambda *_, **__: [])
    directory = tmp_path / "results" / "one"
    call("run", file, "--repeats", "3", "--campaign", directory, status=None)
    assert (directory / "campaign.yml").read_text() == FILE
    record = json.loads((directory / "campaign.json").read_text())
    assert record["choice"]["repeats"] == 3
    assert (record["notes"], record["tags"]) == ("two image sizes", ["trial", "lab"])
    assert record["overridden"] == [f"--repeats 3 overrides {file}:6: repeats"]
    (directory / "campaign.yml").write_text(FILE.replace("two", "three"))
    assert "campaign.yml" in call("summarize", "--verify", directory, status=1).out


def test_bench_takes_the_same_file(file: Path, tmp_path: Path) -> None:
    variables = DataLoader().load(f"{FILE}wait: 5m\n")  # as Ansible reads -e @campaign.yml
    nodes = [str(file.parent / "nodes.ini")]
    by_variables = plan_of_playbook(variables, nodes, campaign=str(tmp_path / "bench"))["plan"]
    by_file = call("plan", "--json", file).document
    assert by_variables["runs"] == by_file["runs"]
    copied = read_campaign_file(tmp_path / "bench" / "campaign.yml").values
    # The playbook's parameters are texts.
    texts = {"parameters": {"image_size": ("64,32",)}, "wait": "5m"}
    want = read_campaign_file(file).values | texts
    assert copied == want
    assert json.loads((tmp_path / "bench" / "campaign.json").read_text())["notes"] == want["notes"]
    with pytest.raises(UserError, match="names another inventory"):
        plan_of_playbook(variables, ["/etc/hosts"])
    # Roles' variables alone are no campaign file.
    plan_of_playbook({"dlperf_user": "me"}, campaign=str(tmp_path / "no"))
    assert not (tmp_path / "no" / "campaign.yml").exists()


SITE = "dlperf_stack: cpu\ndlperf_accelerator: cpu\ndlperf_devices_per_node: 2\n"
ON_SLURM = """\
workload: nccl-allreduce
matrix: smoke
scheduler:
  name: slurm
  partition: main
  time: 2h
  exclusive: true
  allocation: run
  site: site.yml
"""


@pytest.fixture
def slurm_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = slurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    (tmp_path / "site.yml").write_text(SITE)
    (tmp_path / "slurm.yml").write_text(ON_SLURM)
    jsonschema.validate(yaml.safe_load(ON_SLURM), SCHEMA)
    return tmp_path / "slurm.yml"


def test_a_file_plans_the_jobs_that_its_options_plan(slurm_file: Path) -> None:
    campaign = ("--campaign", slurm_file.parent / "c")
    options = "--workload nccl-allreduce --matrix smoke --scheduler slurm --partition main"
    options += f" --time 2h --exclusive --allocation run --site {slurm_file.parent}/site.yml"
    scripts = call("plan", slurm_file, *campaign).out
    assert scripts == call("plan", *options.split(), *campaign).out
    assert "#SBATCH --partition=main" in scripts
    assert "#SBATCH --exclusive" in scripts
    document = call("plan", slurm_file, *campaign, "--json").document
    assert [run["workload"] for run in document["runs"]] == ["nccl-allreduce"] * 2
    texts = [f"==> {path} <==\n{text}" for path, text in document["scripts"].items()]
    assert "\n".join(texts) == scripts
    done = call("plan", slurm_file, *campaign, "--time", "90m")
    assert f"--time 90m overrides {slurm_file}:3: scheduler\n" in done.err
    assert "#SBATCH --time=90" in done.out


def test_runs_of_a_scheduler_keep_their_file(
    slurm_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduled, "run", lambda *_: [])
    directory = slurm_file.parent / "c"
    call("run", slurm_file, "--campaign", directory, "--max-wait", "1h", status=None)
    assert (directory / "campaign.yml").read_text() == ON_SLURM
    settings = json.loads((directory / "scheduler.json").read_text())
    assert settings["options"]["partition"] == "main"
    assert settings["max_wait_s"] == 3600


@pytest.mark.parametrize(
    ("line", "where", "message"),
    [
        ("  qos: 3", "10: scheduler.qos", "expected a valid string, found 3"),
        ("  max_wait: soon", "10: scheduler.max_wait", "a duration like 90s"),
        ("  partitoin: gpu", "10: scheduler.partitoin", "unknown key .*partition"),
        ("inventory: x.ini", "10: inventory", "no effect with --scheduler"),
    ],
)
def test_an_error_in_a_scheduler(slurm_file: Path, line: str, where: str, message: str) -> None:
    refused(slurm_file, f"{ON_SLURM}{line}", where, message)


def test_bench_refuses_a_scheduler(slurm_file: Path) -> None:
    with pytest.raises(UserError, match="cannot run on a scheduler"):
        plan_of_playbook(yaml.safe_load(ON_SLURM))
