"""Data sets without their likely anchor points: ``mnist/NA`` is MNIST without them.

As in the paper, a share of each class is removed before labels are corrupted: the images of whose class a classifier is
surest. The paper does not say which classifier. Here it is a network that is trained on the clean labels of the whole
training part by the data set's fast preset. Its scores are kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from volmin import data, methods, networks
from volmin.cli.progress import EpochProgress
from volmin.data import AUGMENTATIONS, Dataset, TensorLoader, without_anchors
from volmin.data.sources.download import cache_dir
from volmin.exceptions import InputError
from volmin.experiments import presets
from volmin.experiments.presets import NO_ANCHORS, Preset
from volmin.io.arrays import read_array
from volmin.io.atomic import replace_file
from volmin.training import fit, thread_limit
from volmin.training.devices import OneDevice

REMOVED = {"digits": 0.4, "mnist": 0.4, "fashion_mnist": 0.4, "cifar10": 0.1, "cifar100": 0.1}
"""Shares of each class. Digits and Fashion-MNIST are not in the paper."""
_SEED, _EVALUATION_BATCH = 0, 1000
_SMALL = ("mlp", "lenet5")
"""Networks that a second thread makes no faster."""


def load_dataset(name: str | Path, data_dir: str | Path | None = None, **own: Any) -> Dataset:
    """A data set by name, or from a file or folder of one's own.

    Args:
        name: one of ``volmin.data.names()``, with ``/NA`` behind it for the paper's version without likely anchor
            points, which trains a network on the clean labels once; the path of a table, or that of a folder with a
            folder of images per class.
        data_dir: folder with the official files as they come; by default they are downloaded, once.
        own: what ``volmin.data.load_dataset`` takes for data of one's own: ``label``, ``clean``, ``ignore``,
            ``images``, ``size``.
    """
    name = str(name)
    base = name.removesuffix(NO_ANCHORS)
    if base == name:
        return data.load_dataset(name, data_dir, **own)
    if base not in REMOVED:
        choices = ", ".join(f"{known}{NO_ANCHORS}" for known in REMOVED)
        raise InputError(f"Unknown data set {name!r}. Choose one of: {choices}.")
    dataset = data.load_dataset(base, data_dir, **own)
    reduced = without_anchors(dataset.train, clean_scores(dataset), REMOVED[base])
    return replace(dataset, name=name, train=reduced)


def clean_scores(dataset: Dataset) -> NDArray[np.float64]:
    """(N,) log odds of the true class of each training row; computed once, then read from the user's cache."""
    preset = presets.find(dataset.name, "fast")
    path = cache_dir() / "clean-scores" / f"{dataset.name}-{_digest(dataset, preset)}.npy"
    if (scores := _read(path, len(dataset.train))) is None:
        scores = _train_and_score(dataset, preset, path.with_suffix(".ckpt"))
        with replace_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, scores)
        path.with_suffix(".ckpt").unlink(missing_ok=True)
    return scores


def _digest(dataset: Dataset, preset: Preset) -> str:
    """Changes with whatever the scores depend on."""
    settings = [preset.network, asdict(preset.recipe), preset.augmentation, _SEED, _threads(preset)]
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(dataset.train.tensor.numpy()).data)
    digest.update(np.ascontiguousarray(dataset.train.y).data)
    return digest.hexdigest()[:12]


def _threads(preset: Preset) -> int:
    """A fixed number, not that of the run: another one would round otherwise, and order the images otherwise."""
    return 1 if preset.network in _SMALL else 2


def _read(path: Path, count: int) -> NDArray[np.float64] | None:
    try:
        scores = read_array(path)
    except ValueError:
        return None
    return scores if scores.shape == (count,) and scores.dtype.kind == "f" and np.isfinite(scores).all() else None


def _train_and_score(dataset: Dataset, preset: Preset, checkpoint: Path) -> NDArray[np.float64]:
    recipe = replace(preset.recipe, selection="last")
    augment = AUGMENTATIONS[preset.augmentation] if preset.augmentation else None
    x, y, normalize = dataset.train.tensor, dataset.train.y, dataset.normalize
    with torch.random.fork_rng(), thread_limit(_threads(preset)):
        torch.manual_seed(_SEED)
        net = networks.build(preset.network, dataset.input_shape, dataset.num_classes)
        method = methods.get("cross_entropy")(net, dataset.num_classes)
        train = TensorLoader(x, y, recipe.batch_size, normalize=normalize, augment=augment)
        fabric = OneDevice("cpu")
        with EpochProgress(f"anchor points of {dataset.name}", recipe.epochs) as progress:
            fit(method, train, None, recipe, checkpoint, seed=_SEED, fabric=fabric, on_epoch=progress)
        with torch.inference_mode():
            rows = TensorLoader(x, y, _EVALUATION_BATCH, normalize=normalize)
            return torch.cat([_log_odds(method(batch.x), batch.y) for batch in rows]).numpy()


def _log_odds(logits: Tensor, y: Tensor) -> Tensor:
    """Orders rows as their probability does, also where that rounds to one."""
    own = y[:, None]
    logits = logits.double()
    others = logits.scatter(1, own, -torch.inf).logsumexp(1)
    return logits.gather(1, own)[:, 0] - others
