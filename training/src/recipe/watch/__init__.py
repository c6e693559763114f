"""A training is watched: a rank that hangs or stood still, a loss that is no number, the progress on the screen."""
