"""Neural networks. All map a batch to logits, never to probabilities."""

from volmin.networks.mlp import Standardize, mlp
from volmin.networks.modules import features_and_logits, fresh_copy, last_linear, reset_parameters
from volmin.networks.random_features import RandomFeatures, WithRandomFeatures
from volmin.networks.registry import DESCRIPTIONS, build, check_name, fast_cnn, lenet5, names
from volmin.networks.resnets import resnet18, resnet32, resnet34, resnet50
from volmin.networks.weights import load_weights

__all__ = [
    "DESCRIPTIONS",
    "RandomFeatures",
    "Standardize",
    "WithRandomFeatures",
    "build",
    "check_name",
    "fast_cnn",
    "features_and_logits",
    "fresh_copy",
    "last_linear",
    "lenet5",
    "load_weights",
    "mlp",
    "names",
    "reset_parameters",
    "resnet18",
    "resnet32",
    "resnet34",
    "resnet50",
]
