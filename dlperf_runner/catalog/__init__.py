"""The catalogue of frameworks, workloads and stacks in YAML, and its reader."""
