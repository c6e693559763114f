"""What people and other programs read: the screen, report.md, the page, JUnit, Prometheus, drain lines."""
