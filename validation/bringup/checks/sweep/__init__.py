"""Every node by itself: a seeded training step, a sustained load, collectives inside the node, counters of errors."""
