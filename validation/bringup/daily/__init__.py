"""After bring-up: the baseline of the health check, nodes to resume, idle nodes to verify."""
