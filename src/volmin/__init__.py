"""volmin finds wrong labels, estimates how many there are, and trains classifiers that they do not mislead.

The public names are imported when they are first used, so that ``import volmin`` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

if TYPE_CHECKING:
    from volmin import data, estimation, identifiability, intervals, losses, methods, networks, noise, quality
    from volmin.auditing import Audit, apply_decisions, audit
    from volmin.data import load_dataset
    from volmin.estimation import estimate_transition
    from volmin.estimator import NoisyLabelClassifier
    from volmin.exceptions import VolminError
    from volmin.experiments.predictor import load_run
    from volmin.identifiability import scatter
    from volmin.quality import label_quality
    from volmin.training import Recipe, fit
    from volmin.transition import DominantTransition, log_volume, transition_error

_DEFINED_IN = {
    "Audit": "auditing",
    "apply_decisions": "auditing",
    "audit": "auditing",
    "VolminError": "exceptions",
    "DominantTransition": "transition",
    "log_volume": "transition",
    "transition_error": "transition",
    "Recipe": "training",
    "fit": "training",
    "load_dataset": "data",
    "estimate_transition": "estimation",
    "scatter": "identifiability",
    "label_quality": "quality",
    "NoisyLabelClassifier": "estimator",
    "load_run": "experiments.predictor",
}
_MODULES = (
    "data", "estimation", "identifiability", "intervals", "losses", "methods", "networks", "noise", "quality",
)  # fmt: skip

__all__ = [
    "Audit",
    "DominantTransition",
    "NoisyLabelClassifier",
    "Recipe",
    "VolminError",
    "apply_decisions",
    "audit",
    "data",
    "estimate_transition",
    "estimation",
    "fit",
    "identifiability",
    "intervals",
    "label_quality",
    "load_dataset",
    "load_run",
    "log_volume",
    "losses",
    "methods",
    "networks",
    "noise",
    "quality",
    "scatter",
    "transition_error",
]


def __getattr__(name: str) -> Any:
    if name in _DEFINED_IN:
        return getattr(import_module(f"volmin.{_DEFINED_IN[name]}"), name)
    if name in _MODULES:
        return import_module(f"volmin.{name}")
    raise AttributeError(f"module 'volmin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
