"""Audits of labels: how many are wrong, which ones, and how certain that is."""

from volmin.auditing.audit import Audit, audit
from volmin.auditing.check import Check
from volmin.auditing.decisions import Corrected, apply_decisions
from volmin.auditing.findings import Finding
from volmin.auditing.judges import MODELS, Judge

__all__ = ["MODELS", "Audit", "Check", "Corrected", "Finding", "Judge", "apply_decisions", "audit"]
