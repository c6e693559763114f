"""Training runs beside each other, and against a baseline."""
