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
from volmin._typing import AnyArray, Array
from volmin.data.dataset import standardize
from volmin.data.embeddings import embed_images
from volmin.data.encoders import Encoder, NamedEncoder, named_encoder, restored_embedding
from volmin.data.images import decode
from volmin.data.tables import TableEncoder, read_table
from volmin.exceptions import DataError
from volmin.io.sealed import read_sealed_json
from volmin.methods.base import Method
from volmin.training import clean_probs

PREDICTION_BATCH = 1000

Rows = str | Path | pl.DataFrame | Sequence[str | Path] | ArrayLike


class TrainedRun:
    """The classifier and the transition matrix of a finished run."""

    def __init__(
        self,
        method: Method,
        encoding: dict[str, Any],
        *,
        text_encoder: NamedEncoder | None = None,
        image_encoder: NamedEncoder | None = None,
    ) -> None:
        self.method = method.eval()
        self.classes: tuple[Any, ...] = tuple(encoding["classes"])
        """Labels of the columns of ``predict_proba``, as they were given."""
        self._shape = tuple(encoding["shape"])
        self._mean, self._std = encoding["mean"], encoding["std"]
        table, images = encoding["table"], encoding.get("image_embedding")
        self._table = None if table is None else TableEncoder.from_json(table, text_encoder)
        self._embedding = None if images is None else restored_embedding(images, image_encoder)
        if self._table and (len(self._table.feature_names),) != self._shape:
            raise DataError(f"The table's encoding does not give rows of the network's input shape {self._shape}.")

    @property
    def encoder(self) -> TableEncoder | None:
        """The encoding of a table's columns; None for a run on images or arrays."""
        return self._table

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of the input of the network for one row."""
        return self._shape

    @property
    def image_shape(self) -> tuple[int, ...] | None:
        """(channels, height, width) of the images; None for a run on a table or on other arrays."""
        return self._shape if self._mean else None

    @property
    def takes_images(self) -> bool:
        """Whether the rows are images, as they are or embedded."""
        return self._embedding is not None or self.image_shape is not None

    @property
    def transition(self) -> Array | None:
        """(C, C) ``T[i, j] = P(noisy = classes[i] | clean = classes[j])``; None if the method has no T."""
        with torch.no_grad():
            T = self.method.transition()
        return None if T is None else T.double().numpy()

    def predict_proba(self, rows: Rows) -> Array:
        """(N, C) posteriors of the clean label.

        Args:
            rows: New rows. For a run on a table, a table with the same columns (a path, or a data frame of polars or
                pandas); for a run on images, paths of image files; for any run, an array of the data set's inputs.
        """
        x = standardize(self._inputs(rows), self._mean, self._std)
        return clean_probs(self.method, x.split(PREDICTION_BATCH)).double().numpy()

    def predict(self, rows: Rows) -> AnyArray:
        """(N,) most probable clean labels."""
        return np.array(self.classes)[self.predict_proba(rows).argmax(axis=1)]

    def _inputs(self, rows: Rows) -> Tensor:
        if isinstance(rows, str | Path):
            rows = read_table(rows) if self._table else [rows]
        if self._table and hasattr(rows, "columns"):
            return torch.from_numpy(self._table.transform(_frame(rows)))
        if self.takes_images and isinstance(rows, Sequence) and all(isinstance(row, str | Path) for row in rows):
            return torch.from_numpy(np.stack([self._image(Path(str(row))) for row in rows]))
        return self._array(np.asarray(rows))

    def decode(self, path: Path) -> NDArray[Any]:
        """The input of the network for an image; raises whatever Pillow raises.

        These are (channels, height, width) pixels of the size of training, or the features of its embedding.
        """
        if self._embedding is not None:
            encoder = self._embedding.at_hand("the images", "image_encoder=, --image-encoder")
            return self._embedding.scaled(embed_images([path], encoder, cache=encoder.cache))[0]
        channels, height, width = self._shape
        return decode(path, height, width, channels)

    def _image(self, path: Path) -> NDArray[Any]:
        try:
            return self.decode(path)
        except OSError as error:
            raise DataError(f"{path} cannot be read as an image: {error}") from None

    def _array(self, values: AnyArray) -> Tensor:
        if values.shape[1:] != self._shape or values.dtype.kind not in "biuf":
            shape = ", ".join(map(str, self._shape))
            raise DataError(f"Rows must be numbers of shape (N, {shape}), but are {values.dtype} of {values.shape}.")
        if self._mean and values.dtype != np.uint8:
            raise DataError(f"Images must be unscaled bytes (uint8, 0..255), but are {values.dtype}.")
        return torch.from_numpy(np.ascontiguousarray(values if self._mean else values.astype(np.float32)))


def _frame(rows: Any) -> pl.DataFrame:
    """A polars data frame, from polars or from pandas, where missing values are NaN in any column."""
    if isinstance(rows, pl.DataFrame):
        return rows
    columns = {name: [None if value != value else value for value in rows[name]] for name in rows.columns}
    return pl.DataFrame(columns, strict=False)


def load_run(
    folder: str | Path,
    method: type[Method] | None = None,
    *,
    text_encoder: Encoder | None = None,
    image_encoder: Encoder | None = None,
) -> TrainedRun:
    """The classifier that a finished run has trained.

    Args:
        folder: Folder of the run.
        method: Class of the method, needed for a method from outside this package, which is never imported by name.
        text_encoder: Encoder of the columns of text, if the run had one; it is not part of the run.
        image_encoder: Encoder of the images, likewise.
    """
    folder = Path(folder)
    if not (folder / "result.json").is_file():
        what = "has not finished: resume it with the command that started it" if folder.is_dir() else "does not exist"
        raise DataError(f"The run {folder} {what}.")
    read_sealed_json(folder / "result.json", files=True)
    try:
        spec, encoding = (json.loads((folder / name).read_text("utf-8")) for name in ("spec.json", "encoder.json"))
        if method is None and spec["method"] not in methods.names():
            raise DataError(
                f"The method of the run {folder}, {spec['method']}, is not part of volmin: pass its class (method=)."
            )
        kind = method or methods.get(spec["method"])
        with torch.random.fork_rng():
            net = networks.build(spec["network"], tuple(encoding["shape"]), len(encoding["classes"]))
            trained = kind(net, len(encoding["classes"]), **spec["options"])
        trained.load_state_dict(load_file(folder / "model.safetensors"))
        return TrainedRun(
            trained,
            encoding,
            text_encoder=None if text_encoder is None else named_encoder(text_encoder),
            image_encoder=None if image_encoder is None else named_encoder(image_encoder),
        )
    except (OSError, KeyError, TypeError, RuntimeError, json.JSONDecodeError, SafetensorError) as error:
        raise DataError(f"The run {folder} is incomplete or damaged ({' '.join(str(error).split())[:200]}).") from None
