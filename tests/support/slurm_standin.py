"""Stand-ins for Slurm's commands on this machine: a job really runs, its nodes are names only."""

from pathlib import Path

COMMANDS = {
    "sinfo": "printf 'main*|1|(null)|%s\\n' n1 n2\n",
    # What $STATE/asked has is done whenever somebody asks for the queue, as a runner does that
    # follows its jobs.
    # A job stays as $STATE/hold says, if there is such a file, and runs without one.
    "sbatch": r"""
script=${*: -1}
id=$(($(ls "$STATE" | grep -c '^job[0-9]') + 1))
name=$(sed -n 's/^#SBATCH --job-name=//p' "$script")
export SLURM_JOB_ID=$id SLURM_JOB_NODELIST=n1,n2 SLURM_CPUS_ON_NODE=2 SLURMD_NODENAME=n1
echo "$(cat "$STATE/hold" 2> /dev/null || echo 'RUNNING|N/A|None')|1|main|$name" > "$STATE/job$id"
if [[ ! -e $STATE/hold ]]; then
  setsid bash -c 'bash "$1"; sed -i s/^RUNNING/COMPLETED/ "$STATE/job$2"' - "$script" "$id" \
    > /dev/null 2>&1 < /dev/null &
  echo $! > "$STATE/pid$id"
fi
echo "$id"
""",
    "squeue": r"""
echo call >> "$STATE/calls"
[[ ! -e $STATE/asked ]] || . "$STATE/asked"
for job in "$STATE"/job*; do [[ -e $job ]] && echo "${job##*job}|$(cat "$job")"; done
true
""",
    "scancel": r"""
echo "$@" >> "$STATE/cancelled"
for id; do
  sed -i 's/^[A-Z]*|N.A|[^|]*/CANCELLED|N\/A|None/' "$STATE/job$id"
  [[ ! -e $STATE/pid$id ]] || kill -- "-$(cat "$STATE/pid$id")" || true
done
""",
    "scontrol": r"""[[ $2 != topology ]] || exec cat "$STATE/topology.$3"
IFS=,; for node in $3; do echo "$node"; done""",
    "srun": r"""
for word; do
  case $word in --nodelist=*) nodes=${word#*=} ;; --*) ;; *) break ;; esac
  shift
done
place=$(mktemp -d)
for node in ${nodes//,/ }; do # all get the standard input
  mkfifo "$place/$node"
  SLURMD_NODENAME=$node "$@" < "$place/$node" &
  tasks+=($!)
done
tee -p "$place"/* <&0 > /dev/null &
copy=$!
for task in "${tasks[@]}"; do wait "$task" || status=$?; done
kill "$copy" 2> /dev/null
rm -r "$place"
exit ${status-0}
""",
}


def slurm(folder: Path) -> Path:
    """Write the commands. The folder is their PATH, and its `state` their state."""
    (folder / "state").mkdir(parents=True)
    for name, text in COMMANDS.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\nexport STATE={folder}/state\n{text}")
        path.chmod(0o755)
    return folder
