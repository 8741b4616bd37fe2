"""Campaigns beside publications and beside each other."""
