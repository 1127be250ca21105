"""Checkpoints: the state of training in a file with a checksum, from which a run resumes to the same bits."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from volmin.exceptions import DamagedFileError, InputError
from volmin.io.sealed import read_sealed_bytes, write_sealed_bytes
from volmin.training.devices import OneDevice
from volmin.training.evaluation import Record, score
from volmin.training.phase import Phase
from volmin.training.recipe import Recipe, Selection

if TYPE_CHECKING:
    from lightning_fabric import Fabric


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

    def next_phase(self) -> None:
        self.phase, self.epoch, self.best_scores, self.best_weights = self.phase + 1, 0, {}, {}


def identity(
    method: nn.Module, recipe: Recipe, phases: Sequence[Phase], seed: int, batches: int, devices: int
) -> dict[str, Any]:
    """What must be equal for a checkpoint to be continued."""
    content = {
        "method": type(method).__name__,
        "parameters": sum(p.numel() for p in method.parameters()),
        "phases": [(phase.name, phase.epochs) for phase in phases],
        "recipe": asdict(recipe),
        "seed": seed,
        "batches": batches,
        "devices": devices,
    }
    return json.loads(json.dumps(content))


def save(
    path: Path, identity: Mapping[str, Any], method: nn.Module, optimizers: Sequence[Optimizer], progress: Progress
) -> None:
    """Write a checkpoint whole or not at all."""
    state = {
        "identity": json.dumps(identity),
        "weights": method.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "progress": vars(progress),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_sealed_bytes(path, buffer.getvalue())


def load(
    path: Path, expected: Mapping[str, Any], method: nn.Module, device: torch.device
) -> tuple[Progress, list[dict[str, Any]]]:
    """Restore the weights of ``method``; returns the progress and the states of the current phase's optimisers."""
    found, weights, progress, optimizers = _read(path, device)
    if found != expected:
        differing = ", ".join(
            f"{key}: {found.get(key)} there, {value} here" for key, value in expected.items() if found.get(key) != value
        )
        raise InputError(f"The checkpoint {path} belongs to another run ({differing}): delete it or name another file.")
    try:
        for best in progress.best_weights.values():
            method.load_state_dict(best)  # detects damage now instead of after the last epoch
        method.load_state_dict(weights)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise _damaged(path, error) from error
    return progress, optimizers


def load_plain(path: Path, method: nn.Module, rule: Selection) -> list[Record]:
    """Give ``method`` the network that a rule selects in a completed plain training; returns its history."""
    _, _, progress, _ = _read(path, next(method.parameters()).device)
    try:
        method.load_state_dict(method.state_dict() | progress.best_weights[rule])
    except (RuntimeError, TypeError, AttributeError, KeyError) as error:
        raise _damaged(path, error) from error
    return progress.history


def _read(path: Path, device: torch.device) -> tuple[dict[str, Any], dict[str, Tensor], Progress, list[dict[str, Any]]]:
    """Identity, weights, progress and states of the optimisers in a checkpoint."""
    try:
        state = torch.load(io.BytesIO(read_sealed_bytes(path)), map_location=device, weights_only=True)
        return json.loads(state["identity"]), state["weights"], Progress(**state["progress"]), state["optimizers"]
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
