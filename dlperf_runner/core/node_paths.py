"""Where things are on a node."""

ENVIRONMENTS = "/opt/dlperf/envs"
SOURCES = "/opt/dlperf/src"
