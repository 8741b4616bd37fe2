"""A campaign on disk, and its execution."""
