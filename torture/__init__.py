"""Faults, bad input, damaged files, long runs and several processes: what the package promises under all of them.

``make torture`` runs everything, prints one table, and keeps it in ``results/torture.json``. The tests in
``tests/faults`` call the same functions a few times each.
"""
