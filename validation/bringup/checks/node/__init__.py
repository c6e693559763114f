"""A node: state, clock, limits, and what should be equal on all nodes."""
