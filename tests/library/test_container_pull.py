"""The pulling of images by the role container, executed by Ansible on this machine, with a stand-in
for the engine that says what it was asked."""

import os
from pathlib import Path

from executed_modules import play
from standins import program

IMAGE = "nvcr.io/nvidia/tensorflow:20.12-tf1-py3"
DIGEST = "sha256:" + "5f" * 32
ENGINE = """\
echo "$@" >> "$(dirname "$0")/asked"
test "$1" = pull
"""
PULL = {"ansible.builtin.include_role": {"name": "container", "tasks_from": "pull.yml"}}


def pulled(folder: Path, engine: str, digest: str, *registries: str) -> tuple[int, str]:
    """The exit status and the output of the role's part that pulls, from each registry."""
    program(folder, "docker", engine)
    tasks = [{**PULL, "vars": {"dlperf_registry": name}} for name in registries or ("",)]
    values = {
        "container_engine": "docker",
        "container_wanted": IMAGE,
        "dlperf_container_images": {IMAGE: digest},
    }
    done = play(folder, *tasks, variables=values, PATH=f"{folder}:{os.environ['PATH']}")
    return done.returncode, " ".join((done.stdout + done.stderr).split())


def asked(folder: Path) -> list[str]:
    return (folder / "asked").read_text().splitlines()


def test_images_come_by_digest_from_the_registry_that_is_named(tmp_path: Path) -> None:
    status, said = pulled(
        tmp_path, ENGINE, DIGEST, "", "registry.example:5000", "harbor.example/ngc"
    )
    assert status == 0, said
    assert asked(tmp_path) == [
        f"{action} {registry}/nvidia/tensorflow@{DIGEST}"
        for registry in ("nvcr.io", "registry.example:5000", "harbor.example/ngc")
        for action in ("image inspect", "pull --quiet")
    ]


def test_a_locally_built_image_is_found_by_its_id_and_never_pulled(tmp_path: Path) -> None:
    status, said = pulled(tmp_path, ENGINE.replace("pull", "image"), f"id:{DIGEST}")
    assert status == 0, said
    assert asked(tmp_path) == [f"image inspect {DIGEST}"]
    status, said = pulled(tmp_path, ENGINE, f"id:{DIGEST}")
    assert status != 0
    assert f"localhost has no image with the ID {DIGEST}" in said
    assert "docker save IMAGE | ssh NODE docker load" in said
    assert asked(tmp_path)[1:] == [f"image inspect {DIGEST}"]
