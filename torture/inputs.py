"""Bad input at every door: any labels, shapes, types and values end in a documented result or in a clear error.

For each function, Hypothesis mixes arguments that make sense with ones that do not. What comes out must pass the
function's own check, or be a ``ValueError`` or ``TypeError`` that says something.
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
from volmin import estimation, identifiability, intervals, losses, networks, noise, quality
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
    """No promise but that there is a result."""


def _audit(found: Any) -> None:
    _transition(found.transition)
    _shares(found.quality)
    found.summary()


def _probs(rows: int = 12, classes: int = 3) -> np.ndarray:
    return np.random.default_rng(0).dirichlet(np.full(classes, 0.4), rows)


def odd_arrays(*shape: int) -> st.SearchStrategy[Any]:
    """Arrays of about a shape with values, types and memory that nobody hopes for."""
    sides = st.sampled_from([shape, shape, shape[:1], shape[::-1], (0, *shape[1:]), (1, *shape[1:]), (*shape, 2), ()])

    @st.composite
    def array(draw: st.DrawFn) -> Any:
        chosen = draw(sides)
        count = int(np.prod(chosen, dtype=int))
        values = np.array(draw(st.lists(st.sampled_from(ODD_NUMBERS), min_size=1, max_size=4)))
        filled = np.resize(values, count).reshape(chosen)
        return dressed(draw, filled)

    return array()


def dressed(draw: st.DrawFn, array: np.ndarray) -> Any:
    """The same numbers as another type of array, or in other memory."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return draw(st.sampled_from(_DRESSES))(array)


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


