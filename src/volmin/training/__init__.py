"""Training: phases over one loop, with selection on noisy validation data and exact resumption."""

from volmin.training.callbacks import Callback, CsvLog, TensorBoardLog, Training
from volmin.training.devices import OneDevice, launch, thread_limit
from volmin.training.evaluation import Record, clean_probs, noisy_scores, selected
from volmin.training.loop import fit
from volmin.training.phase import Phase, selection_rule
from volmin.training.precision import Precision, PrecisionName
from volmin.training.recipe import Recipe, Schedule, Selection

__all__ = [
    "Callback",
    "CsvLog",
    "OneDevice",
    "Phase",
    "Precision",
    "PrecisionName",
    "Recipe",
    "Record",
    "Schedule",
    "Selection",
    "TensorBoardLog",
    "Training",
    "clean_probs",
    "fit",
    "launch",
    "noisy_scores",
    "selected",
    "selection_rule",
    "thread_limit",
]
