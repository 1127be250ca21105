"""Experiments: a run's identity and folder, running it, and the settings of the paper."""
