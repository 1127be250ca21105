"""Judges: models that give out-of-fold posteriors of the given labels, weighted by the likelihood of these labels.

A model's own mistakes look like label noise, so the better model gives the better audit, and the held-out likelihood of
the given labels tells which one that is. By default several judges suited to the data are cross-fitted, and their
calibrated posteriors are mixed with the convex weights that maximise this likelihood (stacking).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from volmin import networks
from volmin._typing import AnyArray, Array, Labels
from volmin.auditing.crossfit import HeldOut, cross_fit
from volmin.estimation.em import maximum_likelihood_transition
from volmin.estimation.minimum_volume import calibration, floored, log_likelihood, tempered
from volmin.estimator import NoisyLabelClassifier
from volmin.exceptions import InputError
from volmin.progress import Progress, announce
from volmin.training import Record

STEPS = 1300
"""Optimisation steps that the number of epochs of a network aims at."""

SMALLEST_IMAGE = 16
"""Images with a shorter side are too small for a convolutional network and are used as plain pixels."""

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
"""Values of C, the inverse penalty of logistic regression, among which the held-out likelihood chooses."""

MOST_LINEAR_FEATURES = 5000
BOOSTED_NUMBERS = 5_000_000
"""Largest number of features for logistic regression, and of rows times features times classes for boosting."""

SCREENED_ROWS = 20_000
"""With more rows, the judges compete on a sample of this size."""

SMALLEST_WEIGHT = 0.05
"""Judges with a smaller weight are left out."""

FEW_ROWS = 1000
REPEATS = 3
"""With fewer rows, the judges compete on all folds, and the cross-fitting of those that win is repeated, since its
folds are a source of chance. With more, they compete on the first fold, and only those that win are fitted to the
others."""

TEMPERATURES = (0.5, 0.7, 1.0, 1.4, 2.0)
"""Factors of the log posteriors among which the likelihood chooses for a network with its own T."""


def network(num_rows: int) -> NoisyLabelClassifier:
    """VolMinNet with a small network, trained in fewer and larger steps than by default, since each fold needs one."""
    batch_size = min(1024, max(16, num_rows // 25))
    epochs = min(100, max(10, STEPS * batch_size // num_rows))
    return NoisyLabelClassifier(batch_size=batch_size, epochs=epochs, lr=0.1)


def image_network(num_rows: int) -> NoisyLabelClassifier:
    """VolMinNet with a small convolutional network, for (N, channels, height, width) images of unit scale."""

    def build(shape: tuple[int, ...], num_classes: int) -> nn.Module:
        return networks.fast_cnn(num_classes, shape[0], widths=(16, 32, 64))

    batch_size = min(256, max(16, num_rows // 25))
    epochs = min(15, max(5, STEPS * batch_size // num_rows))
    return NoisyLabelClassifier(network=build, batch_size=batch_size, epochs=epochs, lr=0.05)


def _logistic(penalty: float) -> Any:
    return make_pipeline(StandardScaler(), LogisticRegression(C=penalty, max_iter=300))


MODELS: dict[str, Callable[[int], Any]] = {
    "network": network,
    "logistic": lambda _: _logistic(0.01),
    "forest": lambda _: RandomForestClassifier(300, min_samples_leaf=3),
    "boosting": lambda _: HistGradientBoostingClassifier(learning_rate=0.05, max_iter=60, max_leaf_nodes=15),
}
"""Models by name, as functions of the number of rows; regularised, since overfitting reproduces wrong labels."""


@dataclass(frozen=True)
class Judge:
    """A model that took part in an audit.

    Attributes:
        name: Name of the model.
        weight: Its share in the posteriors that the audit uses.
        log_likelihood: Mean log probability of the given labels of rows that it was not trained on.
        agreement: Share of these labels that are its most probable ones.
    """

    name: str
    weight: float
    log_likelihood: float
    agreement: float


@dataclass(frozen=True)
class Judgement:
    """Out-of-fold posteriors of the given labels, and the judges that gave them.

    Attributes:
        probs: (N, C) posteriors, the mean over the repetitions of the cross-fitting.
        judges: The judges, the one with the largest weight first.
        repeated: (R, N, C) posteriors of each repetition; R = 0 without repetition.
        histories: Records of a network per epoch, for each fold.
    """

    probs: Array
    judges: list[Judge]
    repeated: Array = field(default_factory=lambda: np.empty((0, 0, 0)))
    histories: list[list[Record]] = field(default_factory=list)


def given_judgement(probs: Array, labels: Labels) -> Judgement:
    """The judgement of posteriors that were given by the user."""
    known = labels >= 0
    return Judgement(probs, [_judge("given probabilities", 1.0, floored(probs[known]), labels[known])])


def resolve_models(model: Any, rows: int, shape: Sequence[int], num_classes: int) -> dict[str, Any]:
    """The classifiers that ``model`` stands for, by name: those that compete for "auto", otherwise a single one.

    Args:
        model: Argument of ``volmin.audit``.
        rows: Number of rows with a label.
        shape: Shape of the features of one row.
        num_classes: Number of classes C.
    """
    features = int(np.prod(shape))
    net = image_network if len(shape) == 3 and min(shape[1:]) >= SMALLEST_IMAGE else network
    if isinstance(model, str) and model == "auto":
        found: dict[str, Any] = {"network": net(rows)}
        if features <= MOST_LINEAR_FEATURES:
            found |= {f"logistic, C = {penalty:g}": _logistic(penalty) for penalty in PENALTIES}
        if min(rows, SCREENED_ROWS) * features * num_classes <= BOOSTED_NUMBERS:
            found["boosting"] = MODELS["boosting"](rows)
        return found
    if isinstance(model, str):
        if model not in MODELS:
            raise InputError(f"There is no model {model!r}. Choose one of: auto, {', '.join(MODELS)}.")
        return {model: net(rows) if model == "network" else MODELS[model](rows)}
    if not hasattr(model, "fit") or not hasattr(model, "predict_proba"):
        raise InputError(
            f"model must be a scikit-learn classifier with fit and predict_proba, but is {type(model).__name__};"
            " wrap a classifier without predict_proba in CalibratedClassifierCV."
        )
    return {type(model).__name__: model}


def judge(
    models: Mapping[str, Any],
    x: AnyArray,
    labels: Labels,
    num_classes: int,
    *,
    folds: int,
    random_state: int,
    threads: int = 1,
    progress: Progress | None = None,
) -> Judgement:
    """Cross-fit the models and mix their posteriors; arguments as in ``cross_fit``."""
    settings: dict[str, Any] = {"folds": folds, "threads": threads, "progress": progress}
    if (labels >= 0).sum() < FEW_ROWS:
        found = cross_fit(models, x, labels, num_classes, random_state=random_state, **settings)
        winners = _winners(models, found, labels)
        seed = random_state + 1
        again = cross_fit(winners, x, labels, num_classes, repeats=REPEATS - 1, random_state=seed, **settings)
        found = {
            name: replace(found[name], probs=np.concatenate([found[name].probs, again[name].probs])) for name in winners
        }
    elif len(models) > 1:
        found = _screened(models, x, labels, num_classes, random_state=random_state, settings=settings)
    else:
        found = cross_fit(models, x, labels, num_classes, random_state=random_state, **settings)
    announce("weighting models", progress)
    return stack(found, labels)


def _screened(
    models: Mapping[str, Any],
    x: AnyArray,
    labels: Labels,
    num_classes: int,
    *,
    random_state: int,
    settings: Mapping[str, Any],
) -> dict[str, HeldOut]:
    """Posteriors of the models that win on the first fold, of a sample if there are many rows; as in ``cross_fit``."""
    rows = np.arange(len(x))
    if len(x) > SCREENED_ROWS:
        rows = np.random.default_rng(random_state).permutation(np.flatnonzero(labels >= 0))[:SCREENED_ROWS]
    first = cross_fit(models, x[rows], labels[rows], num_classes, parts=[0], random_state=random_state, **settings)
    winners = _winners(models, first, labels[rows])
    if len(rows) < len(x):
        return cross_fit(winners, x, labels, num_classes, random_state=random_state, **settings)
    others = range(1, settings["folds"])
    rest = cross_fit(winners, x, labels, num_classes, parts=others, random_state=random_state, **settings)
    return {name: first[name].with_folds(rest[name]) for name in winners}


def _winners(models: Mapping[str, Any], held_out: Mapping[str, HeldOut], labels: Labels) -> dict[str, Any]:
    """The models that have a weight in the mixture of the posteriors of the predicted rows."""
    predicted = next(iter(held_out.values())).probs[0].any(axis=1)
    seen = {name: replace(found, probs=found.probs[:, predicted]) for name, found in held_out.items()}
    return {entry.name: models[entry.name] for entry in stack(seen, labels[predicted]).judges}


def stack(held_out: Mapping[str, HeldOut], labels: Labels) -> Judgement:
    """Mix posteriors by the weights that maximise the likelihood of the given labels.

    Of several logistic regressions only the one of largest likelihood takes part. A network with its own T contributes
    ``h T'`` with one T for all folds, fitted to the held-out labels.

    Args:
        held_out: Posteriors of each model.
        labels: (N,) given labels; -1 for rows without one.
    """
    noisy = {name: _of_given_label(found, labels) for name, found in held_out.items()}
    known = labels >= 0
    means = {name: probs.mean(axis=0)[known] for name, probs in noisy.items()}
    labels = labels[known]
    scores = {name: float(log_likelihood(mean, labels).mean()) for name, mean in means.items()}
    linear = [name for name in scores if name.startswith("logistic")]
    best_linear = max(linear, key=lambda name: scores[name], default="")
    names = [name for name in scores if name not in linear or name == best_linear]
    weights = mixture_weights(np.stack([means[name][np.arange(len(labels)), labels] for name in names], axis=1))
    kept = weights >= SMALLEST_WEIGHT
    weights = weights[kept] / weights[kept].sum()
    chosen = sorted(
        zip((name for name, keep in zip(names, kept, strict=True) if keep), weights, strict=True),
        key=lambda pair: -pair[1],
    )
    repeated = sum(weight * noisy[name] for name, weight in chosen)
    assert isinstance(repeated, np.ndarray)
    return Judgement(
        probs=repeated.mean(axis=0),
        judges=[_judge(name, float(weight), means[name], labels) for name, weight in chosen],
        repeated=repeated if len(repeated) > 1 else repeated[:0],
        histories=[history for name, _ in chosen for history in held_out[name].histories],
    )


def mixture_weights(likelihoods: Array, iterations: int = 300) -> Array:
    """Convex weights, (K,), under which the mixture of K models has the largest likelihood; EM, which is concave here.

    Args:
        likelihoods: (N, K) probabilities of the labels under each model.
        iterations: Number of EM steps.
    """
    weights = np.full(likelihoods.shape[1], 1 / likelihoods.shape[1])
    for _ in range(iterations):
        shares = weights * likelihoods
        weights = (shares / shares.sum(axis=1, keepdims=True)).mean(axis=0)
    return weights


def _of_given_label(found: HeldOut, labels: Labels) -> Array:
    """(R, N, C) calibrated posteriors of the given label."""
    probs = np.stack([floored(part) for part in found.probs])
    # A sample determines the few parameters that are fitted here.
    known = np.flatnonzero(labels >= 0)
    sample = known[:: -(-len(known) // SCREENED_ROWS)]
    mean, y = floored(probs.mean(axis=0)[sample]), labels[sample]
    if not found.clean:
        factor = calibration(mean, y)
        return np.stack([tempered(part, factor) for part in probs])
    factor, T = max(
        ((factor, _transition_of(tempered(mean, factor), y)) for factor in TEMPERATURES),
        key=lambda pair: log_likelihood(floored(tempered(mean, pair[0]) @ pair[1].T), y).mean(),
    )
    return np.stack([floored(tempered(part, factor) @ T.T) for part in probs])


def _transition_of(clean: Array, labels: Labels) -> Array:
    return maximum_likelihood_transition(clean, labels, dominant=True, tolerance=1e-3, max_iterations=200)


def _judge(name: str, weight: float, probs: Array, labels: Labels) -> Judge:
    agreement = float((probs.argmax(axis=1) == labels).mean())
    return Judge(name, weight, float(log_likelihood(probs, labels).mean()), agreement)
