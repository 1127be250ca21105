"""The only training loop: phases over one loop, with selection on noisy validation data and exact resumption.

A method describes its training as a list of ``Phase``s; ``fit`` runs them. Every comparison in the package goes through
this loop, which is what makes it fair.

What the loop promises:

- A phase trains exactly the parameters that its optimisers own; everything else is frozen.
- Each phase hands on the weights that did best on the *noisy* validation data (scored with ``T h``, without the volume
  term); clean data is never used to choose.
- Randomness of an epoch is a function of (seed, phase, epoch, rank). No random state is stored, and a run that was
  killed ends in the same bits. The caller's random state is left alone.
- Several devices go through Lightning Fabric. Each rank sees its share of an epoch; ``prepare`` sees the whole training
  set; the score that chooses an epoch is rank 0's, since batch statistics may differ between ranks.
"""

from __future__ import annotations

import io
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from volmin.data.images.files import ImageLoader
from volmin.data.loaders import Batch, TensorLoader
from volmin.exceptions import InputError, TrainingDivergedError
from volmin.io.sealed import read_sealed_bytes, write_sealed_bytes
from volmin.networks.lenet import threads_lent
from volmin.training.devices import OneDevice
from volmin.transition import DegenerateTransitionWarning, degeneracy, warn_if_degenerate

if TYPE_CHECKING:
    from lightning_fabric import Fabric

    from volmin.methods.base import Method

Selection = Literal["loss", "accuracy", "last"]
Record = dict[str, Any]
"""What is known of one epoch: phase, epoch, train_loss, val_loss, val_accuracy, seconds and what was measured."""
Schedule = Callable[[float], float]
"""From the number of epochs done (a fraction within an epoch) to the factor of the learning rate."""


class Loader(Protocol):
    """Batches of (x, y) or (x, y, index) that can be iterated again and again: a ``DataLoader``, a ``TensorLoader``."""

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True)
class Recipe:
    """How a network is optimised, whatever the method."""

    epochs: int = 60
    batch_size: int = 128
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    milestones: tuple[int, ...] = ()
    """Epochs after which the learning rates are divided by ten."""
    schedule: Literal["steps", "one_cycle", "late_decay"] = "steps"
    transition_optimizer: Literal["sgd", "adam"] = "adam"
    transition_lr: float = 0.01
    selection: Selection = "loss"
    """What chooses the epoch: noisy-validation loss or accuracy, or simply the last."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, but is {value!r}.")
        for name in ("lr", "transition_lr", "momentum", "weight_decay"):
            value = getattr(self, name)
            if not 0 <= value < math.inf:
                raise InputError(f"{name} must be a number of at least 0, but is {value!r}.")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}, but is {getattr(self, name)!r}.")

    @classmethod
    def for_rows(cls, count: int, **changes: Any) -> Recipe:
        """A recipe for data of ``count`` rows: about 3,000 steps, between 5 and 200 epochs; ``changes`` go first."""
        defaults = {"lr": 0.05, "weight_decay": 1e-3, "batch_size": min(1024, max(16, count // 100))}
        recipe = cls(**defaults | changes)
        if "epochs" in changes:
            return recipe
        steps = -(-count // recipe.batch_size)
        return replace(recipe, epochs=min(200, max(5, 3000 // steps)))

    def network_optimizer(self, *modules: nn.Module, **changes: Any) -> Optimizer:
        """The optimiser of networks; ``changes`` are other values for this recipe's fields."""
        recipe = replace(self, **changes)
        parameters = [p for module in modules for p in module.parameters()]
        if recipe.optimizer == "adam":
            return Adam(parameters, recipe.lr, weight_decay=recipe.weight_decay, fused=True)
        return SGD(parameters, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay, fused=True)

    def transition_optimizer_for(self, *modules: nn.Module) -> Optimizer:
        """The optimiser of transition matrices: never with weight decay, which would pull T towards more noise."""
        parameters = [p for module in modules for p in module.parameters()]
        if self.transition_optimizer == "adam":
            return _BriskAdam(parameters, self.transition_lr, fused=True)
        return SGD(parameters, self.transition_lr, self.momentum, fused=True)

    def learning_rate_schedule(self, epochs: int | None = None) -> Schedule | None:
        """The schedule over ``epochs`` (all of the recipe's by default)."""
        if self.schedule == "one_cycle":
            return one_cycle(epochs or self.epochs)
        if self.schedule == "late_decay":
            return late_decay(epochs or self.epochs)
        return steps(self.milestones) if self.milestones else None


