"""Figures: SVG in the text of the page, and files for report.md. Texts can be selected, and one style sheet
has the colours, light and dark.

No library draws them. matplotlib with what it needs takes 165 MB where the whole light environment has 60, and paints
colours that do not follow a dark page; pygal has no map; Vega brings a JavaScript engine. These figures are lines, bars
and squares, the escaping is that of every page, and they are there in the light environment too.
"""
