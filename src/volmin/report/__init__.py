"""Reports: self-contained HTML pages that work offline, and their figures."""

from volmin.report.audit_page import AuditPage, ClassNoise, Confusion, UnlabelledRows, write_audit_report
from volmin.report.page import RunPage, Section, write_grid_report, write_run_report

__all__ = [
    "AuditPage",
    "ClassNoise",
    "Confusion",
    "RunPage",
    "Section",
    "UnlabelledRows",
    "write_audit_report",
    "write_grid_report",
    "write_run_report",
]
