"""Acceptance: what was sold, line by line, and what the runs show of each line."""
