"""A run's identity: everything that defines it, and the folder that it names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from volmin import methods, networks
from volmin.exceptions import InputError
from volmin.experiments import presets
from volmin.training import Recipe

_OPTIONAL = ("augmentation", "image_side", "pretrained", "data")


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
    """Of each device's process. Another number rounds otherwise, and so is another run."""
    augmentation: str | None = None
    """What happens to training images, by its name in ``volmin.data.AUGMENTATIONS``."""
    image_side: int | None = None
    """Another size of images than the data set's own."""
    pretrained: bool = False
    """Whether training starts from weights in the data directory."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What identifies data of one's own, or labels from a file: names, columns and a hash of the content."""

    def as_json(self) -> dict[str, Any]:
        """The content of ``spec.json``; what a run does without is not mentioned."""
        content = json.loads(json.dumps(asdict(self)))
        return {key: value for key, value in content.items() if value or key not in _OPTIONAL}

    def folder(self, out: Path) -> Path:
        """Where the run lives: ``<dataset>-<noise>-<method>-s<seed>-<hash>``."""
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
) -> RunSpec:
    """The spec that a preset, and what the user changed, come to. Unknown names raise a ``ValueError``.

    ``data`` and ``rows`` are what a ``Source`` tells of data of one's own, and of labels from a file.
    """
    settings = presets.find(dataset, preset, rows)
    kind = methods.get(method)
    methods.check_options(kind, options or {})
    if network is not None:
        networks.check_name(network)
    recipe = settings.recipe_for(kind)
    if epochs is not None:
        recipe = shorten(recipe, epochs)
    for name, count in (("devices", devices), ("threads", threads)):
        if count < 1:
            raise InputError(f"{name} must be at least 1, but is {count}.")
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
    )


def shorten(recipe: Recipe, epochs: int) -> Recipe:
    """The recipe over another number of epochs, with its milestones at the same shares of training."""
    # Not before the first epoch is over: a milestone of 0 would leave out the learning rate that it ends.
    milestones = tuple(max(1, round(milestone * epochs / recipe.epochs)) for milestone in recipe.milestones)
    return replace(recipe, epochs=epochs, milestones=milestones)
