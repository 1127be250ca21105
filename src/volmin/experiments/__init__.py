"""Experiments: the identity of a run, running one or many, and the paper's tables."""
