"""Findings about the nodes, GPUs and fabric of a cluster."""
