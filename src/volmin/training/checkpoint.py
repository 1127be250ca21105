"""Checkpoints: the state of training in a file with a checksum, from which a run resumes to the same bits."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.exceptions import DamagedFileError, InputError
from volmin.io.sealed import read_sealed_bytes, write_sealed_bytes
from volmin.training.devices import OneDevice
from volmin.training.evaluation import Record, score
from volmin.training.phase import Phase
from volmin.training.precision import Precision
from volmin.training.recipe import Recipe, Selection

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from volmin.methods.base import Method


@dataclass
class Progress:
    """How far training is: everything that a checkpoint holds besides weights and optimisers."""

    phase: int = 0
    epoch: int = 0
    best_scores: dict[Selection, float] = field(default_factory=dict)
    best_weights: dict[Selection, dict[str, Tensor]] = field(default_factory=dict)
    """The weights of the best epoch of the phase so far, by each rule that may select it."""
    history: list[Record] = field(default_factory=list)

    def record(self, record: Record, rules: Sequence[Selection], weights: Mapping[str, Tensor]) -> None:
        """Append an epoch, and keep its weights for the rules by which it is the best of its phase so far."""
        self.history.append(record)
        self.epoch += 1
        kept: dict[str, Tensor] = {}  # one copy, whatever the number of rules
        for rule in rules:
            if (found := score(record, rule)) < self.best_scores.get(rule, math.inf):
                kept = kept or {name: value.detach().clone() for name, value in weights.items()}
                self.best_scores[rule], self.best_weights[rule] = found, kept

    def waited(self, rule: Selection) -> int:
        """The number of epochs of the phase since the best one by a rule."""
        scores = [score(record, rule) for record in self.history[len(self.history) - self.epoch :]]
        return len(scores) - 1 - scores.index(min(scores)) if scores else 0

    def next_phase(self) -> None:
        self.phase, self.epoch, self.best_scores, self.best_weights = self.phase + 1, 0, {}, {}


class Content(NamedTuple):
    """What a checkpoint holds."""

    identity: dict[str, Any]
    weights: dict[str, Tensor]
    progress: Progress
    optimizers: list[dict[str, Any]]
    scaler: dict[str, Any]


def identity(
    method: nn.Module,
    recipe: Recipe,
    phases: Sequence[Phase],
    seed: int,
    batches: int,
    devices: int,
    precision: str = "32",
) -> dict[str, Any]:
    """What must be equal for a checkpoint to be continued, except for the length of training."""
    content = {
        "method": type(method).__name__,
        "parameters": sum(p.numel() for p in method.parameters()),
        "phases": [(phase.name, phase.epochs) for phase in phases],
        "recipe": asdict(recipe),
        "seed": seed,
        "batches": batches,
        "devices": devices,
        "precision": precision,
    }
    return json.loads(json.dumps(content))


def save(
    path: Path,
    identity: Mapping[str, Any],
    method: nn.Module,
    optimizers: Sequence[Optimizer],
    progress: Progress,
    precision: Precision | None = None,
) -> None:
    """Write a checkpoint whole or not at all."""
    state = {
        "identity": json.dumps(identity),
        "weights": method.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "progress": vars(progress),
        "scaler": {} if precision is None else precision.state(),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_sealed_bytes(path, buffer.getvalue())


def load(
    path: Path, expected: Mapping[str, Any], method: Method, precision: Precision
) -> tuple[Progress, list[dict[str, Any]]]:
    """Restore the weights of ``method`` and the scale of the loss.

    A training of another length is continued, with a warning if its first epochs would have been others.

    Returns:
        The progress, and the states of the current phase's optimisers.
    """
    found = _read(path, precision.device)
    progress = found.progress
    if found.identity != expected:
        there, here = _without_length(found.identity), _without_length(expected)
        if there != here:
            raise InputError(
                f"The checkpoint {path} belongs to another run ({_differences(there, here)}): delete it or name "
                "another file."
            )
        if _is_longer(progress, expected):
            raise InputError(
                f"The checkpoint {path} holds {len(progress.history)} epochs, more than the recipe asks for: give at "
                "least as many epochs, or name another file."
            )
        if _began_differently(found.identity, expected, method, progress):
            warnings.warn(
                f"The checkpoint {path} was trained with the learning rates and phases of a training of "
                f"{found.identity['recipe']['epochs']} epochs; those of {expected['recipe']['epochs']} epochs apply "
                f"from epoch {len(progress.history) + 1} on. The result is not that of "
                f"{expected['recipe']['epochs']} epochs from the start.",
                stacklevel=3,
            )
    try:
        for best in progress.best_weights.values():
            method.load_state_dict(best)  # detects damage now instead of after the last epoch
        method.load_state_dict(found.weights)
        precision.restore(found.scaler)
    except (RuntimeError, TypeError, AttributeError, KeyError) as error:
        raise _damaged(path, error) from error
    return progress, found.optimizers


def _is_longer(progress: Progress, expected: Mapping[str, Any]) -> bool:
    """Whether a checkpoint's phase has more epochs than it is now to have."""
    _, epochs = expected["phases"][min(progress.phase, len(expected["phases"]) - 1)]
    return progress.epoch > epochs


