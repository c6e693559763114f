"""Readers of the formats of other programs: text in, facts out.

Each is a pure function of a text. A reader judges nothing, and reports what it cannot read."""
