"""Findings about nodes, GPUs and the fabric."""
