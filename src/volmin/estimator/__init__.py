"""The scikit-learn interface: a classifier that is trained on noisy labels and predicts clean ones."""

from volmin.estimator.classifier import NoisyLabelClassifier
from volmin.estimator.cross_fitting import Candidate

__all__ = ["Candidate", "NoisyLabelClassifier"]
