"""Audits of labels: how many are wrong, which ones, and how certain that is."""

from volmin.auditing.audit import Audit, audit
from volmin.auditing.decisions import Corrected, apply_decisions
from volmin.auditing.judges import MODELS
from volmin.auditing.result import Check

__all__ = ["MODELS", "Audit", "Check", "Corrected", "apply_decisions", "audit"]
