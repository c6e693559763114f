"""Readers of formats that are not ours: text in, facts out.

Pure functions of a text. A reader decides nothing; what it cannot read it says."""
