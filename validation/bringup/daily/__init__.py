"""After bring-up: the baseline of the health check, first causes, a preflight."""
