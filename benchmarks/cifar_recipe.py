"""Ablation of the preset ``fast`` for CIFAR-10: short trainings with one setting changed.

    python benchmarks/cifar_recipe.py --data-dir data/cifar10
    python benchmarks/cifar_recipe.py --data-dir data/cifar10 "half the batch"   # only this change

Each is VolMinNet with sym:0.2, seed 1 and all epochs of the preset on the first 20,000 images, in one thread: about
five minutes. Compare noisy validation losses; test accuracy (on the first 2,000 images) and the error of T are shown
but must not decide. Runs that are complete in ``--out`` are not repeated.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from volmin import load_dataset
from volmin.data import AUGMENTATIONS, ProgressiveCropFlip
from volmin.experiments.folder import read_metrics
from volmin.experiments.run import run, set_up
from volmin.experiments.spec import RunSpec, resolve
from volmin.io.atomic import read_json, write_json
from volmin.networks.fast_cnn import FastCNN, IdentityConv2d
from volmin.networks.registry import BUILDERS

ROWS, TEST_ROWS = 20_000, 2_000


def cifar_cnn(num_classes: int, widths: Sequence[int] = (48, 192, 192), **changes: Any) -> FastCNN:
    """The preset's network with other settings."""
    return FastCNN(num_classes, 3, widths, **{"mirrored": True, **changes})


def random_stem(num_classes: int) -> nn.Module:
    """A network whose first convolution starts at random and is learned."""
    net = cifar_cnn(num_classes)
    net[0] = nn.Conv2d(3, 24, 2)
    return net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def random_convolutions(num_classes: int) -> nn.Module:
    """A network whose other convolutions start at random."""
    net = cifar_cnn(num_classes)
    for layer in net:
        if isinstance(layer, IdentityConv2d):
            nn.Conv2d.reset_parameters(layer)
            layer.reset_parameters = lambda layer=layer: nn.Conv2d.reset_parameters(layer)
    return net


class Scaled(nn.Module):
    """A network whose logits are multiplied by a factor."""

    def __init__(self, factor: float, net: nn.Module) -> None:
        super().__init__()
        self.factor, self.net = factor, net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * self.net(x)


NETWORKS: dict[str, Callable[[int], nn.Module]] = {
    "random_stem": random_stem,
    "random_convolutions": random_convolutions,
    "logits_by_9": lambda num_classes: Scaled(1 / 3, cifar_cnn(num_classes)),
    "logits_by_1": lambda num_classes: Scaled(3, cifar_cnn(num_classes)),
    "not_mirrored": lambda num_classes: cifar_cnn(num_classes, mirrored=False),
    "narrow": lambda num_classes: cifar_cnn(num_classes, (32, 128, 128)),
    "wide": lambda num_classes: cifar_cnn(num_classes, (64, 256, 256)),
}
for name, build in NETWORKS.items():
    BUILDERS[name] = lambda shape, num_classes, build=build: build(num_classes)
AUGMENTATIONS["full_size"] = ProgressiveCropFlip(scales=(1.0,))
AUGMENTATIONS["random_flips"] = ProgressiveCropFlip(alternating=False)
AUGMENTATIONS["crop_2"] = ProgressiveCropFlip(2)
CHANGES: dict[str, Mapping[str, Any]] = {
    "the preset": {},
    "bfloat16": {"precision": "bf16-mixed"},
    "no mirror images in evaluation": {"network": "not_mirrored"},
    "two thirds of the channels": {"network": "narrow"},
    "four thirds of the channels": {"network": "wide"},
    "images of 32 pixels throughout": {"augmentation": "full_size"},
    "random flips": {"augmentation": "random_flips"},
    "crops moved by 2 pixels, not 4": {"augmentation": "crop_2"},
    "no augmentation": {"augmentation": None},
    "first convolution random": {"network": "random_stem"},
    "other convolutions random": {"network": "random_convolutions"},
    "logits divided by 9, not 3": {"network": "logits_by_9"},
    "logits not divided": {"network": "logits_by_1"},
    "half the batch": {"recipe": {"batch_size": 128, "lr": 0.1}},
    "half the learning rate": {"recipe": {"lr": 0.1}},
    "twice the learning rate": {"recipe": {"lr": 0.4}},
    "twice the weight decay": {"recipe": {"weight_decay": 1e-3}},
    "late decay": {"recipe": {"schedule": "late_decay"}},
    "a quarter of T's learning rate": {"recipe": {"transition_lr": 5e-3}},
    "no warm-up": {"options": {"warm_up": 0.0}},
    "no volume term": {"options": {"lam": 0.0}},
    "no recalibration": {"options": {"recalibrate": False}},
}
COLUMNS = {"val_loss": ".4f", "val_accuracy": ".2%", "accuracy": ".2%", "transition_error": ".3f", "seconds": ".0f"}
"""Figures of the last epoch, but the error of the final T, with their formats."""


def changed(change: Mapping[str, Any]) -> RunSpec:
    """The preset's run with one setting changed."""
    spec = resolve("cifar10", "sym:0.2", "volminnet", preset="fast")
    recipe = replace(spec.recipe, **change.get("recipe", {}))
    options = {**spec.options, **change.get("options", {})}
    network, augmentation = change.get("network", spec.network), change.get("augmentation", spec.augmentation)
    precision = change.get("precision", spec.precision)
    return replace(
        spec, recipe=recipe, options=options, network=network, augmentation=augmentation, precision=precision
    )


def main() -> None:
    """Run the chosen changes and show all recorded ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CHANGES, []], default=[])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/recipe"), help="Folder for these runs alone.")
    parser.add_argument("--json", type=Path, default=Path("results/cifar10-recipe.json"))
    arguments = parser.parse_args()
    whole = load_dataset("cifar10", arguments.data_dir)
    part = replace(whole, train=whole.train.take(np.arange(ROWS)), test=whole.test.take(np.arange(TEST_ROWS)))
    found = read_json(arguments.json) if arguments.json.exists() else {}
    for name in arguments.names or CHANGES:
        spec = changed(CHANGES[name])
        result = run(set_up(spec, dataset=part), arguments.out)
        last = read_metrics(spec.folder(arguments.out))[-1] | {"transition_error": result["transition_error"]}
        found[name] = {column: last[column] for column in COLUMNS}
        write_json(arguments.json, {known: found[known] for known in CHANGES if known in found})
    table = Table(box=None)
    for column in ("", *COLUMNS):
        table.add_column(column.replace("_", " "), justify="right" if column else "left")
    for name, last in found.items():
        table.add_row(name, *(format(last[column], form) for column, form in COLUMNS.items()))
    Console(highlight=False).print(table)


if __name__ == "__main__":
    main()
