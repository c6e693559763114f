"""Figures: SVG in the text of the page, and files for report.md. Texts can be selected, and one style sheet
has the colours, light and dark. Why no library draws them: docs/architecture.md.
"""