class _BriskAdam(Adam):
    """Adam for the few parameters of T, without weight decay: torch prepares such a step for longer than it takes.

    It ends in the same bits, and its state is Adam's.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        (group,) = self.param_groups
        if any(parameter.grad is None or parameter not in self.state for parameter in group["params"]):
            super().step()
            return
        (beta1, beta2), plain = group["betas"], {"weight_decay": 0.0, "amsgrad": False, "maximize": False}
        for parameter in group["params"]:
            state = self.state[parameter]
            state["step"] += 1
            tensors = [parameter], [parameter.grad], [state["exp_avg"]], [state["exp_avg_sq"]], [], [state["step"]]
            torch._fused_adam_(  # pyright: ignore[reportPrivateImportUsage]
                *tensors, lr=group["lr"], beta1=beta1, beta2=beta2, eps=group["eps"], **plain
            )

    step.hooked = True  # pyright: ignore[reportFunctionMemberAccess]  # torch would wrap it in hooks for profilers


_CHOICES = {
    "optimizer": ("sgd", "adam"),
    "transition_optimizer": ("sgd", "adam"),
    "schedule": ("steps", "one_cycle", "late_decay"),
    "selection": ("loss", "accuracy", "last"),
}


def steps(milestones: Sequence[float], gamma: float = 0.1) -> Schedule:
    """Multiply the learning rate by ``gamma`` at each milestone."""
    return lambda done: gamma ** sum(done >= milestone for milestone in milestones)


def one_cycle(epochs: float, warm_up: float = 0.2) -> Schedule:
    """Rise linearly to the peak over the first ``warm_up`` of training, then fall linearly to zero."""
    peak = warm_up * epochs
    return lambda done: (done + 1e-3) / peak if done < peak else max(0.0, (epochs - done) / (epochs - peak))


def late_decay(epochs: float, hold: float = 0.4) -> Schedule:
    """Stay at the peak over the first ``hold`` of training, then fall linearly to zero."""
    return lambda done: min(1.0, (epochs - done) / (epochs - hold * epochs))


@dataclass(frozen=True)
class Phase:
    """A stretch of training with one loss. It trains exactly the parameters that its optimisers own."""

    name: str
    epochs: int
    loss: Callable[[Batch, int], Tensor]
    """(batch, epoch of this phase) to a scalar."""
    optimizers: Sequence[Optimizer]
    schedule: Schedule | None = None
    prepare: Callable[[Iterable[Batch]], None] | None = None
    """Runs once before the phase, in evaluation mode and without gradients, on the whole training set in order."""
    selection: Selection | None = None
    """The phase's own rule; the recipe's by default."""


@dataclass
class _Progress:
    """Where training stands: all that a checkpoint must hold besides weights and optimisers."""

    phase: int = 0
    epoch: int = 0
    best_score: float = math.inf
    best_weights: dict[str, Tensor] = field(default_factory=dict)
    history: list[Record] = field(default_factory=list)

    def record(self, record: Record, score: float, weights: Mapping[str, Tensor]) -> None:
        self.history.append(record)
        self.epoch += 1
        if score < self.best_score:
            self.best_score = score
            self.best_weights = {name: value.detach().clone() for name, value in weights.items()}

    def next_phase(self) -> None:
        self.phase, self.epoch, self.best_score, self.best_weights = self.phase + 1, 0, math.inf, {}


def fit(
    method: Method,
    train_loader: Loader,
    val_loader: Loader | None = None,
    recipe: Recipe | None = None,
    checkpoint: str | Path | None = None,
    *,
    seed: int = 0,
    fabric: OneDevice | Fabric | None = None,
    measure: Callable[[], Mapping[str, float]] | None = None,
    on_epoch: Callable[[list[Record]], None] | None = None,
) -> list[Record]:
    """Train ``method`` through its phases and leave it with the weights that its selection rule chose.

    Args:
        method: what to train, from ``volmin.methods``.
        train_loader: batches of (x, noisy y) or (x, noisy y, index).
        val_loader: held-out batches with *noisy* labels, which choose the epoch; without them it is the last.
        recipe: how to optimise; ``Recipe()`` by default.
        checkpoint: file that is written after every epoch and resumed from where it exists.
        seed: of the order of the batches and of all randomness in training.
        fabric: devices and precision, launched; one device, the fastest there is, by default.
        measure: called after every epoch for figures to record, test accuracy say. They never choose.
        on_epoch: called after every epoch with the history, for progress and logs.

    Returns:
        The history: a record per epoch.
    """
    recipe = recipe or Recipe()
    fabric = fabric or OneDevice()
    method.to(fabric.device)
    train = _Batches(train_loader, method.num_classes, fabric)
    val = _Batches(val_loader, method.num_classes, fabric) if val_loader is not None else None
    _check_network(method, train)
    phases = method.phases(recipe)
    identity = _identity(method, recipe, phases, seed, train, fabric)

    with torch.random.fork_rng(), _requires_grad_kept(method), threads_lent(method):
        progress, optimizer_states = _load(checkpoint, identity, method, fabric)
        _check_agreement(progress, checkpoint, fabric)
        for number, phase in enumerate(phases):
            if number < progress.phase:
                continue
            if phase.prepare is not None and progress.epoch == 0:
                _seed(seed, number, -1)
                method.eval()
                with torch.no_grad():
                    phase.prepare(train)
            _train_only(method, phase.optimizers)
            objective, *optimizers = fabric.setup(_Objective(method, phase.loss), *phase.optimizers)
            _restore(phase.optimizers, optimizer_states, checkpoint)
            optimizer_states = []
            sound = _is_sound(method)

            while progress.epoch < phase.epochs:
                start, epoch = time.perf_counter(), progress.epoch
                order = _seed(seed, number, epoch)
                _seed(seed, number, epoch, fabric.global_rank)
                train_loss = _train_epoch(objective, optimizers, phase, epoch, train, order, fabric)
                record = {"phase": phase.name, "epoch": len(progress.history) + 1, "train_loss": train_loss}
                if val is not None:
                    record |= noisy_scores(method, val)
                if measure is not None:
                    record |= measure()
                record["seconds"] = time.perf_counter() - start
                record = fabric.broadcast(record)
                _stop_if_diverged(record)
                progress.record(record, _score(record, phase.selection or recipe.selection), method.state_dict())
                _save(checkpoint, identity, method, phase.optimizers, progress, fabric)
                if sound and not (sound := _is_sound(method)):
                    _warn_of_collapse(record)
                if on_epoch is not None:
                    on_epoch(progress.history)
            if progress.best_weights:
                method.load_state_dict(progress.best_weights)
            progress.next_phase()
    method.eval()
    if (T := method.transition()) is not None:
        warn_if_degenerate(T)
    return progress.history


@contextmanager
def thread_limit(count: int) -> Iterator[None]:
    """Compute in ``count`` threads. Sums are split among them, so the number is part of what a result depends on."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def selected(history: Sequence[Record], selection: Selection) -> Record:
    """The record of the epoch that a rule chooses in the last phase."""
    last_phase = [record for record in history if record["phase"] == history[-1]["phase"]]
    return min(last_phase, key=lambda record: _score(record, selection))


