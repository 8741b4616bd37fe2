"""Bus bandwidths from logs of nccl-tests."""
