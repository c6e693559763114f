"""Memory: room.py refuses what cannot fit before any weight is allocated; states.py counts what a rank holds."""
