"""The live page of a campaign."""
