"""Compute throughput from the steps of a log. No disk, no network."""
