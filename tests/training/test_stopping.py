"""Early stopping, and a longer training from a checkpoint."""

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from volmin import Recipe, fit, networks, noise
from volmin.data import TensorLoader
from volmin.exceptions import InputError
from volmin.methods import CoTeaching, CrossEntropy, Method, VolMinNet
from volmin.training import Callback, selected


class InterruptError(Exception):
    pass


class Interrupt(Callback):
    """Ends training after some epochs."""

    def __init__(self, epochs):
        self.epochs = epochs

    def on_epoch_end(self, training):
        if len(training.history) == self.epochs:
            raise InterruptError


def blobs(count=400, rate=0.4):
    generator = torch.Generator().manual_seed(0)
    clean = torch.arange(count) % 3
    x = torch.randn(count, 4, generator=generator) + 2 * torch.eye(4)[clean]
    return x, torch.tensor(noise.corrupt(clean.numpy(), noise.pair(3, rate), 0))


def loaders():
    x, y = blobs()
    return TensorLoader(x[100:], y[100:], 30), TensorLoader(x[:100], y[:100], 100)


def build(kind: type[Method] = VolMinNet, **options: Any) -> Method:
    torch.manual_seed(3)
    net = nn.Sequential(networks.mlp(4, 16), nn.Dropout(0.2), nn.Linear(16, 3))
    return kind(net, 3, **options)


def bits(method):
    return {name: value.numpy().tobytes() for name, value in method.state_dict().items()}


def without_seconds(history):
    return [{key: value for key, value in record.items() if key != "seconds"} for record in history]


OVERFITS = Recipe(epochs=60, lr=0.2)


@pytest.mark.parametrize("selection", ["loss", "accuracy"])
def test_training_ends_when_the_noisy_score_stays_behind_its_best(selection):
    recipe = Recipe(epochs=60, lr=0.2, selection=selection)
    whole, stopped = build(), build()
    history = fit(whole, *loaders(), recipe)
    early = fit(stopped, *loaders(), recipe, patience=4)
    key, sign = ("val_loss", 1) if selection == "loss" else ("val_accuracy", -1)
    values = [sign * record[key] for record in history]
    waits = [epoch - values.index(min(values[: epoch + 1])) for epoch in range(60)]
    assert without_seconds(early) == without_seconds(history[: waits.index(4) + 1])
    assert selected(early, selection)["epoch"] == len(early) - 4
    assert len(early) < 60


def test_warm_up_that_keeps_its_last_epoch_has_its_full_length():
    history = fit(build(warm_up=0.2), *loaders(), OVERFITS, patience=2)
    names = [record["phase"] for record in history]
    assert names.count("warm-up") == 12
    assert names.count("train") < 60


@pytest.mark.parametrize(("precision", "stop"), [("32", 5), ("bf16-mixed", 3), ("16-mixed", 2), ("16-mixed", 7)])
def test_interrupted_training_with_every_argument_resumes_to_the_same_bits(tmp_path, precision, stop):
    def train(checkpoint=None, *callbacks):
        method = build(warm_up=0.05)
        rows: Any = [{"features": row, "given": label} for row, label in zip(*blobs(), strict=True)]
        history = fit(
            method, DataLoader(rows[100:], 30, shuffle=True), DataLoader(rows[:100], 100), OVERFITS, checkpoint, seed=2,
            device="cpu", precision=precision, patience=3, callbacks=callbacks,
            split=lambda batch: (batch["features"], batch["given"]),
        )  # fmt: skip
        return method, without_seconds(history)

    whole, history = train()
    assert stop <= len(history) < 63
    with pytest.raises(InterruptError):
        train(tmp_path / "c.ckpt", Interrupt(stop))
    resumed, resumed_history = train(tmp_path / "c.ckpt")
    assert bits(resumed) == bits(whole)
    assert resumed_history == history


def test_more_patience_continues_a_training_that_stopped_early(tmp_path):
    first = fit(build(), *loaders(), OVERFITS, tmp_path / "c.ckpt", patience=2)
    method, whole = build(), build()
    second = fit(method, *loaders(), OVERFITS, tmp_path / "c.ckpt", patience=5)
    assert len(second) > len(first)
    assert without_seconds(second) == without_seconds(fit(whole, *loaders(), OVERFITS, patience=5))
    assert bits(method) == bits(whole)


