"""Audits: how wrong the labels of a data set are, and which ones."""

from volmin.auditing.audit import audit
from volmin.auditing.decisions import Corrected, apply_decisions
from volmin.auditing.judges import MODELS
from volmin.auditing.result import Audit, Check

__all__ = ["MODELS", "Audit", "Check", "Corrected", "apply_decisions", "audit"]
