"""Sources are fetched at their commit, patched as declared, and packed reproducibly."""

import io
import subprocess
import tarfile
from pathlib import Path

import pytest
from captured import git
from hypothesis import given
from hypothesis import strategies as st
from plan_examples import write_catalog
from refusals import refusal

from dlperf_runner.catalog.reader import Catalog, load_catalog
from dlperf_runner.core import paths
from dlperf_runner.plan.sources import File, PreparedSource, make_tar, prepare_source

Made = tuple[Path, str]
TRAIN = "import logging\n# logging.info('Speed: %.2f')\nepochs = 90\n"

WORKLOAD = """\
name: paddle-toy
title: A repository of this test
framework: paddle
model: toy
short_name: toy
log_format: plsc
launcher: mpirun
rule: {{total_steps: 10, warmup_steps: 2, estimator: mean_of_rates}}
sources:
  builtin:
    files: [tests/support/plan_examples.py]
    argv: ["{{python}}", plan_examples.py]
    prepare: [{{argv: ["{{python}}", "{{directory}}/x.py"], creates: /opt/x}}]
  upstream:
    repository: owner/toy
    commit: "{commit}"
    directory: scripts/train
    paths: [scripts/train, library]
    patches:
      - {patch}
    added_files:
      - {{file: scripts/train/stand_in.py, content: "pass\\n", reason: is not on PyPI}}
    argv: ["{{python}}", train.py]
matrices:
  smoke:
    topologies: [1n1g]
    batches: [{{precision: fp32, batch_size_per_device: 1}}]
"""
PATCH = (
    "{file: scripts/train/train.py, pattern: '^# (logging.*)$', replacement: '\\1', "
    "reason: the speed is printed}"
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A repository with more in it than is needed, and the commit that is wanted, not the last."""
    root = tmp_path_factory.mktemp("upstream")
    git(root, "init", "--quiet", "--initial-branch=main")
    for name, content in {
        "README.md": b"not needed",
        "scripts/train/train.py": TRAIN.encode(),
        "scripts/train/run.sh": b"#!/bin/sh\n",
        "scripts/other/big.bin": b"not needed",
        "library/part.py": b"x = 1\n",
        "library/latin.py": b"# caf\xe9\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    (root / "scripts" / "train" / "run.sh").chmod(0o755)
    (root / "scripts" / "train" / "link.py").symlink_to("train.py")
    git(root, "add", "-A")
    git(root, "commit", "--quiet", "-m", "one")
    commit = git(root, "rev-parse", "HEAD")
    (root / "scripts" / "train" / "train.py").write_text("changed later\n")
    git(root, "commit", "--quiet", "-am", "two")
    return root, commit


def catalog_with(tmp_path: Path, commit: str, patch: str = PATCH) -> Catalog:
    root = write_catalog(tmp_path)
    (root / "workloads" / "paddle-toy.yml").write_text(WORKLOAD.format(commit=commit, patch=patch))
    return load_catalog(root)


def prepared(catalog: Catalog, mirror: Path | str, cache: Path) -> PreparedSource:
    return prepare_source(catalog, "paddle-toy", "upstream", str(mirror), cache)


def mirror_of(tmp_path: Path, repository: Path, layout: str) -> Path:
    mirror = tmp_path / "mirror"
    target = mirror / layout
    target.parent.mkdir(parents=True)
    bare = ["--bare"] if layout.endswith((".git", "repo")) else []
    git(tmp_path, "clone", "--quiet", *bare, str(repository), str(target))
    return mirror


def contents(path: Path) -> dict[str, bytes | str | None]:
    """Of each member: a file's bytes, a link's target, None of a directory."""
    with tarfile.open(path) as tar:
        return {
            member.name: member.linkname
            if member.issym()
            else (reader.read() if (reader := tar.extractfile(member)) else None)
            for member in tar
        }


@pytest.mark.parametrize("layout", ["owner/toy", "owner/toy.git", "owner+toy/repo"])
def test_upstream_from_a_directory_of_mirrors(
    tmp_path: Path, repository: Made, layout: str
) -> None:
    catalog = catalog_with(tmp_path, repository[1])
    made = prepared(catalog, mirror_of(tmp_path, repository[0], layout), tmp_path / "cache")
    assert made.directory == "/opt/dlperf/src/paddle-toy-upstream"
    assert made.path == tmp_path / "cache" / f"paddle-toy-upstream-{made.digest}.tar"
    assert contents(made.path) == {
        **dict.fromkeys(("library", "scripts", "scripts/train")),
        "library/latin.py": b"# caf\xe9\n",
        "library/part.py": b"x = 1\n",
        "scripts/train/link.py": "train.py",
        "scripts/train/run.sh": b"#!/bin/sh\n",
        "scripts/train/stand_in.py": b"pass\n",
        "scripts/train/train.py": b"import logging\nlogging.info('Speed: %.2f')\nepochs = 90\n",
    }


def test_upstream_is_fetched_once_and_a_damaged_tar_is_made_again(
    tmp_path: Path, repository: Made
) -> None:
    catalog = catalog_with(tmp_path, repository[1])
    mirror, cache = mirror_of(tmp_path, repository[0], "owner/toy"), tmp_path / "cache"
    made = prepared(catalog, mirror.as_uri(), cache)
    assert made.sha256 == prepared(catalog, mirror, tmp_path / "other").sha256
    for damage in (Path.unlink, lambda path: path.write_bytes(b"cut off")):
        damage(made.path)
        assert prepared(catalog, "file:///nowhere", cache) == made
        assert len(contents(made.path)) == 9
    # Another patch is another tar.
    changed = catalog_with(tmp_path / "b", repository[1], PATCH.replace("'\\1'", "'\\1  '"))
    other = prepared(changed, mirror, cache)
    assert other.digest != made.digest
    assert other.sha256 != made.sha256


@pytest.mark.parametrize(
    ("file", "more", "words"),
    [
        ("train.py, pattern: epoch, replacement: e", ", count: 2", "train.py (R): | 2 | found 1"),
        ("train.py, pattern: nowhere, replacement: e", "", "'nowhere', found 0"),
        ("none.py, pattern: x, replacement: e", "", "scripts/train, library | none.py"),
        ("train.py, pattern: epoch, replacement: '\\2'", "", "(R): | invalid group reference 2"),
    ],
)
def test_a_patch_that_does_not_fit_is_told(
    tmp_path: Path, repository: Made, file: str, more: str, words: str
) -> None:
    patch = f"{{file: scripts/train/{file}, reason: R{more}}}"
    mirror = mirror_of(tmp_path, repository[0], "owner/toy")
    catalog = catalog_with(tmp_path, repository[1], patch)
    told = refusal(prepared, catalog, mirror, tmp_path / "cache")
    assert all(word in told for word in words.split(" | "))
    assert repository[1][:12] in told or "invalid patch" in told
    assert not list((tmp_path / "cache").glob("*"))


def test_a_mirror_without_the_repository_or_its_commit_is_told(
    tmp_path: Path, repository: Made
) -> None:
    catalog = catalog_with(tmp_path, "0123456789" * 4)
    (tmp_path / "empty").mkdir()
    message = "owner/toy not found in the source mirror (expected one of owner/toy, owner/toy.git,"
    assert message in refusal(prepared, catalog, tmp_path / "empty", tmp_path)
    mirror = mirror_of(tmp_path, repository[0], "owner/toy")
    for place in (mirror, mirror.as_uri()):
        assert "0123456789" * 4 in refusal(prepared, catalog, place, tmp_path / "cache")
    message = "no source 'other' (expected one of builtin, upstream)"
    assert message in refusal(prepare_source, catalog, "paddle-toy", "other", None, tmp_path)


def test_a_snapshot_that_lacks_only_other_files_is_enough(tmp_path: Path, repository: Made) -> None:
    catalog = catalog_with(tmp_path, repository[1])
    mirror = mirror_of(tmp_path, repository[0], "owner/toy.git")
    bare = mirror / "owner" / "toy.git"
    lose(bare, git(bare, "rev-parse", f"{repository[1]}:scripts/other/big.bin"))
    assert prepared(catalog, mirror, tmp_path / "cache")
    lose(bare, git(bare, "rev-parse", f"{repository[1]}:library/part.py"))
    assert "lacks library/part.py at" in refusal(prepared, catalog, mirror, tmp_path / "other")


def lose(bare: Path, name: str) -> None:
    """Take one object out of a repository."""
    for pack in (bare / "objects" / "pack").glob("*.pack"):
        kept = bare / pack.name
        pack.rename(kept)
        with kept.open("rb") as stream:
            subprocess.run(["git", "-C", bare, "unpack-objects", "-q"], stdin=stream, check=True)
    (bare / "objects" / name[:2] / name[2:]).unlink()


def test_builtin_files_stand_side_by_side_and_prepare_the_nodes(tmp_path: Path) -> None:
    catalog = catalog_with(tmp_path, "0" * 40)
    expected = (paths.project() / "tests" / "support" / "plan_examples.py").read_bytes()
    source = "/opt/dlperf/src/paddle-toy-builtin"
    for environment in (None, "paddle-own"):
        made = prepare_source(
            *(catalog, "paddle-toy", "builtin", None, tmp_path / "cache"), environment=environment
        )
        assert contents(made.path) == {"plan_examples.py": expected}
        assert made.directory == source
        (command,) = made.prepare
        python = f"/opt/dlperf/envs/{environment or 'paddle'}/bin/python"
        assert command.argv == (python, f"{source}/x.py")


NAMES = st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3).map("/".join)


@given(files=st.dictionaries(NAMES.map(lambda n: f"{n}.py"), st.binary(max_size=20), max_size=5))
def test_a_tar_depends_on_its_files_only(files: dict[str, bytes]) -> None:
    listed = [File(path, content) for path, content in files.items()]
    made = make_tar(listed)
    assert made == make_tar(listed[::-1])
    with tarfile.open(fileobj=io.BytesIO(made)) as tar:
        members = tar.getmembers()
        assert all(m.mtime == 0 and m.uid == m.gid == 0 and not m.uname for m in members)
        found = {m.name: tar.extractfile(m).read() for m in members if m.isfile()}
    assert found == files


def test_a_source_without_files_can_be_unpacked() -> None:
    """A workload whose program is on the nodes. Ansible refuses an archive that is empty."""
    with tarfile.open(fileobj=io.BytesIO(make_tar([]))) as tar:
        assert [(member.name, member.isdir()) for member in tar] == [(".", True)]
