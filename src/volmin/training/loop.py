"""The only training loop: it runs the phases of a method.

- A phase trains exactly the parameters that its optimisers own; everything else is frozen.
- Each phase ends with the weights of the epoch that did best on the *noisy* validation data (scored with ``T h``,
  without the volume term; with h in plain training). Clean data never selects.
- The randomness of an epoch is a function of (seed, phase, epoch, rank). No random state is stored, and a run that was
  killed resumes to the same bits. The caller's random state is left unchanged.
- Mixed precision applies to the networks; posteriors, losses and T stay in single precision.
- Several devices go through Lightning Fabric. Each rank sees its share of an epoch; ``prepare`` sees the whole training
  set; the score that selects an epoch is rank 0's, since batch statistics may differ between ranks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import torch
from torch.optim import Optimizer

from volmin.data.iterable_loader import as_loader
from volmin.data.loaders import Loader
from volmin.training import checkpoint as checkpoints
from volmin.training.callbacks import Callback, Training, check_callbacks, notify
from volmin.training.checks import (
    check_network,
    check_patience,
    has_regular_transition,
    raise_if_diverged,
    warn_of_collapse,
)
from volmin.training.devices import OneDevice, check_full_precision
from volmin.training.epoch import (
    Objective,
    requires_grad_restored,
    seed_generator,
    set_learning_rates,
    train_epoch,
    train_only,
)
from volmin.training.evaluation import Record, noisy_scores
from volmin.training.phase import Phase, selection_rule
from volmin.training.precision import Precision, PrecisionName
from volmin.training.recipe import Recipe, Selection
from volmin.transition import warn_if_degenerate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from volmin.methods.base import Method


def fit(
    method: Method,
    train_loader: Loader | Iterable[Any],
    val_loader: Loader | Iterable[Any] | None = None,
    recipe: Recipe | None = None,
    checkpoint: str | Path | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    precision: PrecisionName = "32",
    patience: int | None = None,
    callbacks: Sequence[Callback] = (),
    split: Callable[[Any], Any] | None = None,
    fabric: OneDevice | Fabric | None = None,
    measure: Callable[[], Mapping[str, float]] | None = None,
    on_epoch: Callable[[list[Record]], None] | None = None,
) -> list[Record]:
    """Train ``method`` through its phases; it ends with the weights that its selection rule chose.

    Args:
        method: Method to train, from ``volmin.methods``.
        train_loader: Batches of (x, noisy y) or (x, noisy y, index), or dicts with the entry labels, label or y: a
            ``TensorLoader``, a ``DataLoader``, or any iterable with a length.
        val_loader: Held-out batches with *noisy* labels, which select the epoch; without them it is the last.
        recipe: How to optimise; by default the settings of the method's authors.
        checkpoint: File that is written after every epoch, and resumed from where it exists; a recipe with more epochs
            continues a finished training.
        seed: Random seed of the order of the batches and of all randomness in training.
        device: ``auto`` for a GPU where there is one, ``cpu``, ``gpu``, or a device name of torch.
        precision: ``32``, ``bf16-mixed`` or ``16-mixed``: the arithmetic of the networks.
        patience: Number of epochs without a better noisy validation score after which a phase ends; None: never.
            Phases that keep their last epoch have their full length.
        callbacks: Code to run at the moments of training.
        split: Function from a batch of the user's own loaders to (x, noisy y) or (x, noisy y, index). Here x may be any
            nesting of tensors; the network gets it as it is.
        fabric: Launched Lightning Fabric for several devices, in place of ``device``.
        measure: Function called after every epoch for figures to record, such as test accuracy. They never select.
        on_epoch: Function called after every epoch with the history, for progress and logs.

    Returns:
        The history: a record per epoch.
    """
    recipe = recipe or method.default_recipe()
    fabric = fabric or OneDevice(device)
    check_full_precision(fabric)
    check_callbacks(callbacks)
    arithmetic = Precision(precision, fabric.device)
    path = None if checkpoint is None else Path(checkpoint)
    method.to(fabric.device)
    classes, processes = method.num_classes, fabric.world_size
    train = as_loader(train_loader, classes, fabric.device, split, processes)
    val = None if val_loader is None else as_loader(val_loader, classes, fabric.device, split, processes)
    check_network(method, train)
    phases = method.phases(recipe)
    rules: list[Selection] = [selection_rule(phase, recipe, method.recipe_changes) for phase in phases]
    check_patience(patience, rules, val)
    identity = checkpoints.identity(method, recipe, phases, seed, train.epoch_batches, processes, precision)
    active = callbacks if fabric.is_global_zero else ()

    with torch.random.fork_rng(), requires_grad_restored(method):
        progress, states = checkpoints.Progress(), []
        if path is not None and path.exists():
            progress, states = checkpoints.load(path, identity, method, arithmetic)
        checkpoints.check_agreement(progress, path, fabric)
        training = Training(method, sum(phase.epochs for phase in phases), progress.history)
        notify(active, "on_fit_start", training)
        for number, (phase, rule) in enumerate(zip(phases, rules, strict=True)):
            if number < progress.phase:
                continue
            if phase.prepare is not None and progress.epoch == 0:
                seed_generator(seed, number, -1)
                method.eval()
                with torch.no_grad():
                    phase.prepare(train)
            optimizers = list(phase.optimizers())
            train_only(method, optimizers)
            objective = fabric.setup_module(Objective(method, phase.loss, arithmetic))
            checkpoints.restore_optimizers(optimizers, states, path)
            kept_rules: Sequence[Selection] = (rule,) if phase.plain is None else get_args(Selection)
            states, regular, training.phase = [], has_regular_transition(method), phase
            notify(active, "on_phase_start", training)
            while progress.epoch < phase.epochs and not (patience and progress.waited(rule) >= patience):
                start, epoch = time.perf_counter(), progress.epoch
                order = seed_generator(seed, number, epoch)
                seed_generator(seed, number, epoch, fabric.global_rank)
                # A phase without a schedule continues a completed training.
                done = epoch / phase.epochs if phase.schedule is not None else 1.0
                batches = train.shuffled(order, fabric.global_rank, fabric.world_size, epoch=epoch, done=done)
                record: Record = {"phase": phase.name, "epoch": len(progress.history) + 1}
                rates = _learning_rates(phase, optimizers, epoch, train.epoch_batches)
                record["train_loss"] = train_epoch(objective, optimizers, batches, epoch, rates, fabric, arithmetic)
                if val is not None:
                    record |= noisy_scores(method, val, plain=phase.plain is not None)
                if measure is not None:
                    record |= measure()
                record["seconds"] = time.perf_counter() - start
                record = fabric.broadcast(record)
                raise_if_diverged(record)
                progress.record(record, kept_rules, method.state_dict())
                # Before the checkpoint is saved: a run killed in between repeats the epoch, and with it the warning.
                if regular and not (regular := has_regular_transition(method)):
                    warn_of_collapse(record)
                if path is not None and fabric.is_global_zero:
                    checkpoints.save(path, identity, method, optimizers, progress, arithmetic)
                if on_epoch is not None:
                    on_epoch(progress.history)
                notify(active, "on_epoch_end", training)
            if progress.best_weights:
                method.load_state_dict(progress.best_weights[rule])
            if phase.finish is not None and val is not None:
                method.eval()
                with torch.no_grad():
                    phase.finish(val)
            notify(active, "on_phase_end", training)
            progress.next_phase()
        training.phase = None
        notify(active, "on_fit_end", training)
    method.eval()
    if (T := method.transition()) is not None:
        warn_if_degenerate(T)
    return progress.history


def _learning_rates(phase: Phase, optimizers: Sequence[Optimizer], epoch: int, steps: int) -> Callable[[int], None]:
    """A function that sets the learning rates of the phase's schedule before a step of the epoch."""

    def set_for_step(step: int) -> None:
        if phase.schedule is not None:
            set_learning_rates(optimizers, phase.schedule(epoch + step / steps))

    return set_for_step