@torch.inference_mode()
def noisy_scores(method: Method, batches: Iterable[Batch]) -> dict[str, float]:
    """Cross-entropy of ``T h`` on noisy labels, without the volume term, and its accuracy, per example."""
    method.eval()
    loss, hits, count = torch.zeros(()), torch.zeros(()), 0
    for batch in batches:
        log_probs = method.noisy_log_probs(batch.x)
        loss = loss - log_probs.gather(1, batch.y[:, None]).sum()
        hits = hits + (log_probs.argmax(1) == batch.y).sum()
        count += len(batch.y)
    return {"val_loss": loss.item() / max(1, count), "val_accuracy": hits.item() / max(1, count)}


@torch.inference_mode()
def clean_probs(method: Method, batches: Iterable[Batch]) -> Tensor:
    """(N, C) posteriors of the clean label, on the CPU."""
    method.eval()
    return torch.cat([method(batch.x).softmax(1).cpu() for batch in batches])


def _train_epoch(
    objective: nn.Module,
    optimizers: Sequence[Any],
    phase: Phase,
    epoch: int,
    train: _Batches,
    order: int,
    fabric: OneDevice | Fabric,
) -> float:
    objective.train()
    owned = _owned(phase.optimizers)
    total, count = torch.zeros((), device=fabric.device), 0
    # A phase without a schedule continues a finished training.
    done = epoch / phase.epochs if phase.schedule is not None else 1.0
    for step, batch in enumerate(train.shuffled(order, epoch, done)):
        if phase.schedule is not None:
            _set_learning_rates(phase.optimizers, phase.schedule(epoch + step / len(train)))
        loss = objective(batch, epoch)
        for parameter in owned:  # what zero_grad does, without its ceremony for each optimiser
            parameter.grad = None
        fabric.backward(loss)
        for optimizer in optimizers:
            optimizer.step()
        # Summed on the device: asking for the value here would stall every step.
        total += loss.detach() * len(batch.y)
        count += len(batch.y)
    return total.item() / max(1, count)


