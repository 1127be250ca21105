"""Training: phases over one loop, with selection on noisy validation data and exact resumption."""

from volmin.training.devices import OneDevice, launch
from volmin.training.loop import (
    Phase,
    Recipe,
    Record,
    Schedule,
    Selection,
    clean_probs,
    fit,
    noisy_scores,
    one_cycle,
    selected,
    steps,
    thread_limit,
)

__all__ = [
    "OneDevice",
    "Phase",
    "Recipe",
    "Record",
    "Schedule",
    "Selection",
    "clean_probs",
    "fit",
    "launch",
    "noisy_scores",
    "one_cycle",
    "selected",
    "steps",
    "thread_limit",
]
