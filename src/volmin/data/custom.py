"""Data sets from a user's files: a table, or a folder of images, with the labels as given.

Such data has no test part, so a fifth of the rows of each class is held out, the same for all seeds. The test labels
are as noisy as the others unless a column of true labels is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from volmin._typing import AnyArray, Labels
from volmin.data.dataset import Dataset, Part
from volmin.data.embeddings import embed_images
from volmin.data.encoders import Embedding, Encoder, named_encoder
from volmin.data.images import load_images
from volmin.data.sources import names
from volmin.data.splits import held_out
from volmin.data.tables import SUFFIXES, TableEncoder, check_column, column_labels, read_table
from volmin.exceptions import DataError
from volmin.progress import Progress


def load_custom(
    path: str | Path,
    *,
    label: str | None = None,
    clean: str | None = None,
    ignore: Sequence[str] = (),
    types: Mapping[str, str] | None = None,
    images: bool = False,
    size: int | None = None,
    text_encoder: Encoder | None = None,
    image_encoder: Encoder | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Load the data set in a table or a folder; the arguments are those of ``load_dataset``."""
    path = check_path(path)
    if text_encoder is not None and (path.is_dir() or images):
        raise DataError(f"{path} holds images and no text: leave out the text encoder.")
    if image_encoder is not None and not (path.is_dir() or images):
        raise DataError(f"{path} is a table of features: leave out the image encoder, or set images.")
    if path.is_dir() and (label or clean or ignore or types):
        raise DataError(f"{path} is a folder, whose folders are the labels: leave out label, clean, ignore and types.")
    if path.is_dir() or images:
        if ignore:
            raise DataError(f"{path} names images, and its other columns are not used: leave out ignore.")
        return _from_images(path, label, clean, size, image_encoder, progress)
    if size is not None:
        raise DataError(f"{path} is a table of features, which have no size: leave out size, or set images.")
    return _from_table(path, label, clean, ignore, types, text_encoder, progress)


def check_path(path: str | Path) -> Path:
    """Require the path of an existing table or folder; the error lists what may be given."""
    found = Path(path)
    if found.is_dir() or (found.is_file() and found.suffix.lower() in SUFFIXES):
        return found
    raise DataError(
        f"Unknown data set {str(path)!r}. Choose one of: {', '.join(names())}; or give the path of a table "
        f"({', '.join(SUFFIXES)}) or of a folder with a folder of images per class."
    )


def _from_table(
    path: Path,
    label: str | None,
    clean: str | None,
    ignore: Sequence[str],
    types: Mapping[str, str] | None,
    text_encoder: Encoder | None,
    progress: Progress | None,
) -> Dataset:
    frame = read_table(path)
    if label is None:
        raise DataError(f"Name the label column of {path} (--label, label=). It has: {', '.join(frame.columns[:20])}.")
    no_features = [label, *([clean] if clean else []), *ignore]
    for column in no_features:
        check_column(frame, column, path)
    truth = column_labels(frame[clean], path) if clean else None
    classes, noisy, true = _numbered(column_labels(frame[label], path), truth)
    train, test = _held_out(noisy, path)
    features = [name for name in frame.columns if name not in no_features]
    encoder = TableEncoder(None if text_encoder is None else named_encoder(text_encoder))
    encoder.fit(frame[train], features, types, progress)
    x = torch.from_numpy(encoder.transform(frame, progress))
    return Dataset(
        path.stem,
        *_parts(x, noisy if true is None else true, train, test),
        classes,
        noisy=None if true is None else noisy[train],
        clean_train=true is not None,
        clean_test=true is not None,
        encoder=encoder.to_json(),
    )


def _from_images(
    path: Path,
    label: str | None,
    clean: str | None,
    size: int | None,
    image_encoder: Encoder | None,
    progress: Progress | None,
) -> Dataset:
    images = load_images(path, label, size=size, clean=clean, progress=progress)
    truth = None if images.clean is None else column_labels(images.clean, path)
    classes, noisy, true = _numbered(images.labels, truth)
    train, test = _held_out(noisy, path)
    given = None if true is None else noisy[train]
    if image_encoder is not None:
        encoder = named_encoder(image_encoder)
        values = embed_images(images.paths, encoder, cache=encoder.cache, progress=progress)
        embedding = Embedding.fit(values[train], encoder)
        x = torch.from_numpy(embedding.scaled(values))
        parts = _parts(x, noisy if true is None else true, train, test)
        return Dataset(
            path.stem,
            *parts,
            classes,
            noisy=given,
            clean_train=true is not None,
            clean_test=true is not None,
            image_embedding=embedding.to_json(),
        )
    pixels = images.x[train].float().div_(255)
    std, mean = torch.std_mean(pixels, dim=(0, 2, 3))
    return Dataset(
        path.stem,
        *_parts(images.x, noisy if true is None else true, train, test),
        classes,
        noisy=given,
        mean=tuple(mean.tolist()),
        std=tuple(std.clamp_min(1e-3).tolist()),
        clean_train=true is not None,
        clean_test=true is not None,
    )


def _parts(x: Tensor, labels: Labels, train: Labels, test: Labels) -> tuple[Part, Part]:
    return Part(x[train], labels[train]), Part(x[test], labels[test])


def _held_out(labels: Labels, path: Path) -> tuple[Labels, Labels]:
    train, test = held_out(labels)
    if not len(test):
        raise DataError(f"{path} has {len(labels)} rows, too few to hold some out: a class needs at least 3.")
    return train, test


def _numbered(given: AnyArray, truth: AnyArray | None) -> tuple[tuple[Any, ...], Labels, Labels | None]:
    """All classes in order, and the given and the true labels as class numbers."""
    if truth is None:
        classes, noisy = np.unique(given, return_inverse=True)
        return tuple(classes.tolist()), noisy, None
    if given.dtype.kind != truth.dtype.kind:
        given, truth = given.astype(str), truth.astype(str)
    classes, codes = np.unique(np.concatenate([given, truth]), return_inverse=True)
    return tuple(classes.tolist()), codes[: len(given)], codes[len(given) :]