class _Objective(nn.Module):
    """Routes a phase's loss through ``forward``, the one call that data-parallel training synchronises."""

    def __init__(self, method: nn.Module, loss: Callable[[Batch, int], Tensor]) -> None:
        super().__init__()
        self.method, self.loss = method, loss

    def forward(self, batch: Batch, epoch: int) -> Tensor:
        return self.loss(batch, epoch)


class _Batches:
    """Batches on the device, from tensors in memory or from a user's own loader."""

    def __init__(self, loader: Loader, num_classes: int, fabric: OneDevice | Fabric) -> None:
        if isinstance(loader, TensorLoader | ImageLoader):
            _check_labels(loader.y, num_classes)
            loader = loader.to(fabric.device)
        self.loader, self.num_classes, self.fabric = loader, num_classes, fabric

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        """All rows; in order where they are in memory."""
        if isinstance(self.loader, TensorLoader | ImageLoader):
            yield from self.loader
            return
        for x, y, *index in self.loader:
            _check_labels(y, self.num_classes)
            x, y, *index = self.fabric.to_device((x, y, *index))
            yield Batch(x, y.long(), index[0] if index else None)

    def shuffled(self, seed: int, epoch: int, done: float) -> Iterator[Batch]:
        """An epoch of training. A user's loader shuffles by torch's global generator, which the loop has seeded."""
        if isinstance(self.loader, TensorLoader | ImageLoader):
            rank, world_size = self.fabric.global_rank, self.fabric.world_size
            return self.loader.shuffled(seed, rank, world_size, epoch=epoch, done=done)
        if self.fabric.world_size > 1:
            raise InputError("Training on several devices needs a TensorLoader or an ImageLoader.")
        return iter(self)


def _check_labels(y: Tensor, num_classes: int) -> None:
    if y.ndim != 1 or y.is_floating_point():
        raise InputError(
            f"Labels must be a vector of whole numbers, but have shape {tuple(y.shape)} and type {y.dtype}."
        )
    if len(y) and not 0 <= int(y.min()) <= int(y.max()) < num_classes:
        raise InputError(f"Labels must lie in 0..{num_classes - 1}, but span {int(y.min())}..{int(y.max())}.")


def _check_network(method: Method, train: _Batches) -> None:
    """Try the network on two rows in memory: what does not fit is better told now than by its first step."""
    if not isinstance(train.loader, TensorLoader) or not len(train):
        return
    x = next(iter(train)).x[:2]
    try:
        with torch.random.fork_rng(), torch.no_grad():
            logits = method.eval()(x)
    except (RuntimeError, IndexError, TypeError) as error:
        shape, reason = tuple(x.shape[1:]), str(error).split("\n")[0]
        raise InputError(f"The network does not take rows x of shape {shape} and type {x.dtype}: {reason}") from error
    if logits.shape != (len(x), method.num_classes):
        raise InputError(
            f"The network must give {method.num_classes} logits for each row, one for each class, but gives "
            f"{tuple(logits.shape)} for {len(x)} rows."
        )


def _score(record: Record, selection: Selection) -> float:
    """Smaller is better; where nothing was validated, later is better."""
    if selection == "last" or "val_loss" not in record:
        return -record["epoch"]
    return record["val_loss"] if selection == "loss" else -record["val_accuracy"]


def _stop_if_diverged(record: Record) -> None:
    if not math.isfinite(record["train_loss"]) or not math.isfinite(record.get("val_loss", 0.0)):
        raise TrainingDivergedError(
            f"The loss is not finite in epoch {record['epoch']} ({record['phase']}). Lower the learning rate, and "
            "check the inputs for huge values. The last good epoch is kept in the checkpoint, if there is one."
        )


def _is_sound(method: Method) -> bool:
    with torch.no_grad():
        T = method.transition()
    return T is None or degeneracy(T) is None


def _warn_of_collapse(record: Record) -> None:
    """Told in the epoch that it happens in, when there is still time to stop."""
    warnings.warn(
        f"The estimated T became nearly singular in epoch {record['epoch']} ({record['phase']}): lower lam, the weight "
        "of the volume, or the learning rate of T. The epoch that does best on noisy validation data is kept.",
        DegenerateTransitionWarning,
        stacklevel=3,
    )


