"""From a choice and an inventory to the commands of every run."""
