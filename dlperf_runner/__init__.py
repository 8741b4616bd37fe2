"""dlperf_runner: how fast a deep-learning framework trains on a cluster, and how it scales."""

__version__ = "0.1.0"
