"""Load a directory of logs into the tidy frame."""
