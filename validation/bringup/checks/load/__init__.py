"""Counters of every node before and after a load: single nodes, collectives and trainings alike."""
