"""Accuracy and error of T in mixed precision beside single precision: ``python -m benchmarks.precision [DATA_DIR]``.

Digits with 35 % pair noise (five seeds), and the first 12,000 images of MNIST with 45 % (one seed) if the folder with
its files is given. Each seed has its own noise, split and network; the three precisions share them. Writes
``results/precision.json``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from volmin import Recipe, fit, load_dataset, networks, noise, transition_error
from volmin.data import Dataset, Part, TensorLoader
from volmin.data.splits import noisy_split
from volmin.methods import VolMinNet
from volmin.training import PrecisionName, clean_probs, thread_limit

PRECISIONS: tuple[PrecisionName, ...] = ("32", "bf16-mixed", "16-mixed")
OUT = Path(__file__).parents[1] / "results" / "precision.json"


def measure(
    data: Dataset, network: str, rate: float, warm_up: float, recipe: Recipe, precision: PrecisionName, seed: int
) -> list[float]:
    """Test accuracy, error of T and seconds of one training."""
    T = noise.pair(data.num_classes, rate)
    split = noisy_split(data.train, T, seed=seed)
    train, validation = (
        TensorLoader(part.tensor, part.y, recipe.batch_size, normalize=data.normalize)
        for part in (split.train, split.validation)
    )
    torch.manual_seed(seed)
    method = VolMinNet(networks.build(network, data.input_shape, data.num_classes), data.num_classes, warm_up=warm_up)
    start = time.perf_counter()
    fit(method, train, validation, recipe, seed=seed, precision=precision, device="cpu")
    seconds = time.perf_counter() - start
    predicted = clean_probs(method, (data.normalize(x) for x in data.test.tensor.split(1000))).argmax(1).numpy()
    return [float((predicted == data.test.y).mean()), transition_error(T, method.transition()), seconds]


def markdown(record: Mapping[str, Any]) -> str:
    """The record as a table for the documentation."""
    lines = ["| data | precision | clean accuracy, % | error of T |", "|---|---|---:|---:|"]
    for name, own in record.items():
        if isinstance(own, dict):
            lines += [
                f"| {name} | `{precision}` | {100 * found['accuracy']:.2f} | {found['transition_error']:.3f} |"
                for precision, found in own.items()
            ]
    return "\n".join(lines) + "\n"


def main() -> None:
    digits = load_dataset("digits")
    settings: dict[str, Any] = {"digits": (digits, "mlp", 0.35, 0.0, Recipe(epochs=100, lr=0.05, weight_decay=1e-3), 5)}
    if len(sys.argv) > 1:
        mnist = load_dataset("mnist", sys.argv[1])
        part = Dataset(
            mnist.name, Part(mnist.train.tensor[:12000], mnist.train.y[:12000]), mnist.test, mnist.classes,
            mean=mnist.mean, std=mnist.std,
        )  # fmt: skip
        recipe = Recipe(epochs=6, lr=0.05, weight_decay=5e-4, schedule="one_cycle", transition_lr=2e-2)
        settings["mnist, 12,000 images"] = (part, "lenet5", 0.45, 0.2, recipe, 1)
    found: dict[str, Any] = {"torch": torch.__version__}
    with thread_limit(1):
        for name, (data, network, rate, warm_up, recipe, seeds) in settings.items():
            found[name] = {}
            for precision in PRECISIONS:
                runs = [measure(data, network, rate, warm_up, recipe, precision, seed) for seed in range(seeds)]
                accuracy, error, seconds = zip(*runs, strict=True)
                found[name][precision] = {
                    "accuracy": fmean(accuracy),
                    "accuracies": accuracy,
                    "transition_error": fmean(error),
                    "seconds": fmean(seconds),
                }
                print(name, precision, found[name][precision], flush=True)
    OUT.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
