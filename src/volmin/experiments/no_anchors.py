"""Data sets without their likely anchor points: ``mnist/NA`` is MNIST without them.

As in the paper, a share of each class is removed before labels are corrupted: the images whose class a classifier is
most certain of. The paper does not name the classifier. Here it is a network that is trained on the clean labels of the
whole training part with the data set's fast preset. Its scores are kept in the user's cache.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from volmin import data, methods
from volmin._typing import Array
from volmin.data import AUGMENTATIONS, Dataset, TensorLoader, without_anchors
from volmin.data.sources.download import cache_dir
from volmin.exceptions import InputError
from volmin.experiments import presets
from volmin.experiments.acceleration import build_network, choose, thread_share
from volmin.experiments.presets import NO_ANCHORS, Preset
from volmin.io.arrays import read_array
from volmin.io.atomic import replace_file
from volmin.progress import Progress
from volmin.training import Record, fit, thread_limit
from volmin.training.devices import OneDevice

REMOVED = {"digits": 0.4, "mnist": 0.4, "fashion_mnist": 0.4, "cifar10": 0.1, "cifar100": 0.1}
"""Shares of each class that are removed. Digits and Fashion-MNIST are not in the paper."""
_SEED, _EVALUATION_BATCH = 0, 1000
_SMALL = ("mlp", "lenet5")
"""Networks that a second thread makes no faster."""


def load_without_anchors(
    name: str,
    data_dir: str | Path | None = None,
    *,
    accelerated: bool | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """A data set without its likely anchor points; trains a network on the clean labels the first time.

    Args:
        name: Name of the whole data set, one of ``REMOVED``; that of the result ends in ``/NA``.
        data_dir: Folder with the official files; by default they are downloaded once.
        accelerated: Whether to train an accelerated network; None: where one is available.
        progress: Callback for the training.
    """
    if name not in REMOVED:
        choices = ", ".join(f"{known}{NO_ANCHORS}" for known in REMOVED)
        raise InputError(f"Unknown data set {name + NO_ANCHORS!r}. Choose one of: {choices}.")
    dataset = data.load_dataset(name, data_dir)
    scores = clean_scores(dataset, accelerated=accelerated, progress=progress)
    return replace(dataset, name=f"{name}{NO_ANCHORS}", train=without_anchors(dataset.train, scores, REMOVED[name]))


def clean_scores(dataset: Dataset, *, accelerated: bool | None = None, progress: Progress | None = None) -> Array:
    """(N,) log odds of the true class of each training row; computed once, then read from the user's cache."""
    preset = presets.find(dataset.name, "fast")
    accelerate = choose(preset.network, accelerated)
    path = cache_dir() / "clean-scores" / f"{dataset.name}-{_digest(dataset, preset, accelerate)}.npy"
    if (scores := _read(path, len(dataset.train))) is None:
        scores = _train_and_score(dataset, preset, accelerate, path.with_suffix(".ckpt"), progress)
        with replace_file(path) as temporary, temporary.open("wb") as file:
            np.save(file, scores)
        path.with_suffix(".ckpt").unlink(missing_ok=True)
    return scores


def _digest(dataset: Dataset, preset: Preset, accelerate: bool) -> str:
    """A hash of everything that the scores depend on."""
    settings = [preset.network, asdict(preset.recipe), preset.augmentation, _SEED, _threads(preset)]
    settings += ["accelerated"] if accelerate else []
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    digest.update(np.ascontiguousarray(dataset.train.tensor.numpy()).data)
    digest.update(np.ascontiguousarray(dataset.train.y).data)
    return digest.hexdigest()[:12]


def _threads(preset: Preset) -> int:
    """A fixed number, not that of the run: rounding, and with it the order of the images, depends on it."""
    return 1 if preset.network in _SMALL else 2


def _read(path: Path, count: int) -> Array | None:
    try:
        scores = read_array(path)
    except InputError:
        return None
    return scores if scores.shape == (count,) and scores.dtype.kind == "f" and np.isfinite(scores).all() else None


def _train_and_score(
    dataset: Dataset, preset: Preset, accelerate: bool, checkpoint: Path, progress: Progress | None
) -> Array:
    recipe = replace(preset.recipe, selection="last")
    augment = AUGMENTATIONS[preset.augmentation] if preset.augmentation else None
    x, y, normalize = dataset.train.tensor, dataset.train.y, dataset.normalize

    def after_epoch(history: list[Record]) -> None:
        if progress is not None:
            progress(title, len(history), recipe.epochs)

    title = f"anchor points of {dataset.name}"
    if progress is not None:
        progress(title, 0, recipe.epochs)
    with torch.random.fork_rng(), thread_limit(_threads(preset)):
        torch.manual_seed(_SEED)
        net = build_network(preset.network, dataset.input_shape, dataset.num_classes, accelerate)
        method = methods.get("cross_entropy")(net, dataset.num_classes)
        train = TensorLoader(x, y, recipe.batch_size, normalize=normalize, augment=augment)
        with thread_share(method, accelerate):
            fit(method, train, None, recipe, checkpoint, seed=_SEED, fabric=OneDevice("cpu"), on_epoch=after_epoch)
        with torch.inference_mode():
            rows = TensorLoader(x, y, _EVALUATION_BATCH, normalize=normalize)
            return torch.cat([_log_odds(method(batch.x), batch.y) for batch in rows]).numpy()


def _log_odds(logits: Tensor, y: Tensor) -> Tensor:
    """(N,) log odds of each label, which order rows even where probabilities round to one."""
    own = y[:, None]
    logits = logits.double()
    others = logits.scatter(1, own, -torch.inf).logsumexp(1)
    return logits.gather(1, own)[:, 0] - others
