"""The gates: a room per domain.

Each room holds gates.py (data), derive.py (observations in, new observations out) and drills.py (data, and why a gate
has no drill). catalogue.py collects the rooms; nothing else is edited to add a gate.
"""
