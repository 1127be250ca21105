"""Errors of the estimators of T, on synthetic and on real posteriors.

::

    python benchmarks/estimators.py synthetic --seeds 2 --out synthetic.json
    python benchmarks/estimators.py posteriors --data-dir DIR --posteriors CACHE --out posteriors.json

``synthetic``: clean posteriors from a Dirichlet distribution without anchor points, C = 3, 5 and 10, three transition
matrices, exact or with unbiased errors (``kappa`` = 300: standard deviation of about 0.03; 50: about 0.07), 3,000 rows,
labels independent of the errors.

``posteriors``: out-of-fold posteriors of ordinary classifiers, as ``.npz`` files with ``probs``, ``labels`` (noisy),
``clean`` and ``transition``. With ``--data-dir``, the posteriors of LeNet-5 on MNIST are computed first and saved in
the folder. Noise rate and ranking are compared with cleanlab's.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cleanlab.count import compute_confident_joint
from cleanlab.rank import get_label_quality_scores
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy

from volmin import noise, quality
from volmin._typing import AnyArray, Array, Labels
from volmin.data import load_dataset
from volmin.estimation import EstimatorName, estimate_transition, minimum_volume
from volmin.networks import lenet5
from volmin.transition import transition_error

METHODS: tuple[EstimatorName, ...] = ("volume", "max", "percentile", "dual", "confident")
CONCENTRATION = {3: (0.7, 0.85), 5: (0.6, 0.75), 10: (0.5, 0.65)}
"""For each C, the Dirichlet parameter and the largest clean posterior."""

REAL_NOISES = ("pair:0.45", "asymmetric:0.3", "symmetric:0.5", "clean")

Row = dict[str, Any]


def synthetic(seeds: int) -> list[Row]:
    """A row per setting with the mean error of each estimator over the seeds."""
    rows = []
    for kappa in (None, 300, 50):
        for C in CONCENTRATION:
            for kind in ("pair 0.45", "symmetric 0.5", "random"):
                errors = [errors_of_all(*overlapping(C, kind, kappa, seed)) for seed in range(seeds)]
                means = {name: float(np.mean([e[name] for e in errors])) for name in METHODS}
                rows.append({"kappa": kappa or "exact", "C": C, "noise": kind, **means})
                print_row(rows[-1])
    for kappa in ("exact", 300, 50):
        block = [row for row in rows if row["kappa"] == kappa]
        means = {name: float(np.mean([row[name] for row in block])) for name in METHODS}
        print_row({"kappa": kappa, "C": "all", "noise": "mean", **means})
        wins = {name: sum(row["volume"] < row[name] for row in block) for name in METHODS[1:]}
        counts = ", ".join(f"{name} {n}/9" for name, n in wins.items())
        print(f"settings in which volume has the smaller error: {counts}")
    return rows


def overlapping(C: int, kind: str, kappa: float | None, seed: int, n: int = 3000) -> tuple[Array, Labels, Array]:
    """Noisy posteriors of overlapping classes, labels drawn from the exact posteriors, and T."""
    generator = np.random.default_rng([C, seed])
    alpha, most = CONCENTRATION[C]
    clean = generator.dirichlet(np.full(C, alpha), 20 * n)
    clean = clean[clean.max(axis=1) <= most][:n]
    T = {
        "pair 0.45": noise.pair(C, 0.45),
        "symmetric 0.5": noise.symmetric(C, 0.5),
        "random": random_transition(C, generator),
    }[kind]
    probs = clean @ T.T
    labels = (probs.cumsum(axis=1) > generator.random((n, 1))).argmax(axis=1)
    if kappa is not None:
        draws = generator.gamma(kappa * probs)
        probs = draws / draws.sum(axis=1, keepdims=True)
    return probs, labels, T


def random_transition(C: int, generator: np.random.Generator) -> Array:
    """A dominant T with a different noise rate in each column."""
    A = generator.uniform(0, 1, (C, C)) * generator.uniform(0.1, 0.9, C) * min(1, 3 / C)
    np.fill_diagonal(A, 1)
    return A / A.sum(axis=0)


def errors_of_all(probs: Array, labels: Labels, T: Array) -> dict[str, float]:
    return {name: transition_error(T, estimate_transition(probs, labels, name)) for name in METHODS}


def posteriors(folder: Path) -> list[Row]:
    """A row per file: errors of T, noise rates, and AUROC of the wrong labels."""
    rows = []
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as data:
            rows.append({"case": file.stem, **evaluated(**{key: data[key] for key in data.files})})
        print_row(rows[-1])
    return rows


def evaluated(
    probs: Array,
    labels: Labels,
    clean: Labels,
    transition: Array,
) -> Row:
    start = time.perf_counter()
    ours = minimum_volume(probs, labels)
    seconds = time.perf_counter() - start
    others = {name: estimate_transition(probs, labels, name) for name in METHODS[1:]}
    errors = {name: transition_error(transition, T) for name, T in {"volume": ours.transition, **others}.items()}
    wrong = labels != clean
    h = ours.clean_posteriors(probs)
    joint = np.asarray(compute_confident_joint(labels, np.asarray(probs, dtype=float)))
    row = {
        **errors,
        "reading": ours.reading,
        "noise": float(wrong.mean()),
        "noise_volume": quality.noise_rate(quality.joint(labels, h, ours.transition)),
        "noise_cleanlab": float(1 - joint.trace() / joint.sum()),
    }
    if wrong.any():
        row["auroc_volume"] = roc_auc_score(wrong, -quality.label_quality(labels, h, ours.transition))
        row["auroc_cleanlab"] = roc_auc_score(wrong, -get_label_quality_scores(labels, probs))
    return {**row, "seconds": seconds}


def compute_posteriors(data_dir: Path, folder: Path) -> None:
    """Save posteriors of LeNet-5 on MNIST, two folds and four epochs, for each noise without a file."""
    folder.mkdir(parents=True, exist_ok=True)
    data = load_dataset("mnist", data_dir)
    for text in REAL_NOISES:
        file = folder / f"mnist-lenet5-{text.replace(':', '')}.npz"
        if file.exists():
            continue
        T = noise.parse(text, data.num_classes)
        labels = noise.corrupt(data.train.y, T, seed=1)
        assert isinstance(data.train.x, torch.Tensor)
        probs = out_of_fold(data.normalize(data.train.x), torch.from_numpy(labels))
        np.savez(file, probs=probs, labels=labels, clean=data.train.y, transition=T)


def out_of_fold(x: torch.Tensor, y: torch.Tensor, epochs: int = 4, seed: int = 0) -> AnyArray:
    """Posteriors (N, 10) of each half of the rows from a network trained on the other half."""
    torch.manual_seed(seed)
    probs = torch.empty(len(y), 10)
    halves = torch.randperm(len(y)).chunk(2)
    for train, held_out in (halves, halves[::-1]):
        net = lenet5()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
        for _ in range(epochs):
            for rows in train[torch.randperm(len(train))].split(128):
                optimizer.zero_grad()
                cross_entropy(net(x[rows]), y[rows]).backward()
                optimizer.step()
        with torch.no_grad():
            probs[held_out] = torch.cat([net(x[rows]).softmax(dim=1) for rows in held_out.split(1000)])
    return probs.numpy()


def print_row(row: Row) -> None:
    cells: Iterable[str] = (
        f"{key} {value:.3f}" if isinstance(value, float) else f"{value}" for key, value in row.items()
    )
    print("  ".join(cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=["synthetic", "posteriors"])
    parser.add_argument("--seeds", type=int, default=2, help="repetitions of each synthetic setting")
    parser.add_argument("--posteriors", type=Path, help="folder of .npz files")
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST's IDX files, to compute posteriors")
    parser.add_argument("--out", type=Path, help="JSON file of the results")
    arguments = parser.parse_args()
    if arguments.setting == "posteriors":
        if arguments.posteriors is None:
            parser.error("posteriors requires --posteriors DIR, the folder of the .npz files")
        if arguments.data_dir is not None:
            compute_posteriors(arguments.data_dir, arguments.posteriors)
        rows = posteriors(arguments.posteriors)
    else:
        rows = synthetic(arguments.seeds)
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
