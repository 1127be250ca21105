import csv
import math
import sys

import pytest
import torch

from volmin import Recipe, fit, networks
from volmin.data import TensorLoader
from volmin.exceptions import InputError
from volmin.methods import VolMinNet
from volmin.training import Callback, CsvLog, OneDevice, TensorBoardLog


class InterruptError(Exception):
    pass


class Moments(Callback):
    """Writes down every moment."""

    def __init__(self, stop=None):
        self.seen, self.stop = [], stop

    def note(self, moment, training):
        phase = training.phase.name if training.phase else None
        self.seen.append((moment, phase, len(training.history)))

    def on_fit_start(self, training):
        assert training.epochs == 3
        self.note("fit start", training)

    def on_phase_start(self, training):
        self.note("phase start", training)

    def on_epoch_end(self, training):
        self.note("epoch end", training)
        if len(training.history) == self.stop:
            raise InterruptError

    def on_phase_end(self, training):
        self.note("phase end", training)

    def on_fit_end(self, training):
        self.note("fit end", training)


def train(*callbacks, checkpoint=None, **settings):
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    method = VolMinNet(networks.mlp(3, 2, (4,)), 2, warm_up=0.5)
    loader = TensorLoader(x, y, 20)
    history = fit(method, loader, loader, Recipe(epochs=2), checkpoint, callbacks=callbacks, **settings)
    return method, history


def test_moments_come_in_order_and_again_after_a_resumption(tmp_path):
    moments = Moments()
    train(moments)
    assert moments.seen == [
        ("fit start", None, 0),
        ("phase start", "warm-up", 0),
        ("epoch end", "warm-up", 1),
        ("phase end", "warm-up", 1),
        ("phase start", "train", 1),
        ("epoch end", "train", 2),
        ("epoch end", "train", 3),
        ("phase end", "train", 3),
        ("fit end", None, 3),
    ]
    with pytest.raises(InterruptError):
        train(Moments(stop=2), checkpoint=tmp_path / "c.ckpt")
    resumed = Moments()
    train(resumed, checkpoint=tmp_path / "c.ckpt")
    assert resumed.seen == [("fit start", None, 2), ("phase start", "train", 2), *moments.seen[6:]]


def test_callbacks_do_not_change_the_training():
    class Careless(Callback):
        """Draws random numbers and leaves the method in training mode."""

        def on_epoch_end(self, training):
            torch.randn(7)
            training.method.train()

    with_callback, without = train(Careless())[0], train()[0]
    for name, value in without.state_dict().items():
        assert torch.equal(with_callback.state_dict()[name], value)


def test_weights_of_a_phase_are_selected_when_it_ends():
    class Keep(Callback):
        def on_fit_end(self, training):
            self.weights = {name: value.clone() for name, value in training.method.state_dict().items()}

    keep = Keep()
    method, _ = train(keep)
    assert all(torch.equal(value, keep.weights[name]) for name, value in method.state_dict().items())


def test_only_the_first_process_runs_callbacks():
    class Second(OneDevice):
        global_rank, is_global_zero = 1, False

    moments = Moments()
    train(moments, fabric=Second("cpu"))
    assert moments.seen == []


@pytest.mark.parametrize("callbacks", [CsvLog("log.csv"), [CsvLog], [print]])
def test_callbacks_that_are_none_are_rejected(callbacks):
    method, loader = VolMinNet(networks.mlp(3, 2), 2), TensorLoader(torch.randn(40, 3), torch.arange(40) % 2, 20)
    with pytest.raises(InputError, match=r"callbacks must be a list of volmin\.training\.Callback objects"):
        fit(method, loader, recipe=Recipe(epochs=1), callbacks=callbacks)


def test_csv_has_a_row_per_epoch_also_after_a_resumption(tmp_path):
    path = tmp_path / "logs" / "epochs.csv"
    with pytest.raises(InterruptError):
        train(CsvLog(path), Moments(stop=2), checkpoint=tmp_path / "c.ckpt", measure=lambda: {"accuracy": 0.5})
    assert len(path.read_text().splitlines()) == 3
    path.unlink()
    _, history = train(CsvLog(path), checkpoint=tmp_path / "c.ckpt", measure=lambda: {"accuracy": 0.5})
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["phase"] for row in rows] == ["warm-up", "train", "train"]
    assert [float(row["val_loss"]) for row in rows] == [record["val_loss"] for record in history]
    assert {row["accuracy"] for row in rows} == {"0.5"}


def test_tensorboard_has_every_figure_of_every_epoch(tmp_path, recwarn):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with pytest.raises(InterruptError):
        train(TensorBoardLog(tmp_path / "board"), Moments(stop=2), checkpoint=tmp_path / "c.ckpt")
    _, history = train(TensorBoardLog(tmp_path / "board"), checkpoint=tmp_path / "c.ckpt")
    read = accumulators.EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    assert set(read.Tags()["scalars"]) == {"train_loss", "val_loss", "val_accuracy", "seconds"}
    points = [(event.step, event.value) for event in read.Scalars("val_loss")]
    assert [step for step, _ in points] == [1, 2, 3], "epochs before the interruption are there once"
    assert all(math.isclose(value, history[step - 1]["val_loss"], rel_tol=1e-6) for step, value in points)


def test_missing_tensorboard_is_reported_when_training_starts(tmp_path, monkeypatch):
    log = TensorBoardLog(tmp_path)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard.writer", None)
    with pytest.raises(InputError, match="TensorBoardLog needs TensorBoard: pip install tensorboard"):
        train(log)
