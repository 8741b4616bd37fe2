"""What each command does; the command line itself is in `cli`."""
