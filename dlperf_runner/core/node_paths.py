"""Paths on the nodes."""

ENVIRONMENTS = "/opt/dlperf/envs"
SOURCES = "/opt/dlperf/src"
SYNTHETIC_DATASETS = "/opt/dlperf/data/synthetic"  # as catalog/datasets.yml has them
