"""Collectives: one communicator, the right transport, bandwidth, latency, and slow nodes or links."""
