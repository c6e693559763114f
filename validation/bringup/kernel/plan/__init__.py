"""Declarations made before a run: gates, rules, drills, phases, claims, profiles, subjects of verdicts.

Data and pure functions. Nothing here reads a run.
"""
