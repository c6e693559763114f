"""The run itself: it was closed, and its evidence is its own."""
