"""The budget of the difference between a campaign and a published number."""
