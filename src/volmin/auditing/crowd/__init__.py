"""Audits of labels by several annotators, or from several groups: a T and a noise rate for each, and the consensus."""

from volmin.auditing.crowd.audit import CrowdAudit, audit_crowd
from volmin.auditing.crowd.result import Profile

__all__ = ["CrowdAudit", "Profile", "audit_crowd"]
