"""The test whether a scheduler can start MPI programs itself, by PMIx, instead of mpirun."""

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
