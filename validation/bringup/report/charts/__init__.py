"""Figures of the page: SVG in its text, so that texts can be selected and colours are those of its style sheet.

No library draws them. matplotlib with numpy takes more room than all that the judge needs, and paints colours that do
not follow a dark page; pygal has no map and no axis of two logarithms. These figures are lines, bars and squares, the
escaping is that of every page, and they are there in the light environment too.
"""
