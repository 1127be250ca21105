"""Invalid input to public functions: any labels, shapes, types and values give a documented result or a clear error.

For each function, Hypothesis mixes valid and invalid arguments. The result must pass the function's own check, or be a
``ValueError`` or ``TypeError`` with a message.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from scipy import sparse

import volmin
from torture.outcome import Outcome
from volmin import estimation, identifiability, intervals, losses, networks, noise, quality, readings
from volmin.transition import (
    DominantTransition,
    SoftmaxTransition,
    apply_transition,
    as_matrix,
    start_value,
    validate_transition,
    warn_if_degenerate,
)

EXPECTED = (ValueError, TypeError)
ODD_NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, np.nan, np.inf, -np.inf, 1e308, -1e308, 1e-320, 1e-12, 3.0)


def _finite(*arrays: Any) -> None:
    for array in arrays:
        values = array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array, dtype=np.float64)
        assert np.isfinite(values).all(), "the result is not finite"


def _transition(T: Any) -> None:
    _finite(T)
    assert np.allclose(np.asarray(T).sum(axis=0), 1, atol=1e-3), "columns do not sum to one"


def _shares(values: Any) -> None:
    _finite(values)
    assert (np.asarray(values) >= 0).all(), "a share is negative"
    assert (np.asarray(values) <= 1 + 1e-9).all(), "a share is above one"


def _anything(result: Any) -> None:
    """Accept any result."""


def _audit(found: Any) -> None:
    _transition(found.transition)
    _shares(found.quality)
    found.summary()


def _probs(rows: int = 12, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(classes, 0.4), rows)


def odd_arrays(*shape: int) -> st.SearchStrategy[Any]:
    """Arrays of about the given shape with unusual values, types and memory layouts."""
    sides = st.sampled_from([shape, shape, shape[:1], shape[::-1], (0, *shape[1:]), (1, *shape[1:]), (*shape, 2), ()])

    @st.composite
    def array(draw: st.DrawFn) -> Any:
        chosen = draw(sides)
        count = int(np.prod(chosen, dtype=int))
        values = np.array(draw(st.lists(st.sampled_from(ODD_NUMBERS), min_size=1, max_size=4)))
        filled = np.resize(values, count).reshape(chosen)
        return represented(draw, filled)

    return array()


def represented(draw: st.DrawFn, array: np.ndarray) -> Any:
    """The same numbers as another type of array, or in another memory layout."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return draw(st.sampled_from(_REPRESENTATIONS))(array)


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def _frame(array: np.ndarray) -> Any:
    import polars as pl

    return pl.DataFrame(array) if array.ndim == 2 else pl.Series(array.ravel())


def _pandas(array: np.ndarray) -> Any:
    import pandas as pd

    return pd.DataFrame(array) if array.ndim == 2 else pd.Series(array.ravel())


_REPRESENTATIONS: tuple[Callable[[np.ndarray], Any], ...] = (
    lambda a: a,
    lambda a: a.astype(np.float32),
    lambda a: a.astype(np.float16),
    lambda a: np.nan_to_num(a, posinf=9, neginf=-9).astype(np.int64),
    lambda a: a > 0.5,
    lambda a: a.astype(object),
    lambda a: a.astype(str),
    lambda a: a.astype(complex),
    lambda a: a.tolist(),
    _read_only,
    lambda a: np.asfortranarray(a),
    lambda a: np.repeat(a, 2, axis=0)[::2] if a.ndim else a,
    lambda a: torch.tensor(a),
    lambda a: torch.tensor(a, dtype=torch.float32, requires_grad=True),
    lambda a: torch.tensor(np.nan_to_num(a)).to(torch.float16),
    lambda a: sparse.csr_matrix(np.nan_to_num(a)) if a.ndim == 2 else a,
    _frame,
    _pandas,
)
ODD_OBJECTS = st.sampled_from(
    [
        *(None, "x", "", b"x", object(), {}, {"a": [1]}, [], [[]], [[1], [1, 2]]),
        *(-1, 0, 1.5, np.nan, True, 2**70, ["a", 1, None]),
    ]
)


