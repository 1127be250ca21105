"""Reports: self-contained HTML pages that need no network, and their figures."""

from volmin.report.page import RunStory, write_run_report

__all__ = ["RunStory", "write_run_report"]
