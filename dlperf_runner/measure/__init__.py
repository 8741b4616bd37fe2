"""From the steps of a log to numbers. No disk, no network."""
