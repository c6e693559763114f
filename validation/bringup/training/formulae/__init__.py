"""Arithmetic with sources: shapes of models, memory and traffic of a training step. Shared with training/."""
