"""Runs against a baseline, over time, and variants of one training; and the profile that runs make."""
