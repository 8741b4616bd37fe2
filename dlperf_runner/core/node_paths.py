"""Paths on the nodes."""

ENVIRONMENTS = "/opt/dlperf/envs"
SOURCES = "/opt/dlperf/src"
