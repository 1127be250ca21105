"""Predictions for new rows in files: the columns of the file with the predicted label and its probability."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from volmin._typing import Array
from volmin.data.images.files import failure_reason, pillow_warnings
from volmin.data.images.folder import SUFFIXES as IMAGE_SUFFIXES
from volmin.data.images.folder import images_below, names_images
from volmin.data.tables import TableEncoder, read_cells, read_table
from volmin.data.tables.columns import MAX_CATEGORIES, Category, Number, as_numbers
from volmin.data.tables.files import format_of
from volmin.data.tables.parsing import is_missing
from volmin.exceptions import DataError
from volmin.experiments.predictor import PREDICTION_BATCH, TrainedRun
from volmin.io.arrays import read_array, read_arrays
from volmin.io.atomic import replace_file
from volmin.io.spreadsheets import write_csv
from volmin.progress import Progress, tracked

PREDICTED, PROBABILITY = "predicted", "probability"


def predict_file(run: TrainedRun, new: Path, out: Path, progress: Progress | None = None) -> pl.DataFrame:
    """Write the predictions for new rows; returns the table that is written.

    Args:
        run: Finished run.
        new: For a run on a table, a table with its columns; for a run on images, a folder, an image, or a table with a
            column of paths; for a run on images or arrays, also an ``.npy`` or ``.npz`` file.
        out: File to write: ``.csv`` or ``.parquet``.
        progress: Callback for the decoding of images.
    """
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"Predictions are written as .csv or .parquet, not to {out.name}.")
    if not new.exists():
        raise DataError(f"There is nothing at {new}: give a table, an image, a folder of images, or an array.")
    if out.resolve() == new.resolve():
        raise DataError(f"The predictions would replace {new}: name another file (--out).")
    if run.encoder is not None:
        frame, probs = _of_table(run, run.encoder, new)
        if out.suffix.lower() == ".csv" and format_of(new) == "csv":
            frame = read_cells(new)[0]  # as they are in the file, also 007 and 1.50
    elif new.is_file() and new.suffix.lower() in (".npy", ".npz"):
        frame, probs = _of_arrays(run, new)
    elif run.takes_images:
        frame, probs = _of_images(run, new, progress)
    else:
        raise DataError(f"The run was trained on arrays, not on a table: give an .npy or .npz file, not {new}.")
    found = _with_predictions(frame, run, probs, new)
    _write(found, out)
    return found


def _of_table(run: TrainedRun, encoder: TableEncoder, new: Path) -> tuple[pl.DataFrame, Array]:
    if new.is_dir():
        raise DataError(f"The run was trained on a table, but {new} is a folder: give a table with its columns.")
    frame = read_table(new)
    probs = run.predict_proba(frame)  # first, since it refuses what cannot be read at all
    if told := [text for column in encoder.columns if (text := _unusual(column, frame[column.name]))]:
        more = f"; and {len(told) - 5} more columns" if len(told) > 5 else ""
        warnings.warn(f"{new.name}: {'; '.join(told[:5])}{more}.", stacklevel=3)
    return frame, probs


def _unusual(encoding: object, values: pl.Series) -> str | None:
    """Values of a column that did not occur in training, and what they are read as."""
    if isinstance(encoding, Category) and len(encoding.values) < MAX_CATEGORIES:
        text = values.cast(pl.String)
        other = text.filter(~text.is_in([value for value in encoding.values if value is not None]).fill_null(False))
        other = other.drop_nulls() if None in encoding.values else other
        if len(other):
            named = ", ".join(repr(value) if value is not None else "missing" for value in other.unique().sort()[:3])
            return f"{len(other):,} values of {values.name!r} did not occur in training ({named}): read as another"
    if isinstance(encoding, Number):
        if values.dtype == pl.String:
            strays = values.filter(pl.Series(np.isnan(as_numbers(values, encoding.style))) & ~is_missing(values))
            if len(strays):
                return f"{len(strays):,} values of {values.name!r} are no numbers ({strays[0]!r}): read as missing"
        missing = int(np.isnan(as_numbers(values, encoding.style)).sum())
        if missing and not encoding.tells_missing:
            return f"{missing:,} values of {values.name!r} are missing, but none in training: read as the median"
    return None


def _of_arrays(run: TrainedRun, new: Path) -> tuple[pl.DataFrame, Array]:
    """Predictions for the one array whose rows have the shape of the run's inputs; other arrays are columns."""
    arrays = read_arrays(new) if new.suffix.lower() == ".npz" else {"x": read_array(new)}
    fitting = [name for name, array in arrays.items() if array.shape[1:] == run.input_shape]
    if len(fitting) != 1:
        listed = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "none"
        shape = ", ".join(map(str, run.input_shape))
        raise DataError(f"{new} must hold one array of rows of shape (N, {shape}), but its arrays are: {listed}.")
    x = arrays.pop(fitting[0])
    columns = {
        name: array for name, array in arrays.items() if array.shape == (len(x),) and array.dtype.kind in "biufU"
    }
    return pl.DataFrame({"row": np.arange(len(x)), **columns}), run.predict_proba(x)