_DRESSES: tuple[Callable[[np.ndarray], Any], ...] = (
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
    """Mostly what makes sense, in any dress; else something odd."""

    @st.composite
    def choice(draw: st.DrawFn) -> Any:
        kind = draw(st.integers(0, 3))
        if kind == 0:
            return dressed(draw, good) if isinstance(good, np.ndarray) else good
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
class Door:
    """A public function, what may be handed to it, and what it promises."""

    function: Callable[..., Any]
    arguments: Mapping[str, st.SearchStrategy[Any]] = field(default_factory=dict)
    check: Callable[[Any], None] = _anything
    share: float = 1.0


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


DOORS: dict[str, Door] = {
    "noise.symmetric": Door(noise.symmetric, {"num_classes": number(3), "rate": number(0.2)}, _transition),
    "noise.pair": Door(noise.pair, {"num_classes": number(3), "rate": number(0.2)}, _transition),
    "noise.asymmetric": Door(
        noise.asymmetric, {"num_classes": number(3), "rate": number(0.2), "seed": number(1)}, _transition
    ),
    "noise.measured": Door(
        noise.measured, {"noisy": labels(), "clean": labels(), "num_classes": number(3)}, _transition
    ),
    "noise.parse": Door(
        noise.parse,
        {
            "text": st.one_of(st.sampled_from(["pair:0.2", "sym:nan", "asym:1e9", "x.npy", "pair:", ":"]), st.text()),
            "num_classes": number(3),
        },
        _transition,
    ),
    "noise.corrupt": Door(noise.corrupt, {"labels": labels(), "T": matrix(), "seed": number(1)}),
    "validate_transition": Door(validate_transition, {"T": matrix(), "num_classes": number(3)}, _transition),
    "as_matrix": Door(as_matrix, {"T": matrix()}),
    "start_value": Door(start_value, {"num_classes": number(3), "diagonal": number(0.5)}, _finite),
    "transition_error": Door(volmin.transition_error, {"T": matrix(), "T_hat": matrix()}, _finite),
    "log_volume": Door(volmin.log_volume, {"T": tensor(T_TENSOR)}),
    "apply_transition": Door(apply_transition, {"clean": tensor(LOGITS.softmax(1)), "T": tensor(T_TENSOR)}),
    "warn_if_degenerate": Door(warn_if_degenerate, {"T": matrix()}),
    "DominantTransition": Door(
        lambda num_classes, init: DominantTransition(num_classes, init)().detach(),
        {"num_classes": number(3), "init": number(-2.0)},
        _transition,
    ),
    "SoftmaxTransition": Door(
        lambda num_classes, diagonal: SoftmaxTransition(num_classes, diagonal)().detach(),
        {"num_classes": number(3), "diagonal": number(0.5)},
        _transition,
    ),
    **{
        f"losses.{name}": Door(getattr(losses, name), _LOSS)
        for name in ("forward_nll", "backward_nll", "noisy_likelihood", "importance", "reweighted_nll", "revised_nll")
    },
    "losses.cross_entropies": Door(losses.cross_entropies, {"logits": tensor(LOGITS), "y": tensor(Y)}),
    "losses.joint_matrix": Door(losses.joint_matrix, {"logits": tensor(LOGITS), "y": tensor(Y)}),
    "losses.dmi_loss": Door(losses.dmi_loss, {"joint": tensor(T_TENSOR / C)}),
    "losses.smallest": Door(losses.smallest, {"losses": tensor(LOGITS[:, 0]), "keep": number(0.7)}),
    "losses.generalized_cross_entropy": Door(
        losses.generalized_cross_entropy, {"log_prob": tensor(LOGITS[:, 0]), "q": st.floats(0.01, 1)}
    ),
    "losses.total_variation": Door(
        losses.total_variation, {"probs": tensor(LOGITS.softmax(1)), "others": tensor(LOGITS.softmax(1))}
    ),
    "losses.weighted_mean": Door(
        losses.weighted_mean, {"losses": tensor(LOGITS[:, 0]), "weights": tensor(LOGITS[:, 1])}
    ),
    "estimate_transition": Door(
        volmin.estimate_transition,
        {
            "probs": probs(),
            "labels": labels(),
            "method": st.sampled_from(["volume", "max", "percentile", "dual", "confident", "x", None]),
        },
        _transition,
    ),
    "estimation.minimum_volume": Door(
        lambda probs, labels: estimation.minimum_volume(probs, labels).transition,
        {"probs": probs(), "labels": labels()},
        _transition,
        0.3,
    ),
    "estimation.clusterability": Door(
        lambda features, labels: estimation.clusterability(features, labels, num_classes=3),
        {"features": mixed(_probs(40), odd_arrays(40, C)), "labels": mixed(np.arange(40) % 3, odd_arrays(40))},
        _anything,
        0.1,
    ),
    **{
        f"quality.{name}": Door(getattr(quality, name), _QUALITY, check)
        for name, check in {
            "label_posteriors": _shares,
            "label_quality": _shares,
            "suggest": _finite,
            "joint": _shares,
        }.items()
    },
    "quality.clean_posteriors": Door(quality.clean_posteriors, {"probs": probs(), "T": matrix()}, _shares),
    "quality.flag": Door(
        quality.flag, {"quality": mixed(np.linspace(0, 1, ROWS), odd_arrays(ROWS)), "fdr": number(0.1)}
    ),
    "quality.expected_errors": Door(
        quality.expected_errors, {"quality": mixed(np.linspace(0, 1, ROWS), odd_arrays(ROWS))}, _finite
    ),
    "quality.class_priors": Door(quality.class_priors, {"joint": joint()}, _finite),
    "quality.noise_rate": Door(quality.noise_rate, {"joint": joint()}, _finite),
    "quality.forward_noise_rates": Door(quality.forward_noise_rates, {"T": matrix()}, _finite),
    "quality.backward_noise_rates": Door(quality.backward_noise_rates, {"joint": joint()}),
    "quality.misfit": Door(quality.misfit, {"joint": joint(), "T": matrix()}, _finite),
    "estimation.maximum_likelihood_transition": Door(
        estimation.maximum_likelihood_transition, {"clean_probs": probs(), "labels": labels()}, _transition
    ),
    "identifiability.scatter": Door(volmin.scatter, {"posteriors": probs()}, lambda found: _finite(found.index), 0.3),
    "identifiability.bracket": Door(identifiability.bracket, {"probs": probs(), "trim": number(0.01)}, _shares),
    "identifiability.certificate": Door(
        identifiability.certificate,
        {"posteriors": probs(), "margin": number(1.05), "seconds": number(1.0)},
        share=0.1,
    ),
    "identifiability.dominance_test": Door(
        lambda **given: identifiability.dominance_test(**given, resamples=19),
        {"clean_probs": probs(), "labels": labels(), "seed": number(1)},
        lambda found: _shares(found.p_value),
        0.1,
    ),
    "identifiability.common_transition_test": Door(
        lambda **given: identifiability.common_transition_test(**given, resamples=19),
        {"clean_probs": probs(), "labels": labels(), "groups": mixed(np.arange(ROWS) % 2, odd_arrays(ROWS))},
        lambda found: _shares(found.p_value),
        0.1,
    ),
    "intervals.bootstrap_intervals": Door(
        lambda features, labels: intervals.bootstrap_intervals(features, labels, replicas=10).noise_rate.estimate,
        {"features": mixed(_probs(40), odd_arrays(40, C)), "labels": mixed(np.arange(40) % 3, odd_arrays(40))},
        _finite,
        0.05,
    ),
    "audit, probabilities": Door(
        lambda labels, probs: volmin.audit(labels, probs=probs, random_state=0),
        {"labels": mixed(np.arange(40) % 3, odd_arrays(40)), "probs": mixed(_probs(40), odd_arrays(40, C))},
        _audit,
        0.3,
    ),
    "audit, features": Door(
        lambda labels, features: volmin.audit(labels, features=features, model="logistic", folds=2, random_state=0),
        {"labels": mixed(np.arange(40) % 3, odd_arrays(40)), "features": _features()},
        _audit,
        0.2,
    ),
    "apply_decisions": Door(
        volmin.apply_decisions,
        {
            "labels": labels(),
            "decisions": mixed(
                {"row": [0], "given": [0], "suggested": [1], "decision": ["wrong"]},
                st.just({"row": [99, None], "given": ["x", 0], "suggested": [[], {}], "decision": ["wrong", 3]}),
            ),
        },
    ),
    "NoisyLabelClassifier": Door(
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
    "fit": Door(
        _fit,
        {"x": tensor(torch.tensor(_probs(), dtype=torch.float32)), "y": tensor(Y), "batch_size": number(4)},
        _anything,
        0.3,
    ),
    "Recipe": Door(
        volmin.Recipe,
        dict.fromkeys(("epochs", "batch_size", "lr", "momentum", "milestones", "selection"), ODD_SCALARS),
    ),
    "load_dataset": Door(
        volmin.load_dataset, {"name": st.one_of(ODD_OBJECTS, st.text()), "label": st.one_of(st.none(), st.text())}
    ),
    "load_run": Door(volmin.load_run, {"folder": st.one_of(ODD_OBJECTS, st.text())}),
    "Audit.load": Door(volmin.Audit.load, {"folder": st.one_of(ODD_OBJECTS, st.text())}),
}


def try_door(name: str, examples: int, seed: int = 0) -> Outcome:
    """Knock at a door so many times."""
    door, outcome = DOORS[name], Outcome("inputs", name)

    def knock(arguments: dict[str, Any]) -> None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                door.check(door.function(**arguments))
            outcome.count("right")
        except EXPECTED as error:
            outcome.count("refused" if str(error) else "failed", f"{type(error).__name__} without a word")
        except ImportError as error:  # an optional library says how to get it
            outcome.count("refused" if "pip install" in str(error) else "failed", f"ImportError: {error}")
        except ArithmeticError as error:  # a training that diverges says so
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
        seeded(seed)(search(given(st.fixed_dictionaries(dict(door.arguments)))(knock)))()
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
    *("losses.curriculum_weights", "losses.dominant_nll_and_slopes", "losses.forward_nll_and_slopes"),
}
"""Functions behind a door that is tried: what the door lets through is what they get."""


def public_functions() -> set[str]:
    """The functions of the rooms that a user may call, by room and name."""
    rooms = (losses, noise, quality, identifiability, estimation)
    return {
        f"{room.__name__.removeprefix('volmin.')}.{name}"
        for room in rooms
        for name, member in vars(room).items()
        if inspect.isfunction(member) and not name.startswith("_") and member.__module__.startswith(room.__name__)
    }


def run(examples: int, seed: int = 0) -> list[Outcome]:
    """Knock at every door; slow ones less often."""
    torch.manual_seed(0)
    return [try_door(name, max(5, round(examples * door.share)), seed) for name, door in DOORS.items()]
