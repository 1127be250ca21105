"""``volmin audit --text-encoder`` and ``--image-encoder``: features from encoders in local files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from volmin.exceptions import InputError

if TYPE_CHECKING:
    import polars as pl

    from volmin._typing import AnyArray
    from volmin.progress import Progress


def with_embedded_text(frame: pl.DataFrame, columns: Sequence[str], folder: Path, progress: Progress) -> pl.DataFrame:
    """The table with the numbers of a sentence encoder in place of each of the columns."""
    import polars as pl

    from volmin.data.embeddings import embed_texts, sentence_encoder
    from volmin.data.tables import check_column

    if not columns:
        raise InputError("--text-encoder needs the columns of text: name them with --text COLUMN.")
    for name in columns:
        check_column(frame, name, "The table")
    encoder, cache = sentence_encoder(folder), cache_file(str(folder.resolve()))
    for name in columns:
        texts = frame[name].cast(pl.String).fill_null("").to_list()
        numbers = embed_texts(texts, encoder, cache=cache, progress=progress)
        parts = [pl.Series(f"{name} embedding {place}", part) for place, part in enumerate(numbers.T)]
        frame = pl.DataFrame([*frame.drop(name).get_columns(), *parts])
    return frame


def embedded_images(paths: Sequence[Path], encoder: str, progress: Progress) -> AnyArray:
    """(N, D) features of images from ``NETWORK=WEIGHTS``."""
    from volmin.data.embeddings import embed_images, image_encoder

    name, equals, weights = encoder.partition("=")
    if not (name and equals and weights):
        raise InputError(
            f"--image-encoder takes NETWORK=WEIGHTS, e.g. resnet50=resnet50.safetensors, but got {encoder!r}."
        )
    file = Path(weights)
    cache = cache_file(f"{name} {file.resolve()} {file.stat().st_mtime_ns if file.is_file() else 0}")
    return embed_images(paths, image_encoder(name, file), cache=cache, progress=progress)


def cache_file(encoder: str) -> Path:
    """File that keeps the embeddings of an encoder, in the user's cache folder."""
    import pooch

    folder = Path(pooch.os_cache("volmin"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"embeddings-{hashlib.sha256(encoder.encode()).hexdigest()[:16]}.npz"