@pytest.mark.parametrize(
    ("patience", "kind", "val", "message"),
    [
        (0, VolMinNet, True, "patience must be a whole number of at least 1, or None, but is 0"),
        (True, VolMinNet, True, "patience must be a whole number"),
        (3, VolMinNet, False, "patience needs validation data"),
    ],
)
def test_patience_that_cannot_work_is_rejected(patience, kind, val, message):
    train, validation = loaders()
    with pytest.raises(InputError, match=message):
        fit(build(kind), train, validation if val else None, Recipe(epochs=1), patience=patience)


def test_patience_without_effect_is_rejected():
    method = CoTeaching(networks.mlp(4, 3), 3, noise_rate=0.3)
    with pytest.raises(InputError, match="patience has no effect, since every phase keeps its last epoch"):
        fit(method, *loaders(), patience=3)


@pytest.mark.parametrize("milestones", [(), (2, 7)])
def test_longer_training_from_a_checkpoint_equals_one_in_one_go(tmp_path, milestones):
    def recipe(epochs):
        return Recipe(epochs=epochs, lr=0.05, milestones=milestones)

    fit(build(), *loaders(), recipe(5), tmp_path / "c.ckpt")
    continued, whole = build(), build()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = fit(continued, *loaders(), recipe(8), tmp_path / "c.ckpt")
    assert without_seconds(history) == without_seconds(fit(whole, *loaders(), recipe(8)))
    assert bits(continued) == bits(whole)


def test_schedule_of_the_longer_training_applies_from_there_on(tmp_path):
    rates = []

    class Watched(CrossEntropy):
        def network_phase(self, name, recipe, loss, *networks, prepare=None):
            phase = super().network_phase(name, recipe, loss, *networks, prepare=prepare)
            optimizers = phase.optimizers()

            def watched(batch, epoch):
                rates.append((epoch, optimizers[0].param_groups[0]["lr"]))
                return loss(batch, epoch)

            object.__setattr__(phase, "loss", watched)
            object.__setattr__(phase, "optimizers", lambda: optimizers)
            return phase

    def recipe(epochs):
        return Recipe(epochs=epochs, lr=0.1, schedule="one_cycle")

    fit(build(Watched), *loaders(), recipe(5), tmp_path / "c.ckpt")
    rates.clear()
    with pytest.warns(UserWarning, match="of 5 epochs; those of 8 epochs apply from epoch 6 on. The result"):
        history = fit(build(Watched), *loaders(), recipe(8), tmp_path / "c.ckpt")
    assert [record["epoch"] for record in history] == [*range(1, 9)]
    schedule = recipe(8).learning_rate_schedule()
    assert schedule is not None
    assert [epoch for epoch, _ in rates[::10]] == [5, 6, 7]
    assert [rate for _, rate in rates[::10]] == pytest.approx([0.1 * schedule(epoch) for epoch in (5, 6, 7)])


def test_longer_warm_up_is_not_repeated(tmp_path):
    fit(build(warm_up=0.2), *loaders(), Recipe(epochs=5), tmp_path / "c.ckpt")
    with pytest.warns(UserWarning, match="of 5 epochs; those of 10 epochs apply from epoch 7 on"):
        history = fit(build(warm_up=0.2), *loaders(), Recipe(epochs=10), tmp_path / "c.ckpt")
    assert [record["phase"] for record in history] == ["warm-up"] + ["train"] * 10


def test_shorter_training_than_the_checkpoint_is_rejected(tmp_path):
    fit(build(), *loaders(), Recipe(epochs=3), tmp_path / "c.ckpt")
    with pytest.raises(
        InputError, match=r"c\.ckpt holds 3 epochs, more than the recipe asks for: give at least as many"
    ):
        fit(build(), *loaders(), Recipe(epochs=2), tmp_path / "c.ckpt")


def test_settings_that_differ_from_the_checkpoint_are_named_alone(tmp_path):
    fit(build(), *loaders(), Recipe(epochs=2), tmp_path / "c.ckpt")
    with pytest.raises(InputError, match=r"another run \(recipe\.lr: 0\.01 there, 0\.5 here\)"):
        fit(build(), *loaders(), Recipe(epochs=3, lr=0.5), tmp_path / "c.ckpt")
