"""Compare campaigns with publications and with each other."""
