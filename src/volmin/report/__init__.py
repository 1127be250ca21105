"""Reports: self-contained HTML pages that need no network, and their figures."""

from volmin.report.audit_page import AuditStory, ClassLine, Confusion, write_audit_report
from volmin.report.page import RunStory, Section, write_grid_report, write_run_report

__all__ = [
    "AuditStory",
    "ClassLine",
    "Confusion",
    "RunStory",
    "Section",
    "write_audit_report",
    "write_grid_report",
    "write_run_report",
]
