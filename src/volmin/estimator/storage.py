"""A trained classifier as files that hold data only: JSON and safetensors. Loading them executes no code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from volmin import methods
from volmin._typing import AnyArray
from volmin.estimator.network import given_network, is_own
from volmin.exceptions import DataError, InputError
from volmin.io.atomic import replace_file
from volmin.io.sealed import read_sealed_json, write_sealed_json
from volmin.networks import RandomFeatures, Standardize, WithRandomFeatures

if TYPE_CHECKING:
    from volmin.estimator.classifier import NoisyLabelClassifier

FORMAT = 1
DESCRIPTION, WEIGHTS = "classifier.json", "weights.safetensors"
_BUILDERS: dict[str, Callable[..., nn.Module]] = {
    "Flatten": nn.Flatten,
    "ReLU": nn.ReLU,
    "Linear": nn.Linear,
    "Standardize": lambda size: Standardize(torch.zeros(size), torch.ones(size)),
    "RandomFeatures": RandomFeatures,
    "WithRandomFeatures": WithRandomFeatures,
}
"""The layers of the classifier's own networks, by name."""


def save(classifier: NoisyLabelClassifier, folder: str | Path) -> None:
    """Write a trained classifier to a folder."""
    folder = Path(folder)
    params = classifier.get_params(deep=False)
    network = params.pop("network")
    own = is_own(network)
    weight = params["class_weight"]
    if isinstance(weight, Mapping):
        params["class_weight"] = [[_plain(label), float(value)] for label, value in weight.items()]
    if not isinstance(params["random_state"], int | np.integer | None):
        params["random_state"] = None
    description = {
        "format": FORMAT,
        "params": {name: _plain(value) for name, value in params.items()},
        "network": network if own else "given",
        "layers": _described(classifier.method_.net) if own else None,
        "annotators": getattr(classifier.method_, "annotators", 1),
        "classes": [_plain(label) for label in classifier.classes_.tolist()],
        "class_type": classifier.classes_.dtype.str,
        "features": vars(classifier)["n_features_in_"],
        "feature_names": [str(name) for name in getattr(classifier, "feature_names_in_", [])],
        "shape": list(classifier.shape_),
        "epochs_done": classifier.n_iter_,
    }
    tensors = {name: value.contiguous() for name, value in classifier.method_.state_dict().items()}
    if classifier.transition_matrix_ is not None:
        tensors["T"] = torch.from_numpy(classifier.transition_matrix_.copy())
    with replace_file(folder / WEIGHTS) as temporary:
        save_file(tensors, temporary)
    try:
        write_sealed_json(folder / DESCRIPTION, description, files=[WEIGHTS])
    except TypeError as error:
        raise InputError(f"The classifier has a parameter or a class that JSON cannot hold: {error}.") from None


def restore(classifier: NoisyLabelClassifier, folder: str | Path, network: Any = None) -> NoisyLabelClassifier:
    """Give an untrained classifier the parameters and the trained state in a folder.

    Args:
        classifier: A new classifier.
        folder: Folder that ``save`` wrote.
        network: The module or factory that the classifier was trained with, if it was not one of its own.
    """
    folder = Path(folder)
    if not (folder / DESCRIPTION).is_file():
        raise DataError(f"There is no saved classifier in {folder}: {DESCRIPTION} is missing.")
    found = read_sealed_json(folder / DESCRIPTION, files=True)
    if found.get("format") != FORMAT:
        raise DataError(
            f"The classifier in {folder} has the format {found.get('format')}; this version reads {FORMAT}."
        )
    try:
        params, kind = dict(found["params"]), found["network"]
        if isinstance(params["class_weight"], list):
            params["class_weight"] = dict(params["class_weight"])
        if params["method"] not in methods.names():
            raise DataError(f"The method {params['method']} of the classifier in {folder} is not part of volmin.")
        if kind == "given" and network is None:
            raise InputError(f"The classifier in {folder} was trained with a network of yours: pass it (network=).")
        classifier.set_params(**params, network=network if kind == "given" else kind)
        classifier.classes_ = _classes(found)
        num_classes, shape = len(classifier.classes_), tuple(found["shape"])
        net = given_network(network, shape, num_classes) if kind == "given" else _built(found["layers"])
        options = dict(params["options"] or {})
        if found["annotators"] > 1:
            options["annotators"] = found["annotators"]
        tensors = load_file(folder / WEIGHTS)
        T = tensors.pop("T", None)
        with torch.random.fork_rng():
            method = methods.get(params["method"])(net, num_classes, **options)
        method.to(next(value.dtype for name, value in tensors.items() if value.is_floating_point()))
        method.load_state_dict(tensors)
    except (KeyError, TypeError, RuntimeError, OSError, StopIteration, SafetensorError) as error:
        raise DataError(f"The classifier in {folder} is incomplete or damaged ({str(error)[:200]}).") from None
    classifier.method_, classifier.shape_, classifier.history_ = method.eval(), shape, []
    classifier.n_iter_ = found["epochs_done"]
    vars(classifier)["n_features_in_"] = found["features"]
    if found["feature_names"]:
        vars(classifier)["feature_names_in_"] = np.array(found["feature_names"], dtype=object)
    classifier.keep_transitions(None if T is None else T.numpy())
    return classifier


def _described(module: nn.Module) -> Any:
    """The layers of one of the classifier's own networks, as lists of names and sizes."""
    name = type(module).__name__
    if isinstance(module, nn.Sequential):
        return [_described(layer) for layer in module]
    if isinstance(module, nn.Linear):
        return {"layer": name, "sizes": [module.in_features, module.out_features]}
    if isinstance(module, RandomFeatures):
        return {"layer": name, "sizes": list(module.weight.shape)}
    return {"layer": name, "sizes": list(module.mean.shape) if isinstance(module, Standardize) else []}


def _built(layers: Any) -> nn.Module:
    if isinstance(layers, list):
        return nn.Sequential(*(_built(layer) for layer in layers))
    return _BUILDERS[layers["layer"]](*layers["sizes"])


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else dict(value) if isinstance(value, Mapping) else value


def _classes(found: Mapping[str, Any]) -> AnyArray:
    if found["class_type"] == "|O":
        classes = np.empty(len(found["classes"]), dtype=object)
        classes[:] = found["classes"]
        return classes
    return np.array(found["classes"], dtype=np.dtype(found["class_type"]))
