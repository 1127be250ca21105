"""Audits of labels: how many are wrong, which ones, and how certain that is."""

from volmin.auditing.audit import Audit, audit
from volmin.auditing.check import Check
from volmin.auditing.crowd import CrowdAudit, audit_crowd
from volmin.auditing.decisions import Corrected, apply_decisions
from volmin.auditing.findings import Finding
from volmin.auditing.judges import MODELS, Judge

__all__ = [
    "MODELS",
    "Audit",
    "Check",
    "Corrected",
    "CrowdAudit",
    "Finding",
    "Judge",
    "apply_decisions",
    "audit",
    "audit_crowd",
]
