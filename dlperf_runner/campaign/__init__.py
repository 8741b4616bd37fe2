"""The directory of a campaign, and its execution."""
