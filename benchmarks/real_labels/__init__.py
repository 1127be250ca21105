"""Audits of label noise that people and rules made, and of simulated sets where an audit can go wrong, beside cleanlab.

``python -m benchmarks.real_labels --data-dir DIR --json results/real-labels.json``
"""
