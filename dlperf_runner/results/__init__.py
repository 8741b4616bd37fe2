"""Load a directory of logs into the long frame."""
