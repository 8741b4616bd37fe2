"""MPI programs that a scheduler starts itself, by PMIx, instead of mpirun."""

from __future__ import annotations

from collections.abc import Sequence

# Options of mpirun that say where processes start, with the number of words that follow each. The
# scheduler's words say that, too.
_PLACE = {"host": 1, "np": 1, "wdir": 1, "oversubscribe": 0}
_UNBOUND, _IN_ORDER = ("bind-to", "none"), ("map-by", "slot")


def without_mpirun(argv: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]] | None:
    """The variables and the command of each process that an mpirun command starts. None if it has
    an option whose meaning another launcher may not keep."""
    variables: dict[str, str] = {}
    place, is_unbound = 1, False
    while argv[place].startswith("-"):
        option = argv[place].lstrip("-")
        if option == "mca":
            variables[f"OMPI_MCA_{argv[place + 1]}"] = argv[place + 2]
            place += 3
        elif option == "x":  # processes get the other variables of the command anyway
            name, is_given, value = argv[place + 1].partition("=")
            variables |= {name: value} if is_given else {}
            place += 2
        elif option in _PLACE:
            place += 1 + _PLACE[option]
        elif (option, argv[place + 1]) in (_UNBOUND, _IN_ORDER):
            is_unbound = is_unbound or option == _UNBOUND[0]
            place += 2
        else:
            return None
    return (variables, tuple(argv[place:])) if is_unbound else None


# Its arguments are the names of the job's nodes. Without the library that Slurm's plugin opens, a
# step would hang. Without PMIx in its own library, each process of MPI would be alone.
TEST = r"""#!/bin/bash
@LIBRARIES@
if [[ $1 == --libraries ]]; then
  found=$(pmix_libraries "$2")
  [[ -n $found && $found != *no* ]]
  exit
fi
node=("$@") count=$# ranks=1
@EACH@ bash "$0" --libraries "@PLUGINS@" || { echo "libpmix is missing"; exit 1; }
said=$(timeout --kill-after=10 60 @RANK@ @SUM@)
echo "$said"
(( $(grep -c "of $count on .*: sum $((count * (count + 1) / 2))$" <<< "$said") == count ))
"""
