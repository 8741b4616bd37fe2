"""The sample that ships: it is what its page says, and gives the published table."""

from pathlib import Path

from command_line import call
from make_logs import ROOT, published_tree

LOGS = ROOT / "examples" / "logs"


def test_the_sample_is_made_from_the_published_speeds(tmp_path: Path) -> None:
    published_tree(tmp_path, "mxnet-resnet50v1b.md")
    made = tmp_path / "fp32_b128" / "mxnet" / "resnet50"
    files = [path for path in LOGS.rglob("*") if path.is_file()]
    assert len(files) == 30
    for path in files:
        assert path.read_bytes() == (made / path.relative_to(LOGS)).read_bytes()


def test_conditions_of_a_mapping_are_those_of_the_options(tmp_path: Path) -> None:
    mapping = tmp_path / "mapping.yml"
    mapping.write_text("conditions: {data: real, image_size: 224, xla: no, accelerator: V100}\n")
    better = ("--condition", "accelerator=V100-SXM2-16GB")
    told = call("compare", LOGS, "--mapping", mapping, *better).out
    assert "6 reproduced" in told
    assert "V100-SXM2-16GB, --condition" in told
    assert "not comparable" in call("compare", LOGS, "--mapping", mapping).out
    mapping.write_text("conditions: {colour: red}\n")
    assert "invalid condition" in call("compare", LOGS, "--mapping", mapping, status=2).err


def test_the_commands_of_its_page_work(tmp_path: Path) -> None:
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    commands = [line.split()[1:] for line in page.splitlines() if line.startswith("    dlperf")]
    outputs = [
        call(*(ROOT / word if word == "examples/logs" else word for word in words), *where).out
        for words in commands
        for where in [("--output-dir", tmp_path / words[0])] * (words[0] != "compare") or [()]
    ]
    assert len(outputs) == 3
    assert "|        4 |      32 |   9579.74 |" in outputs[0]
    assert "reproduced" in outputs[2]
