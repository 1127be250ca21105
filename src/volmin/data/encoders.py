"""Encoders of texts and images: any callable, with a name that a record can hold, and embeddings cached by content."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.exceptions import DataError, InputError
from volmin.io.arrays import read_arrays
from volmin.io.atomic import replace_file
from volmin.progress import Progress, tracked

Encoder = Callable[[list[Any]], Any]
"""A list of texts or images -> (n, D) numbers."""

BATCH = 64
"""Number of texts or images that an encoder gets at a time."""


@dataclass(frozen=True)
class NamedEncoder:
    """An encoder, what identifies it, and where its embeddings are kept.

    Attributes:
        name: Name of the model or function.
        encode: Callable from a list of texts, or of Pillow images, to (n, D) numbers.
        digest: SHA-256 of the model's files; None if there are none.
        cache: File (.npz) that keeps embeddings by content; None for none.
    """

    name: str
    encode: Encoder
    digest: str | None = None
    cache: Path | None = None

    def __call__(self, batch: list[Any]) -> Any:
        return self.encode(batch)

    @property
    def identity(self) -> str:
        """Name and digest, for a record."""
        return self.name if self.digest is None else f"{self.name} (sha256 {self.digest})"

    def texts(self, texts: Sequence[str], progress: Progress | None = None) -> NDArray[np.float32]:
        """(N, D) embeddings of texts."""
        return embed_texts(texts, self.encode, cache=self.cache, progress=progress)


def named_encoder(encoder: Any) -> NamedEncoder:
    """The encoder with a name; an ``InputError`` if it cannot be called."""
    if isinstance(encoder, NamedEncoder):
        return encoder
    if not callable(encoder):
        raise InputError(f"An encoder must be a function from a list to (n, D) numbers, but is {encoder!r}.")
    return NamedEncoder(getattr(encoder, "__qualname__", type(encoder).__name__), encoder)


@dataclass(frozen=True)
class Embedding:
    """Embeddings as features: centred, and scaled by a common factor. The encoder itself is not part of a record.

    Attributes:
        encoder: Identity of the encoder.
        center: (D,) means, which are subtracted.
        scale: Common factor. A factor for each number would amplify the ones that are mostly noise.
        source: The encoder, where it is at hand.
    """

    encoder: str
    center: list[float]
    scale: float
    source: NamedEncoder | None = field(default=None, compare=False, repr=False)

    @classmethod
    def fit(cls, values: NDArray[np.float32], encoder: NamedEncoder) -> Embedding:
        """Fit to (N, D) embeddings."""
        center = values.mean(axis=0)
        spread = float(np.sqrt(np.mean((values - center) ** 2)))
        scale = 1 / spread if spread > 0 else 1.0
        return cls(encoder.identity, [float(mean) for mean in center], scale, encoder)

    def check(self) -> None:
        """Raise a ``TypeError`` for values that ``fit`` cannot have produced."""
        numbers = isinstance(self.center, list) and all(type(mean) in (int, float) for mean in self.center)
        scaled = type(self.scale) in (int, float) and math.isfinite(self.scale) and self.scale > 0
        if not (isinstance(self.encoder, str) and numbers and self.center and scaled):
            raise TypeError("an embedding needs the name of its encoder, means and a positive scale")

    @property
    def size(self) -> int:
        """Number of features D."""
        return len(self.center)

    def scaled(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, D) features from embeddings."""
        if values.shape[1] != self.size:
            raise DataError(f"{self.encoder} gave {self.size} numbers in training, but gives {values.shape[1]} now.")
        return ((values - np.array(self.center)) * self.scale).astype(np.float32)

    def with_encoder(self, encoder: NamedEncoder) -> Embedding:
        """The same embedding with its encoder, which must be the recorded one if it has files."""
        if "(sha256 " in self.encoder and encoder.digest is not None and self.encoder != encoder.identity:
            raise DataError(f"The encoder of the training was {self.encoder}, but {encoder.identity} is given.")
        return replace(self, source=encoder)

    def at_hand(self, what: str, options: str) -> NamedEncoder:
        """The encoder, or a ``DataError`` that says how to give it."""
        if self.source is None:
            raise DataError(f"The encoder of {what}, {self.encoder}, is not part of the run: give it ({options}).")
        return self.source

    def to_json(self) -> dict[str, Any]:
        """Content in JSON types, the keyword arguments of the constructor."""
        return {"encoder": self.encoder, "center": self.center, "scale": self.scale}


