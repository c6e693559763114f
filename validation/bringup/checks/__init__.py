"""What is judged. The checks themselves are data, validation/checks/*.yaml; catalogue.py reads them.

A room per domain holds what follows from the facts: derive.py, observations in, new observations out.
"""
