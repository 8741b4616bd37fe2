"""The vendors' part of a mirror folder: their repositories and files, at the vendors' own paths."""
