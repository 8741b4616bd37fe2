"""The version that made something slower, found by halving, with a stated error rate."""
