"""Reports: self-contained HTML pages that need no network, and their figures."""

from volmin.report.page import RunStory, Section, write_grid_report, write_run_report

__all__ = ["RunStory", "Section", "write_grid_report", "write_run_report"]
