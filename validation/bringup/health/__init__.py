"""What the health check of a node compares with, and the lines that take a node out and back, for a person to paste."""
