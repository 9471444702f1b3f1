"""Reports for people: one HTML page for each run, and a table for the terminal.

The page is complete in itself: no script, style, font or picture is loaded from anywhere.
"""

from jepsen_tests.report.page import write_report
from jepsen_tests.report.summary import summary_table

__all__ = ["summary_table", "write_report"]
