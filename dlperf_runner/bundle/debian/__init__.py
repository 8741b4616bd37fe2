"""The distribution's part of a mirror folder: a signed apt repository with all dependencies."""