def mixed(good: Any, *odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A valid argument, in any representation, or an invalid one, equally often."""

    @st.composite
    def choice(draw: st.DrawFn) -> Any:
        kind = draw(st.integers(0, 3))
        if kind == 0:
            return represented(draw, good) if isinstance(good, np.ndarray) else good
        if kind == 1:
            return good
        return draw(st.one_of(*odd, ODD_OBJECTS))

    return choice()


ROWS, C = 12, 3
LABELS = np.arange(ROWS) % C
T = noise.pair(C, 0.2)
ODD_SCALARS = st.sampled_from([*ODD_NUMBERS, -3, 0, 1, 2, 500, "x", None, np.float32(0.3), np.int8(3), True])


def probs() -> st.SearchStrategy[Any]:
    return mixed(_probs(), odd_arrays(ROWS, C))


def labels() -> st.SearchStrategy[Any]:
    one_class = st.just(np.zeros(ROWS, int))
    return mixed(LABELS, odd_arrays(ROWS), one_class, st.just(LABELS + 1), st.just(["a", "b", "c"] * 4))


def matrix() -> st.SearchStrategy[Any]:
    return mixed(T, odd_arrays(C, C), st.just(np.full((C, C), 1 / C)), st.just(T.T), st.just(np.eye(C)))


def number(good: Any) -> st.SearchStrategy[Any]:
    return mixed(good, ODD_SCALARS)


def tensor(good: torch.Tensor) -> st.SearchStrategy[Any]:
    """Tensors of other shapes, types and values."""
    whole = not good.is_floating_point()
    others = (
        [good[:0], good[:1], good[None], good.float(), good + 100, good - 100, good.to(torch.int32)]
        if whole
        else [
            *(
                good[:0],
                good[:1],
                good[None],
                good.mT if good.ndim == 2 else good,
                good.half(),
                good.double(),
                good.long(),
                good.new_tensor(1.0),
            ),
            *(good * 1e38, good * 0, good * torch.nan, good - torch.inf, good.clone().requires_grad_()),
        ]
    )
    return st.one_of(st.just(good), st.just(good), st.sampled_from([*others, None, good.tolist(), good.numpy()]))


LOGITS = torch.linspace(-2, 2, ROWS * C).view(ROWS, C)
Y = torch.tensor(LABELS)
T_TENSOR = torch.tensor(T, dtype=torch.float32)


@dataclass(frozen=True)
class Target:
    """A public function with the arguments to try and a check of its result."""

    function: Callable[..., Any]
    arguments: Mapping[str, st.SearchStrategy[Any]] = field(default_factory=dict)
    check: Callable[[Any], None] = _anything
    """Raises an ``AssertionError`` for a result that the function must not give."""
    share: float = 1.0
    """Share of the examples to try; smaller for slow functions."""


def _fit_classifier(X: Any, y: Any, **options: Any) -> np.ndarray:
    classifier = volmin.NoisyLabelClassifier(epochs=1, random_state=0, device="cpu", **options)
    return classifier.fit(X, y).predict_proba(X)


def _fit(x: Any, y: Any, batch_size: Any) -> list[dict[str, Any]]:
    method = volmin.methods.VolMinNet(networks.mlp(C, C, (4,)), C)
    loader = volmin.data.TensorLoader(x, y, batch_size)
    return volmin.fit(method, loader, recipe=volmin.Recipe(epochs=1))


def _features() -> st.SearchStrategy[Any]:
    return mixed(_probs(40), odd_arrays(40, C), st.just({"a": ["u", "v"] * 20, "b": [None, 1.5] * 20}))


_LOSS = {"logits": tensor(LOGITS), "T": tensor(T_TENSOR), "y": tensor(Y)}
_QUALITY = {"labels": labels(), "clean_probs": probs(), "T": matrix()}
_JOINT = T / C


def joint() -> st.SearchStrategy[Any]:
    return mixed(_JOINT, odd_arrays(C, C))


TARGETS: dict[str, Target] = {
    "noise.symmetric": Target(noise.symmetric, {"num_classes": number(3), "rate": number(0.2)}, _transition),
    "noise.pair": Target(noise.pair, {"num_classes": number(3), "rate": number(0.2)}, _transition),
    "noise.asymmetric": Target(
        noise.asymmetric, {"num_classes": number(3), "rate": number(0.2), "seed": number(1)}, _transition
    ),
    "noise.measured": Target(
        noise.measured, {"noisy": labels(), "clean": labels(), "num_classes": number(3)}, _transition
    ),
    "noise.parse": Target(
        noise.parse,
        {
            "text": st.one_of(st.sampled_from(["pair:0.2", "sym:nan", "asym:1e9", "x.npy", "pair:", ":"]), st.text()),
            "num_classes": number(3),
        },
        _transition,
    ),
    "noise.corrupt": Target(noise.corrupt, {"labels": labels(), "T": matrix(), "seed": number(1)}),
    "validate_transition": Target(validate_transition, {"T": matrix(), "num_classes": number(3)}, _transition),
    "as_matrix": Target(as_matrix, {"T": matrix()}),
    "start_value": Target(start_value, {"num_classes": number(3), "diagonal": number(0.5)}, _finite),
    "transition_error": Target(volmin.transition_error, {"T": matrix(), "T_hat": matrix()}, _finite),
    "log_volume": Target(volmin.log_volume, {"T": tensor(T_TENSOR)}),
    "apply_transition": Target(apply_transition, {"clean": tensor(LOGITS.softmax(1)), "T": tensor(T_TENSOR)}),
    "warn_if_degenerate": Target(warn_if_degenerate, {"T": matrix()}),
    "DominantTransition": Target(
        lambda num_classes, init: DominantTransition(num_classes, init)().detach(),
        {"num_classes": number(3), "init": number(-2.0)},
        _transition,
    ),
    "SoftmaxTransition": Target(
        lambda num_classes, diagonal: SoftmaxTransition(num_classes, diagonal)().detach(),
        {"num_classes": number(3), "diagonal": number(0.5)},
        _transition,
    ),
    **{
        f"losses.{name}": Target(getattr(losses, name), _LOSS)
        for name in ("forward_nll", "backward_nll", "noisy_likelihood", "importance", "reweighted_nll", "revised_nll")
    },
    "losses.cross_entropies": Target(losses.cross_entropies, {"logits": tensor(LOGITS), "y": tensor(Y)}),
    "losses.joint_matrix": Target(losses.joint_matrix, {"logits": tensor(LOGITS), "y": tensor(Y)}),
    "losses.dmi_loss": Target(losses.dmi_loss, {"joint": tensor(T_TENSOR / C)}),
    "losses.smallest": Target(losses.smallest, {"losses": tensor(LOGITS[:, 0]), "keep": number(0.7)}),
    "losses.generalized_cross_entropy": Target(
        losses.generalized_cross_entropy, {"log_prob": tensor(LOGITS[:, 0]), "q": st.floats(0.01, 1)}
    ),
    "losses.total_variation": Target(
        losses.total_variation, {"probs": tensor(LOGITS.softmax(1)), "others": tensor(LOGITS.softmax(1))}
    ),
    "losses.weighted_mean": Target(
        losses.weighted_mean, {"losses": tensor(LOGITS[:, 0]), "weights": tensor(LOGITS[:, 1])}
    ),
    "estimate_transition": Target(
        volmin.estimate_transition,
        {
            "probs": probs(),
            "labels": labels(),
            "method": st.sampled_from(["volume", "max", "percentile", "dual", "confident", "x", None]),
        },
        _transition,
    ),
    "estimation.minimum_volume": Target(
        lambda probs, labels: estimation.minimum_volume(probs, labels).transition,
        {"probs": probs(), "labels": labels()},
        _transition,
        0.3,
    ),
    "estimation.recalibrate": Target(
        lambda T, probs, labels: estimation.recalibrate(T, probs, labels).transition,
        {"T": matrix(), "probs": probs(), "labels": labels()},
        _transition,
    ),
    "estimation.clusterability": Target(
        lambda features, labels: estimation.clusterability(features, labels, num_classes=3),
        {"features": mixed(_probs(40), odd_arrays(40, C)), "labels": mixed(np.arange(40) % 3, odd_arrays(40))},
        _anything,
        0.1,
    ),
    **{
        f"quality.{name}": Target(getattr(quality, name), _QUALITY, check)
        for name, check in {
            "label_posteriors": _shares,
            "label_quality": _shares,
            "suggest": _finite,
            "joint": _shares,
        }.items()
    },
    "readings.true_label_posteriors": Target(
        readings.true_label_posteriors, _QUALITY | {"sharpness": number(3.0)}, _shares
    ),
    "readings.read": Target(readings.read, _QUALITY | {"sharpness": number(3.0)}, lambda found: _shares(found.joint)),
    "readings.sharpen": Target(readings.sharpen, {"probs": probs(), "sharpness": number(3.0)}, _shares),
    "quality.clean_posteriors": Target(quality.clean_posteriors, {"probs": probs(), "T": matrix()}, _shares),
    "quality.flag": Target(
        quality.flag, {"quality": mixed(np.linspace(0, 1, ROWS), odd_arrays(ROWS)), "fdr": number(0.1)}
    ),
    "quality.expected_errors": Target(
        quality.expected_errors, {"quality": mixed(np.linspace(0, 1, ROWS), odd_arrays(ROWS))}, _finite
    ),
    "quality.class_priors": Target(quality.class_priors, {"joint": joint()}, _finite),
    "quality.noise_rate": Target(quality.noise_rate, {"joint": joint()}, _finite),
    "quality.forward_noise_rates": Target(quality.forward_noise_rates, {"T": matrix()}, _finite),
    "quality.backward_noise_rates": Target(quality.backward_noise_rates, {"joint": joint()}),
    "quality.misfit": Target(quality.misfit, {"joint": joint(), "T": matrix()}, _finite),
    "estimation.maximum_likelihood_transition": Target(
        estimation.maximum_likelihood_transition, {"clean_probs": probs(), "labels": labels()}, _transition
    ),
    "identifiability.scatter": Target(volmin.scatter, {"posteriors": probs()}, lambda found: _finite(found.index), 0.3),
    "identifiability.bracket": Target(identifiability.bracket, {"probs": probs(), "trim": number(0.01)}, _shares),
    "identifiability.certificate": Target(
        identifiability.certificate,
        {"posteriors": probs(), "margin": number(1.05), "seconds": number(1.0)},
        share=0.1,
    ),
    "identifiability.dominance_test": Target(
        lambda **given: identifiability.dominance_test(**given, resamples=19),
        {"clean_probs": probs(), "labels": labels(), "random_state": number(1)},
        lambda found: _shares(found.p_value),
        0.1,
    ),
    "identifiability.common_transition_test": Target(
        lambda **given: identifiability.common_transition_test(**given, resamples=19),
        {"clean_probs": probs(), "labels": labels(), "groups": mixed(np.arange(ROWS) % 2, odd_arrays(ROWS))},
        lambda found: _shares(found.p_value),
        0.1,
    ),
    "intervals.bootstrap_intervals": Target(
        lambda features, labels: intervals.bootstrap_intervals(features, labels, replicas=10).noise_rate.estimate,
        {"features": mixed(_probs(40), odd_arrays(40, C)), "labels": mixed(np.arange(40) % 3, odd_arrays(40))},
        _finite,
        0.05,
    ),
    "audit, probabilities": Target(
        lambda labels, probs: volmin.audit(labels, probs=probs, random_state=0),
        {"labels": mixed(np.arange(40) % 3, odd_arrays(40)), "probs": mixed(_probs(40), odd_arrays(40, C))},
        _audit,
        0.3,
    ),
    "audit, features": Target(
        lambda labels, features: volmin.audit(labels, features=features, model="logistic", folds=2, random_state=0),
        {"labels": mixed(np.arange(40) % 3, odd_arrays(40)), "features": _features()},
        _audit,
        0.2,
    ),
    "apply_decisions": Target(
        volmin.apply_decisions,
        {
            "labels": labels(),
            "decisions": mixed(
                {"row": [0], "given": [0], "suggested": [1], "decision": ["wrong"]},
                st.just({"row": [99, None], "given": ["x", 0], "suggested": [[], {}], "decision": ["wrong", 3]}),
            ),
        },
    ),
    "NoisyLabelClassifier": Target(
        _fit_classifier,
        {
            "X": mixed(_probs(), odd_arrays(ROWS, C)),
            "y": labels(),
            "method": mixed("volminnet", st.sampled_from(["cross_entropy", "x"])),
            "batch_size": number(4),
            "lr": number(0.01),
            "validation_fraction": number(0.0),
        },
        _shares,
        0.5,
    ),
    "fit": Target(
        _fit,
        {"x": tensor(torch.tensor(_probs(), dtype=torch.float32)), "y": tensor(Y), "batch_size": number(4)},
        _anything,
        0.3,
    ),
    "Recipe": Target(
        volmin.Recipe,
        dict.fromkeys(("epochs", "batch_size", "lr", "momentum", "milestones", "selection"), ODD_SCALARS),
    ),
    "load_dataset": Target(
        volmin.load_dataset, {"name": st.one_of(ODD_OBJECTS, st.text()), "label": st.one_of(st.none(), st.text())}
    ),
    "load_run": Target(volmin.load_run, {"folder": st.one_of(ODD_OBJECTS, st.text())}),
    "Audit.load": Target(volmin.Audit.load, {"folder": st.one_of(ODD_OBJECTS, st.text())}),
}


def try_target(name: str, examples: int, seed: int = 0) -> Outcome:
    """Call a target with ``examples`` random arguments."""
    target, outcome = TARGETS[name], Outcome("inputs", name)

    def call(arguments: dict[str, Any]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                target.check(target.function(**arguments))
            outcome.count("right")
        except EXPECTED as error:
            outcome.count("refused" if str(error) else "failed", f"{type(error).__name__} without a message")
        except ImportError as error:  # of an optional library; the message says how to install it
            outcome.count("refused" if "pip install" in str(error) else "failed", f"ImportError: {error}")
        except ArithmeticError as error:  # of a training that diverged
            outcome.count("refused" if "finite" in str(error) else "failed", f"{type(error).__name__}: {error}")
        except Exception as error:
            given_ = ", ".join(f"{key}={_shown(value)}" for key, value in arguments.items())
            outcome.count("failed", f"{type(error).__name__}: {str(error).split(chr(10))[0][:90]} from {given_[:160]}")

    search = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    with outcome.timed():
        seeded(seed)(search(given(st.fixed_dictionaries(dict(target.arguments)))(call)))()
    return outcome


def _shown(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return repr(value)[:60]
    return f"{type(value).__name__}{tuple(shape)} {getattr(value, 'dtype', '')}"


INNER = {
    *(
        f"estimation.{name}"
        for name in ("informative_posteriors", "confident", "dual", "max_anchors", "percentile_anchors")
    ),
    "losses.curriculum_weights",
    "quality.bayes_rule",
}
"""Functions that get only arguments which a target has checked."""


def public_functions() -> set[str]:
    """Public functions of the mathematical modules, as ``module.name``."""
    modules = (losses, noise, quality, readings, identifiability, estimation)
    return {
        f"{module.__name__.removeprefix('volmin.')}.{name}"
        for module in modules
        for name, member in vars(module).items()
        if inspect.isfunction(member) and not name.startswith("_") and member.__module__.startswith(module.__name__)
    }


def run(examples: int, seed: int = 0) -> list[Outcome]:
    """Try all targets; slow ones with fewer examples."""
    torch.manual_seed(0)
    return [try_target(name, max(5, round(examples * target.share)), seed) for name, target in TARGETS.items()]
