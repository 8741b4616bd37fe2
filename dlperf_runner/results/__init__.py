"""From a directory of logs to the tidy frame."""
