"""The identity of a run: everything that defines it, and the folder that follows from it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from volmin import methods
from volmin.exceptions import InputError
from volmin.experiments import acceleration, presets
from volmin.training import PrecisionName, Recipe
from volmin.training.precision import check_precision

_ALWAYS = ("dataset", "noise", "method", "seed", "preset", "network", "recipe", "options", "devices", "threads")
"""Fields that every spec records; the others only where they differ from their defaults."""


@dataclass(frozen=True)
class RunSpec:
    """One run, with nothing left to defaults: two runs with equal specs give equal results."""

    dataset: str
    noise: str
    method: str
    seed: int
    preset: str
    network: str
    recipe: Recipe
    options: Mapping[str, Any]
    devices: int = 1
    threads: int = 1
    """Threads of each device's process; part of the identity, because rounding depends on their number."""
    augmentation: str | None = None
    """Augmentation of training images, by its name in ``volmin.data.AUGMENTATIONS``."""
    image_side: int | None = None
    """Side in pixels to which images are resized; None: the data set's own size."""
    pretrained: bool = False
    """Whether training starts from weights in the data directory."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Identity of the user's own data, or of labels from a file: names, columns and a hash of the content."""
    accelerated: bool = False
    """Whether the network is an accelerated one, which rounds differently."""
    precision: PrecisionName = "32"
    """Arithmetic of the networks."""
    patience: int | None = None
    """Number of epochs without a better noisy validation score after which a phase ends."""

    def as_json(self) -> dict[str, Any]:
        """The content of ``spec.json``, without the optional settings that a run does not use."""
        return dict(self._content)

    @cached_property
    def _content(self) -> dict[str, Any]:
        # Cached, because a table compares every record with every spec.
        content = json.loads(json.dumps(asdict(self)))
        defaults = {field.name: field.default for field in fields(self)} | {"data": {}}
        return {key: value for key, value in content.items() if key in _ALWAYS or value != defaults[key]}

    def folder(self, out: Path) -> Path:
        """The folder of the run below ``out``: ``<dataset>-<noise>-<method>-s<seed>-<hash>``."""
        digest = hashlib.sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()[:8]
        dataset = Path(self.data["file"]).stem if "file" in self.data else self.dataset
        noise = Path(self.noise).stem if self.noise.endswith(".npy") else self.noise.replace(":", "")
        if "labels_file" in self.data:
            noise = self.data["labels_key"] or Path(self.data["labels_file"]).stem
        name = f"{dataset.replace('/', '-')}-{noise}-{self.method.replace(':', '.')}-s{self.seed}-{digest}"
        return out / re.sub(r"[^\w.+-]+", "_", name)


def resolve(
    dataset: str,
    noise: str,
    method: str,
    *,
    seed: int = 1,
    preset: str = "official",
    network: str | None = None,
    epochs: int | None = None,
    options: Mapping[str, Any] | None = None,
    devices: int = 1,
    threads: int = 1,
    data: Mapping[str, Any] | None = None,
    rows: int | None = None,
    accelerated: bool | None = None,
    precision: PrecisionName = "32",
    patience: int | None = None,
) -> RunSpec:
    """The spec that results from a preset and the user's changes to it.

    Args:
        dataset: Name of a data set, ``table`` or ``images``.
        noise: Noise to draw, as ``volmin.noise.parse`` understands it.
        method: Name of a method, or ``package.module:Class``.
        seed: Random seed of the noise, the split, the network and the training.
        preset: Name of the preset.
        network: Network instead of the preset's.
        epochs: Number of epochs instead of the preset's.
        options: Options of the method.
        devices: Number of devices.
        threads: Threads of each process.
        data: ``DataSource.identity()`` of the user's own data or labels.
        rows: ``DataSource.rows`` of the user's own data.
        accelerated: Whether to use the accelerated version of the network; None: where it is available.
            It computes in single precision.
        precision: Arithmetic of the networks.
        patience: Number of epochs without a better noisy validation score after which a phase ends; None: never.
    """
    settings = presets.find(dataset, preset, rows)
    kind = methods.get(method)
    methods.check_options(kind, options or {})
    recipe = settings.recipe_for(kind)
    if epochs is not None:
        recipe = shorten(recipe, epochs)
    for name, count in (("devices", devices), ("threads", threads)):
        if count < 1:
            raise InputError(f"{name} must be at least 1, but is {count}.")
    check_precision(precision)
    if precision != "32":
        if accelerated:
            raise InputError(f"Accelerated networks compute in single precision: leave out --precision {precision}.")
        accelerated = False
    chosen = {**methods.option_defaults(kind), **settings.options.get(method, {}), **(options or {})}
    return RunSpec(
        dataset=dataset,
        noise=noise,
        method=method,
        seed=seed,
        preset=preset,
        network=network or settings.network,
        recipe=recipe,
        options=chosen,
        devices=devices,
        threads=threads,
        augmentation=settings.augmentation,
        image_side=settings.image_side,
        pretrained=settings.pretrained,
        data=data or {},
        accelerated=acceleration.choose(network or settings.network, accelerated),
        precision=precision,
        patience=patience,
    )


def shorten(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe over another number of epochs, with its milestones at the same shares of training."""
    # A milestone of 0 would skip the first learning rate altogether.
    milestones = tuple(max(1, round(milestone * epochs / recipe.epochs)) for milestone in recipe.milestones)
    return replace(recipe, epochs=epochs, milestones=milestones)