def restored_embedding(content: Mapping[str, Any], encoder: NamedEncoder | None) -> Embedding:
    """The embedding of a record with its encoder; any other content is a ``DataError``."""
    try:
        found = Embedding(**content)
        found.check()
    except TypeError as error:
        raise DataError(f"This is not the content of an embedding: {error}.") from None
    return found if encoder is None else found.with_encoder(encoder)


def embed_texts(
    texts: Sequence[str], encoder: Encoder, *, cache: str | Path | None = None, progress: Progress | None = None
) -> NDArray[np.float32]:
    """(N, D) embeddings of texts; equal texts are encoded once.

    Args:
        texts: (N,) texts.
        encoder: Callable from a list of texts to (n, D) numbers.
        cache: File (.npz) that keeps embeddings by content for the next time; one for each encoder.
        progress: Callback for the progress.
    """
    keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for text in texts]
    return embed(keys, lambda rows: [texts[row] for row in rows], encoder, cache, "embedding texts", progress)


def embed(
    keys: Sequence[str],
    load: Callable[[Sequence[int]], list[Any]],
    encoder: Encoder,
    cache: str | Path | None,
    title: str,
    progress: Progress | None,
) -> NDArray[np.float32]:
    """Embeddings by key: from the cache, or computed from what ``load`` gives for rows.

    Args:
        keys: (N,) digests of what is embedded; equal ones are embedded once.
        load: Function from rows to the texts or images that the encoder takes.
        encoder: Callable from a list of these to (n, D) numbers.
        cache: File (.npz) that keeps embeddings by key; None for none.
        title: Title of the progress.
        progress: Callback for the progress.
    """
    if not keys:
        raise InputError("There is nothing to embed.")
    place = None if cache is None else Path(cache)
    known = _read(place) if place is not None and place.is_file() else {}
    first = {key: row for row, key in reversed(list(enumerate(keys)))}
    new = sorted(row for key, row in first.items() if key not in known)
    batches = [new[start : start + BATCH] for start in range(0, len(new), BATCH)]
    for rows in tracked(batches, title, len(batches), progress):
        known |= zip((keys[row] for row in rows), _checked(encoder(load(rows)), len(rows)), strict=True)
    widths = {len(known[key]) for key in keys}
    if len(widths) > 1:
        raise InputError(
            f"The embeddings have {' and '.join(map(str, sorted(widths)))} numbers: {cache} is of another encoder."
        )
    if place is not None and new:
        names = list(known)
        with replace_file(place) as temporary, temporary.open("wb") as file:
            np.savez(file, keys=np.array(names), embeddings=np.stack([known[key] for key in names]))
    return np.stack([known[key] for key in keys])


def _read(path: Path) -> dict[str, NDArray[np.float32]]:
    arrays = read_arrays(path)
    if set(arrays) != {"keys", "embeddings"} or len(arrays["keys"]) != len(arrays["embeddings"]):
        raise DataError(f"{path} is not a cache of embeddings: delete it or name another file.")
    return dict(zip(arrays["keys"].tolist(), arrays["embeddings"], strict=True))


def _checked(found: Any, count: int) -> Iterator[NDArray[np.float32]]:
    values = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found, dtype=np.float32)
    if values.ndim != 2 or len(values) != count or not np.isfinite(values).all():
        raise InputError(f"The encoder must give ({count}, D) finite numbers, but gave shape {values.shape}.")
    return iter(values)
