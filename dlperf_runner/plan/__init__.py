"""Planning: turns a choice and an inventory into the commands of every run."""
