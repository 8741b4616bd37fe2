"""The node agent: it launches, watches and ends a run. The module benchmark_job brings it to a node by SSH, and job_run.py in a job of Slurm."""
