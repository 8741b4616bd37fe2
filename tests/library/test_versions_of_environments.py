"""The script that reads the versions of an environment: its own, and those that it sees besides."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "roles/benchmark_source/files/versions.py"


def test_names_and_versions_are_read_from_all_folders_and_the_first_one_wins(
    tmp_path: Path,
) -> None:
    own, system = tmp_path / "own", tmp_path / "system"
    for folder, name in (
        (own, "alpha-2.0.dist-info"),
        (system, "alpha-1.0.dist-info"),
        (system, "torch-2.6.0+debian.egg-info"),
        (system, "typing_extensions-4.13.2.dist-info"),
        (system, "six-1.17.0-py3.13.egg-info"),
        (system, "not-a-distribution-info"),
    ):
        (folder / name).mkdir(parents=True)
    begin = f"import sys; sys.path[:] = [{str(own)!r}, {str(system)!r}, *sys.path];"
    code = f"{begin} exec(open({str(SCRIPT)!r}).read())"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, check=True)
    found = {entry["name"]: entry["version"] for entry in json.loads(done.stdout)}
    assert found == {
        "alpha": "2.0",
        "six": "1.17.0",
        "torch": "2.6.0+debian",
        "typing-extensions": "4.13.2",
    }