def _seed(*key: int) -> int:
    """Seed torch's global generator by the key alone, so that no random state need be stored; gives the seed."""
    seed = 0
    for number in key:
        seed = (seed * 1_000_003 + number + 2) % (2**63 - 25)
    torch.manual_seed(seed)
    return seed


def _set_learning_rates(optimizers: Sequence[Optimizer], factor: float) -> None:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group.setdefault("initial_lr", group["lr"]) * factor


def _train_only(method: nn.Module, optimizers: Sequence[Optimizer]) -> None:
    owned = {id(parameter) for parameter in _owned(optimizers)}
    for parameter in method.parameters():
        parameter.requires_grad_(id(parameter) in owned)


def _owned(optimizers: Sequence[Optimizer]) -> list[nn.Parameter]:
    return [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]


@contextmanager
def _requires_grad_kept(method: nn.Module) -> Iterator[None]:
    before = [(parameter, parameter.requires_grad) for parameter in method.parameters()]
    try:
        yield
    finally:
        for parameter, flag in before:
            parameter.requires_grad_(flag)


def _identity(
    method: nn.Module, recipe: Recipe, phases: Sequence[Phase], seed: int, train: _Batches, fabric: OneDevice | Fabric
) -> str:
    """What must be equal for a checkpoint to be continued."""
    return json.dumps(
        {
            "method": type(method).__name__,
            "parameters": sum(p.numel() for p in method.parameters()),
            "phases": [(phase.name, phase.epochs) for phase in phases],
            "recipe": asdict(recipe),
            "seed": seed,
            "batches": len(train),
            "devices": fabric.world_size,
        }
    )


def _save(
    path: str | Path | None,
    identity: str,
    method: nn.Module,
    optimizers: Sequence[Optimizer],
    progress: _Progress,
    fabric: OneDevice | Fabric,
) -> None:
    if path is None or not fabric.is_global_zero:
        return
    state = {
        "identity": identity,
        "weights": method.state_dict(),
        "optimizers": [optimizer.state_dict() for optimizer in optimizers],
        "progress": vars(progress),
    }
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_sealed_bytes(Path(path), buffer.getvalue())


def _load(
    path: str | Path | None, identity: str, method: nn.Module, fabric: OneDevice | Fabric
) -> tuple[_Progress, list[dict[str, Any]]]:
    if path is None or not Path(path).exists():
        return _Progress(), []
    try:
        content = io.BytesIO(read_sealed_bytes(Path(path)))
        state = torch.load(content, map_location=fabric.device, weights_only=True)
        found, weights = state["identity"], state["weights"]
        progress, optimizers = _Progress(**state["progress"]), state["optimizers"]
    except Exception as error:
        raise _damaged(path, error) from error
    if found != identity:
        ours, theirs = json.loads(identity), json.loads(found)
        differing = ", ".join(
            f"{key}: {theirs.get(key)} there, {ours[key]} here" for key in ours if ours[key] != theirs.get(key)
        )
        raise InputError(f"The checkpoint {path} belongs to another run ({differing}): delete it or name another file.")
    try:
        if progress.best_weights:
            method.load_state_dict(progress.best_weights)  # tried now, for they are needed after the last epoch only
        method.load_state_dict(weights)
    except Exception as error:
        raise _damaged(path, error) from error
    return progress, optimizers


def _damaged(path: str | Path | None, error: Exception) -> ValueError:
    return ValueError(f"The checkpoint {path} is damaged ({type(error).__name__}): delete it to start anew.")


def _check_agreement(progress: _Progress, path: str | Path | None, fabric: OneDevice | Fabric) -> None:
    """All processes must go on from one epoch: on several machines, one might not see the others' checkpoint."""
    here = progress.phase, progress.epoch
    first = fabric.broadcast(here)
    if first != here:
        raise InputError(
            f"The checkpoint {path} is not the same for all processes: the first goes on from phase and epoch {first}, "
            f"process {fabric.global_rank} from {here}. Give a folder that all machines share."
        )


def _restore(optimizers: Sequence[Optimizer], states: Sequence[dict[str, Any]], path: str | Path | None) -> None:
    if states:
        try:
            for optimizer, state in zip(optimizers, states, strict=True):
                optimizer.load_state_dict(state)
        except Exception as error:
            raise _damaged(path, error) from error
