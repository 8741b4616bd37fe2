"""The implementation of the commands. The command line itself is in `cli`."""
