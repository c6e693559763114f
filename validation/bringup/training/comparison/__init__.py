"""Trainings beside each other: what may be compared, what differs, and which strategy to take."""
