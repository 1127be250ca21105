"""Stress tests: faults, bad input, damaged files, large data and several processes.

``make torture`` runs everything, prints one table and writes it to ``results/torture.json``. The tests in
``tests/faults`` call the same functions a few times each.
"""
