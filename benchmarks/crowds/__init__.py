"""Several annotators: consensus, matrices and learning, beside majority vote, Dawid-Skene, GLAD and CROWDLAB.

``python -m benchmarks.crowds --data-dir DIR --json results/crowds.json``
"""
