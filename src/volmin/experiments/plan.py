"""What a run will do, known from its spec alone: its epochs, their cost, and the plain training that it begins with."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache

import torch

from volmin import methods, networks
from volmin.data import AUGMENTATIONS
from volmin.experiments.spec import RunSpec
from volmin.training import Phase, Recipe
from volmin.training.epoch import parameters_of

_EVALUATION = 0.3
"""Cost of the scores after an epoch: for CIFAR, 30,000 forward passes of held-out and test images and their mirror
images beside 45,000 training steps of three passes each. It is smaller without mirror images, and larger where training
is in half precision, since evaluation is not."""


@dataclass(frozen=True)
class Plan:
    """The epochs of all phases of a run."""

    work: tuple[float, ...]
    """Cost of each epoch with its evaluation, in epochs of training one network with images of full size."""
    plain: Recipe | None
    """Recipe of the first phase, if it is plain training."""

    @property
    def epochs(self) -> int:
        return len(self.work)


def plan(spec: RunSpec) -> Plan:
    """The plan of a run; it does not depend on the network and the data."""
    options = json.dumps(dict(spec.options), sort_keys=True)
    return _plan(spec.method, spec.recipe, options, spec.augmentation)


def shared_training(spec: RunSpec) -> RunSpec | None:
    """The run of cross-entropy that a run begins with, if it does: equal for all runs that can share it.

    The rule that selects an epoch is not a part of it, nor are settings for T, which it does not have.
    """
    recipe = plan(spec).plain
    if recipe is None or spec.patience is not None:  # whose end depends on the rule that selects an epoch
        return None
    without_transition = {"transition_optimizer": "adam", "transition_lr": 0.0, "selection": None}
    return replace(
        spec, method="cross_entropy", options={}, preset="shared", recipe=replace(recipe, **without_transition)
    )


@cache
def _plan(method: str, recipe: Recipe, options: str, augmentation: str | None) -> Plan:
    # Cached, because the thread that shows progress calls this repeatedly, and building a network draws from the
    # global generator of a run that may be training in this process.
    with torch.random.fork_rng():
        learner = methods.get(method)(networks.mlp(2, 10), 10, **json.loads(options))
        phases = learner.phases(recipe)
        work = [cost for phase in phases for cost in _work(phase, learner, augmentation)]
    return Plan(tuple(work), phases[0].plain)


def _work(phase: Phase, learner: methods.Method, augmentation: str | None) -> list[float]:
    """Cost of each epoch of a phase: the networks that it trains times the relative size of the images, and its scores.

    The scores are of images of full size, however small those of training are.
    """
    first_layer = next(learner.net.parameters()).shape
    trained = sum(parameter.shape == first_layer for parameter in parameters_of(phase.optimizers()))
    if augmentation is None:
        return [trained + _EVALUATION] * phase.epochs
    shares = [epoch / phase.epochs if phase.schedule is not None else 1.0 for epoch in range(phase.epochs)]
    sides = [AUGMENTATIONS[augmentation].at(epoch, done).scale for epoch, done in enumerate(shares)]
    return [trained * side**2 + _EVALUATION for side in sides]
