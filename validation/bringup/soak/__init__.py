"""The soak: the phases in rotation, on all nodes, until enough is known: how rare faults are, and what gets slower."""
