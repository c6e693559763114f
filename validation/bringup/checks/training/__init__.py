"""Training: the strategy that ran, its loss, its memory, its speed, and how each rank ended."""
