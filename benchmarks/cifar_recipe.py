"""What each part of the preset ``fast`` for CIFAR-10 is worth: short trainings with one thing changed.

    python benchmarks/cifar_recipe.py --data-dir data/cifar10
    python benchmarks/cifar_recipe.py --data-dir data/cifar10 "half the batch"   # only this

VolMinNet, sym:0.2, seed 1, four epochs (and one of warm-up) of the first 20,000 images on one thread, a few minutes
each on a CPU. Noisy validation data judges: test accuracy and the error of T are shown, and choose nothing. What is
finished in ``--out`` is not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from volmin import load_dataset, networks
from volmin.data import AUGMENTATIONS, CropFlip
from volmin.experiments.run import read_metrics, run, set_up
from volmin.experiments.spec import RunSpec, resolve
from volmin.io.atomic import read_json, write_json
from volmin.networks.fast_cnn import PassingConv2d

ROWS, EPOCHS = 20_000, 4


def random_stem(num_classes: int) -> nn.Module:
    """A first convolution that starts anywhere and is learned."""
    net = networks.fast_cnn(num_classes)
    net[0] = nn.Conv2d(3, 24, 2)  # pyright: ignore[reportIndexIssue]
    return net.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]


def random_convolutions(num_classes: int) -> nn.Module:
    """All other convolutions start anywhere."""
    net = networks.fast_cnn(num_classes)
    for layer in net:  # pyright: ignore[reportGeneralTypeIssues]
        if isinstance(layer, PassingConv2d):
            nn.Conv2d.reset_parameters(layer)
            layer.reset_parameters = lambda layer=layer: nn.Conv2d.reset_parameters(layer)
    return net


class Times(nn.Module):
    """Logits of a network times a factor."""

    def __init__(self, factor: float, net: nn.Module) -> None:
        super().__init__()
        self.factor, self.net = factor, net

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * self.net(x)


def quiet(num_classes: int) -> nn.Module:
    """Logits divided by nine, not three."""
    return Times(1 / 3, networks.fast_cnn(num_classes))


def loud(num_classes: int) -> nn.Module:
    """Logits as the last layer makes them."""
    return Times(3, networks.fast_cnn(num_classes))


for build in (random_stem, random_convolutions, quiet, loud):
    networks.BUILDERS[build.__name__] = lambda shape, num_classes, build=build: build(num_classes)
AUGMENTATIONS["crop_2_flip"] = CropFlip(2)
CHANGES: dict[str, Mapping[str, Any]] = {
    "as it is": {},
    "the first convolution starts anywhere": {"network": "random_stem"},
    "the others start anywhere": {"network": "random_convolutions"},
    "logits are divided by 9, not 3": {"network": "quiet"},
    "logits are not divided": {"network": "loud"},
    "half the batch": {"recipe": {"batch_size": 128, "lr": 0.1}},
    "half the learning rate": {"recipe": {"lr": 0.1}},
    "twice the learning rate": {"recipe": {"lr": 0.4}},
    "twice the weight decay": {"recipe": {"weight_decay": 1e-3}},
    "late decay": {"recipe": {"schedule": "late_decay"}},
    "crops moved by 2, not 4": {"augmentation": "crop_2_flip"},
    "no augmentation": {"augmentation": None},
    "no warm-up": {"options": {"warm_up": 0.0}},
    "no volume": {"options": {"lam": 0.0}},
}
COLUMNS = {"val_loss": ".4f", "val_accuracy": ".2%", "accuracy": ".2%", "transition_error": ".3f", "seconds": ".0f"}
"""What is shown of the last epoch."""


def changed(change: Mapping[str, Any]) -> RunSpec:
    """The run with one thing changed."""
    spec = resolve("cifar10", "sym:0.2", "volminnet", preset="fast", epochs=EPOCHS)
    recipe = replace(spec.recipe, **change.get("recipe", {}))
    options = {**spec.options, **change.get("options", {})}
    network, augmentation = change.get("network", spec.network), change.get("augmentation", spec.augmentation)
    return replace(spec, recipe=recipe, options=options, network=network, augmentation=augmentation)


def main() -> None:
    """Run the chosen changes, and show all that are recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*CHANGES, []], default=[])
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/recipe"), help="a folder for these runs alone")
    parser.add_argument("--json", type=Path, default=Path("results/cifar10-recipe.json"))
    arguments = parser.parse_args()
    whole = load_dataset("cifar10", arguments.data_dir)
    part = replace(whole, train=whole.train.take(np.arange(ROWS)))
    found = read_json(arguments.json) if arguments.json.exists() else {}
    for name in arguments.names or CHANGES:
        spec = changed(CHANGES[name])
        run(set_up(spec, dataset=part), arguments.out)
        last = read_metrics(spec.folder(arguments.out))[-1]
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
