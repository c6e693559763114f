"""The recipes (plain, fast), and what they change: waits for the device, the loss in chunks."""
