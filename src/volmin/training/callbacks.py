"""Callbacks: a user's code at the moments of a training, and two ready ones that write what is measured."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from volmin.exceptions import InputError
from volmin.io.atomic import write_text
from volmin.training.evaluation import Record
from volmin.training.phase import Phase

if TYPE_CHECKING:
    from volmin.methods.base import Method


@dataclass
class Training:
    """A training as callbacks see it. They may read all of it, and must not change it."""

    method: Method
    epochs: int
    """Number of epochs of all phases; early stopping may end sooner."""
    history: list[Record] = field(default_factory=list)
    """A record per epoch, also of those before a resumption."""
    phase: Phase | None = None
    """The current phase; None before the first and after the last."""


class Callback:
    """Code to run at the moments of a training: override the methods of the moments you need.

    With several devices, callbacks run in the first process only. An exception in a callback ends the training; with a
    checkpoint, the same call resumes it.
    """

    def on_fit_start(self, training: Training) -> None:
        """Before the first phase; the history already holds the epochs before a resumption."""

    def on_phase_start(self, training: Training) -> None:
        """Before the first epoch of a phase, after its preparation; again where a resumed run continues it."""

    def on_epoch_end(self, training: Training) -> None:
        """After every epoch, once its record is complete and its checkpoint is written."""

    def on_phase_end(self, training: Training) -> None:
        """After a phase, when the method has the weights of the selected epoch."""

    def on_fit_end(self, training: Training) -> None:
        """After the last phase, when the method has its final weights."""


class CsvLog(Callback):
    """Writes a table with a row per epoch, whole after every epoch.

    Args:
        path: File to write; an existing one is replaced.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def on_fit_start(self, training: Training) -> None:
        if training.history:
            self.on_epoch_end(training)

    def on_epoch_end(self, training: Training) -> None:
        # Phases may measure different figures.
        columns = list(dict.fromkeys(key for record in training.history for key in record))
        content = io.StringIO(newline="")
        table = csv.DictWriter(content, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(training.history)
        write_text(self.path, content.getvalue())


class TensorBoardLog(Callback):
    """Writes every figure of every epoch as a scalar for TensorBoard, which is imported when training starts.

    Args:
        folder: Folder of the event files.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder, self.writer = Path(folder), None

    def on_fit_start(self, training: Training) -> None:
        try:
            from torch.utils.tensorboard.writer import SummaryWriter
        except ImportError as error:
            raise InputError(f"TensorBoardLog needs TensorBoard: pip install tensorboard ({error}).") from None
        # Epochs that were logged before an interruption are purged and written again.
        self.writer = SummaryWriter(str(self.folder), purge_step=0)
        self._write(training.history)

    def on_epoch_end(self, training: Training) -> None:
        self._write(training.history[-1:])

    def on_fit_end(self, training: Training) -> None:
        if self.writer is not None:
            self.writer.close()

    def _write(self, records: Sequence[Record]) -> None:
        assert self.writer is not None
        for record in records:
            figures: dict[str, Any] = {key: value for key, value in record.items() if isinstance(value, float)}
            for key, value in figures.items():
                self.writer.add_scalar(key, value, record["epoch"])
        self.writer.flush()


def check_callbacks(callbacks: Any) -> None:
    """Require a list of objects, not a class nor a function, before training begins."""
    given = callbacks if isinstance(callbacks, Sequence) else [callbacks]
    wrong = [callback for callback in given if not isinstance(callback, Callback)]
    if wrong or given is not callbacks:
        raise InputError(
            f"callbacks must be a list of volmin.training.Callback objects, but is or holds {[*wrong, callbacks][0]!r}."
        )


Moment = Literal["on_fit_start", "on_phase_start", "on_epoch_end", "on_phase_end", "on_fit_end"]


def notify(callbacks: Sequence[Callback], moment: Moment, training: Training) -> None:
    """Call the method of each callback that is named after a moment."""
    for callback in callbacks:
        getattr(callback, moment)(training)
