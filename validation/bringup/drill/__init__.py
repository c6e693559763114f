"""Faults made on purpose, and what the gates said about them."""
