"""The shared filesystem: what one node writes, the others see; and how fast it is."""