def _of_images(run: TrainedRun, new: Path, progress: Progress | None) -> tuple[pl.DataFrame, Array]:
    """Predictions for image files; those that cannot be read have none, and a warning names them."""
    frame, paths = _listed(new)
    probs, failures = np.full((len(paths), len(run.classes)), np.nan), []
    starts = range(0, len(paths), PREDICTION_BATCH)
    with pillow_warnings():
        for start in tracked(starts, "predicting images", len(starts), progress):
            read = {}
            for row in range(start, min(start + PREDICTION_BATCH, len(paths))):
                try:
                    read[row] = run.decode(paths[row])
                except Exception as error:  # Pillow may raise anything on a damaged image
                    failures.append(f"{paths[row]} ({failure_reason(error, paths[row])})")
            if read:
                probs[list(read)] = run.predict_proba(np.stack(list(read.values())))
    if len(failures) == len(paths):
        raise DataError(f"None of the {len(paths)} images of {new} can be read; the first: {failures[0]}.")
    if failures:
        more = "; ..." if len(failures) > 5 else ""
        warnings.warn(f"{len(failures)} images have no prediction: {'; '.join(failures[:5])}{more}", stacklevel=3)
    return frame, probs


def _listed(new: Path) -> tuple[pl.DataFrame, Sequence[Path]]:
    """A table with a row per image, and the paths of the images."""
    if new.is_dir():
        if not (paths := sorted(images_below(new))):
            raise DataError(f"{new} holds no images: their names end in {', '.join(IMAGE_SUFFIXES)}.")
        return pl.DataFrame({"file": [path.relative_to(new).as_posix() for path in paths]}), paths
    if new.suffix.lower() in IMAGE_SUFFIXES:
        return pl.DataFrame({"file": [new.name]}), [new]
    frame = read_table(new)
    column = next((name for name in frame.columns if names_images(frame[name])), None)
    if column is None or frame[column].null_count():
        raise DataError(f"{new} has no column with the path of an image in every row.")
    return frame, [new.parent / name for name in frame[column]]


def _with_predictions(frame: pl.DataFrame, run: TrainedRun, probs: Array, new: Path) -> pl.DataFrame:
    if taken := sorted({PREDICTED, PROBABILITY} & set(frame.columns)):
        raise DataError(f"{new} has a column {taken[0]!r} already, the name of a column of the output: rename it.")
    known = ~np.isnan(probs[:, 0])
    best = np.where(known, np.nan_to_num(probs).argmax(1), 0)
    predicted = pl.Series(PREDICTED, [run.classes[i] if k else None for i, k in zip(best, known, strict=True)])
    chances = np.where(known, np.nan_to_num(probs).max(1), np.nan)
    return frame.with_columns(predicted, pl.Series(PROBABILITY, chances, nan_to_null=True))


def _write(frame: pl.DataFrame, out: Path) -> None:
    if out.suffix.lower() == ".csv":
        rows = (["" if value is None else value for value in row] for row in frame.iter_rows())
        write_csv(out, frame.columns, rows)
        return
    with replace_file(out) as temporary:
        frame.write_parquet(temporary)
