"""What exists, in YAML, and its one reader."""
