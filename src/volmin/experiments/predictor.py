"""A finished run as a classifier for new rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from volmin import methods, networks
from volmin.data import DataError, TensorLoader
from volmin.data.dataset import standardize
from volmin.data.images import decode
from volmin.data.tables import TableEncoder, read_table
from volmin.io.sealed import read_sealed_json
from volmin.methods.base import Method
from volmin.training import clean_probs

PREDICTION_BATCH = 1000

Rows = str | Path | pl.DataFrame | Sequence[str | Path] | ArrayLike


class TrainedRun:
    """The classifier and the transition matrix that a run has learned."""

    def __init__(self, method: Method, encoding: dict[str, Any]) -> None:
        self.method = method.eval()
        self.classes: tuple[Any, ...] = tuple(encoding["classes"])
        """What the columns of ``predict_proba`` stand for: labels as they were given."""
        self._shape = tuple(encoding["shape"])
        self._mean, self._std = encoding["mean"], encoding["std"]
        self._table = None if encoding["table"] is None else TableEncoder.from_json(encoding["table"])
        if self._table and (len(self._table.feature_names),) != self._shape:
            raise DataError(f"The encoding of the table does not give rows of the shape {self._shape} of the network.")

    @property
    def transition(self) -> NDArray[np.float64] | None:
        """(C, C) ``T[i, j] = P(noisy = classes[i] | clean = classes[j])``, where the method has one."""
        with torch.no_grad():
            T = self.method.transition()
        return None if T is None else T.double().numpy()

    def predict_proba(self, rows: Rows) -> NDArray[np.float64]:
        """(N, C) posteriors of the clean label.

        Args:
            rows: for a run on a table, a table (its path, or a data frame of polars or pandas) with the same columns;
                for a run on images, paths of image files; for any run, an array of inputs as the data set has them.
        """
        x = standardize(self._inputs(rows), self._mean, self._std)
        loader = TensorLoader(x, torch.zeros(len(x)), PREDICTION_BATCH)
        return clean_probs(self.method, (batch.x for batch in loader)).double().numpy()

    def predict(self, rows: Rows) -> NDArray[Any]:
        """(N,) most probable clean labels."""
        return np.array(self.classes)[self.predict_proba(rows).argmax(axis=1)]

    def _inputs(self, rows: Rows) -> Tensor:
        if isinstance(rows, str | Path):
            rows = read_table(rows) if self._table else [rows]
        if self._table and hasattr(rows, "columns"):
            return torch.from_numpy(self._table.transform(_frame(rows)))
        if self._mean and isinstance(rows, Sequence) and all(isinstance(row, str | Path) for row in rows):
            return torch.from_numpy(np.stack([self._image(Path(str(row))) for row in rows]))
        return self._array(np.asarray(rows))

    def _image(self, path: Path) -> NDArray[np.uint8]:
        channels, height, width = self._shape
        try:
            return decode(path, height, width, channels)
        except OSError as error:
            raise DataError(f"{path} cannot be read as an image: {error}") from None

    def _array(self, values: NDArray[Any]) -> Tensor:
        if values.shape[1:] != self._shape or values.dtype.kind not in "biuf":
            shape = ", ".join(map(str, self._shape))
            raise DataError(f"Rows must be numbers of shape (N, {shape}), but are {values.dtype} of {values.shape}.")
        if self._mean and values.dtype != np.uint8:
            raise DataError(f"Images must hold the bytes of their files (uint8, 0..255), but are {values.dtype}.")
        return torch.from_numpy(np.ascontiguousarray(values if self._mean else values.astype(np.float32)))


def _frame(rows: Any) -> pl.DataFrame:
    """A data frame of polars, also from one of pandas, whose missing values are NaN in any column."""
    if isinstance(rows, pl.DataFrame):
        return rows
    columns = {name: [None if value != value else value for value in rows[name]] for name in rows.columns}
    return pl.DataFrame(columns, strict=False)


def load_run(folder: str | Path, method: type[Method] | None = None) -> TrainedRun:
    """What the run in ``folder`` has learned, ready for new rows.

    Args:
        folder: a finished run's folder.
        method: the class of the method, for a run with one from outside this package, which is never imported by name.
    """
    folder = Path(folder)
    if not (folder / "result.json").is_file():
        what = "has not finished: the command that began it goes on" if folder.is_dir() else "does not exist"
        raise DataError(f"The run {folder} {what}.")
    read_sealed_json(folder / "result.json", files=True)
    try:
        spec, encoding = (json.loads((folder / name).read_text("utf-8")) for name in ("spec.json", "encoder.json"))
        if method is None and spec["method"] not in methods.names():
            raise DataError(f"The run {folder} has a method from outside, {spec['method']}: pass its class (method=).")
        kind = method or methods.get(spec["method"])
        with torch.random.fork_rng():
            net = networks.build(spec["network"], tuple(encoding["shape"]), len(encoding["classes"]))
            trained = kind(net, len(encoding["classes"]), **spec["options"])
        trained.load_state_dict(load_file(folder / "model.safetensors"))
        return TrainedRun(trained, encoding)
    except (OSError, KeyError, TypeError, RuntimeError, json.JSONDecodeError, SafetensorError) as error:
        raise DataError(f"The run {folder} is incomplete or damaged ({' '.join(str(error).split())[:200]}).") from None
