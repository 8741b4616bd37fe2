"""Every campaign in one SQLite file."""
