"""MPI programs that Slurm starts by PMIx, where a test in the job shows that this works."""

from pathlib import Path

import pytest
from job_campaigns import campaign, execute, make_site, outcomes, program

from dlperf_runner.launchers.mpirun import variables_of


def test_what_mpirun_tells_its_processes_becomes_their_variables() -> None:
    options = ("--bind-to", "none", "-map-by", "slot", "-mca", "pml", "ob1", "--oversubscribe")
    assert variables_of((*options, "-x", "NCCL_DEBUG", "-x", "A=b")) == {
        "OMPI_MCA_pml": "ob1",
        "A": "b",
    }


@pytest.mark.parametrize(
    "options",
    [
        (),  # mpirun binds to cores
        ("--bind-to", "core"),
        ("--bind-to", "none", "--map-by", "socket"),
        ("--bind-to", "none", "--report-bindings"),
    ],
)
def test_a_command_that_srun_may_start_otherwise_keeps_mpirun(options: tuple[str, ...]) -> None:
    assert variables_of(options) is None


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Slurm with the plugin and its library. Its processes find each other."""
    made = make_site(tmp_path, monkeypatch)
    folder = tmp_path / "bin"
    library = tmp_path / "pmix/lib"
    library.mkdir(parents=True)
    (library / "libpmix.so").touch()
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins/mpi_pmix_v4.so").write_bytes(b"\x7fELF\0" + bytes(library) + b"\0")
    names = (folder / "scontrol").read_text()
    told = f'[[ $2 != config ]] || {{ echo "PluginDir   = {tmp_path}/plugins"; exit; }}\n'
    (folder / "scontrol").write_text(names.replace("IFS=,", f"{told}IFS=,"))
    (folder / "srun").rename(folder / "other-srun")
    by_pmix(folder, "rank 0 of 2 on n1: sum 3", "rank 1 of 2 on n2: sum 3")
    program(folder, "echo '# by mpirun'")
    return made


def by_pmix(folder: Path, *sums: str) -> None:
    """Let the test's processes say this, and a run's how they are started."""
    said = "".join(f"echo '{line}'; " for line in sums)
    (folder / "srun").write_text(
        "#!/bin/bash\ncase $* in\n"
        f"*--mpi=pmix*mpi_sum.py*) {said};;\n"
        '*--mpi=pmix*) echo "# srun $*" ;;\n'
        f'*) exec {folder}/other-srun "$@" ;;\nesac\n'
    )
    (folder / "srun").chmod(0o755)


def result(directory: Path) -> tuple[str | None, str]:
    """How the run was started, by its record and by its log."""
    (outcome,) = outcomes(directory)
    assert outcome["status"] == "done"
    (log,) = directory.glob("runs/*/r1/*.log")
    return outcome.get("mpi"), log.read_text()


def is_by_mpirun(site: Path, **options: str) -> Path:
    directory = campaign(site, nodes="2", options=options)
    assert execute(directory)[0] == []
    assert result(directory) == (None, "# by mpirun\n")
    return directory


def test_srun_starts_each_process_where_pmix_works(site: Path) -> None:
    directory = campaign(site, nodes="2")
    assert execute(directory)[0] == []
    mpi, log = result(directory)
    assert mpi == "pmix"
    assert log.startswith("# srun --nodes=2 --ntasks=4 --ntasks-per-node=2 --nodelist=n1,n2 ")
    assert "--cpus-per-task=1" in log
    assert "mpi_collectives.py" in log
    assert "sum 3" in (directory / "jobs/1/pmix.log").read_text()


def test_mpirun_starts_them_where_the_library_is_missing(site: Path) -> None:
    (site.parent / "pmix/lib/libpmix.so").unlink()
    directory = is_by_mpirun(site)
    assert (directory / "jobs/1/pmix.log").read_text() == "libpmix is missing\n"


@pytest.mark.parametrize("sums", [(), ("rank 0 of 1 on n1: sum 1", "rank 0 of 1 on n2: sum 1")])
def test_mpirun_starts_them_where_processes_stay_alone(site: Path, sums: tuple[str, ...]) -> None:
    by_pmix(site.parent / "bin", *sums)
    is_by_mpirun(site)


def test_the_user_may_choose_mpirun(site: Path) -> None:
    directory = is_by_mpirun(site, mpirun="True")
    assert not (directory / "jobs/1/pmix.sh").exists()
