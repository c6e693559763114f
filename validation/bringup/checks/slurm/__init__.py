"""Slurm: its configuration, and what it does with jobs."""
