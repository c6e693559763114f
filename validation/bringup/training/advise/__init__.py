"""Memory, traffic and time of every strategy, computed before anything runs."""