def _without_length(identity: Mapping[str, Any]) -> dict[str, Any]:
    """What a longer training has in common, without nesting."""
    recipe = {
        f"recipe.{key}": value for key, value in identity["recipe"].items() if key not in ("epochs", "milestones")
    }
    others = {key: value for key, value in identity.items() if key != "recipe"}
    return {**others, **recipe, "phases": [name for name, _ in identity["phases"]]}


def _differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{key}: {found.get(key)} there, {value} here" for key, value in expected.items() if found.get(key) != value
    )


def _began_differently(
    found: Mapping[str, Any], expected: Mapping[str, Any], method: Method, progress: Progress
) -> bool:
    """Whether a training of the expected length would have had other phases or learning rates in the epochs so far."""
    if found["phases"][: progress.phase] != expected["phases"][: progress.phase]:
        return True
    plans = [method.phases(Recipe(**content["recipe"])) for content in (found, expected)]
    for number, (before, now) in enumerate(zip(*plans, strict=True)):
        done = before.epochs if number < progress.phase else progress.epoch if number == progress.phase else 0
        # Some milestones lie within epochs.
        places = [epoch + part for epoch in range(done) for part in (0.0, 0.5)]
        if [_rate(before, place) for place in places] != [_rate(now, place) for place in places]:
            return True
    return False


def _rate(phase: Phase, place: float) -> float:
    return 1.0 if phase.schedule is None else phase.schedule(place)


def load_plain(path: Path, method: nn.Module, rule: Selection) -> list[Record]:
    """Give ``method`` the network that a rule selects in a completed plain training; returns its history."""
    progress = _read(path, next(method.parameters()).device).progress
    try:
        method.load_state_dict(method.state_dict() | progress.best_weights[rule])
    except (RuntimeError, TypeError, AttributeError, KeyError) as error:
        raise _damaged(path, error) from error
    return progress.history


def _read(path: Path, device: torch.device) -> Content:
    try:
        state = torch.load(io.BytesIO(read_sealed_bytes(path)), map_location=device, weights_only=True)
        # Checkpoints from before there was mixed precision are in single precision.
        identity = {"precision": "32", **json.loads(state["identity"])}
        progress = Progress(**state["progress"])
        return Content(identity, state["weights"], progress, state["optimizers"], state.get("scaler", {}))
    except Exception as error:  # a damaged pickle can raise anything
        raise _damaged(path, error) from error


def restore_optimizers(optimizers: Sequence[Optimizer], states: Sequence[dict[str, Any]], path: Path | None) -> None:
    """Load the optimisers' states of a checkpoint, if there are any."""
    if not states:
        return
    try:
        for optimizer, state in zip(optimizers, states, strict=True):
            optimizer.load_state_dict(state)
    except (ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise _damaged(path, error) from error


def check_agreement(progress: Progress, path: Path | None, fabric: OneDevice | Fabric) -> None:
    """Require all processes to resume from one epoch: on several machines, one might not see the others' file."""
    here = progress.phase, progress.epoch
    first = fabric.broadcast(here)
    if first != here:
        raise InputError(
            f"The checkpoint {path} is not the same for all processes: the first resumes from phase and epoch {first}, "
            f"process {fabric.global_rank} from {here}. Give a folder that all machines share."
        )


def _damaged(path: Path | None, error: Exception) -> DamagedFileError:
    return DamagedFileError(f"The checkpoint {path} is damaged ({type(error).__name__}): delete it to start again.")
