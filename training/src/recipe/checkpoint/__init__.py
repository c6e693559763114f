"""Checkpoints: written whole or not at all, looked at before they are read, the same whatever the strategy.

docs/checkpoints.md says what lies in the folder of one.
"""
