"""Checkpoints: written whole or not at all, the same whatever the strategy (docs/checkpoints.md)."""
