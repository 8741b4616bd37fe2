"""The history of all campaigns in one SQLite file."""
