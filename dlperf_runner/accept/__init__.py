"""Acceptance of a cluster and of its parts: each node, pair, scalable unit, and all of them."""
