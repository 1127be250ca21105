"""``--text-encoder`` and ``--image-encoder``: encoders in local files, with a cache in the user's cache folder."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volmin.exceptions import InputError

if TYPE_CHECKING:
    from volmin.data.encoders import NamedEncoder

TextEncoder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Model of sentence-transformers in a local folder, for columns of text (extra: volmin[text]).",
    ),
]
ImageEncoder = Annotated[
    str | None,
    typer.Option(
        metavar="NETWORK=FILE",
        help="Network of timm and a file of its weights, to embed images with (extra: volmin[vision]).",
    ),
]


def text_encoder(folder: Path | None) -> NamedEncoder | None:
    """The encoder of texts in a folder; None without one."""
    if folder is None:
        return None
    from volmin.data.embeddings import sentence_encoder

    return _cached(sentence_encoder(folder))


def image_encoder(given: str | None) -> NamedEncoder | None:
    """The encoder of images that ``NETWORK=FILE`` names; None without one."""
    if given is None:
        return None
    from volmin.data import embeddings

    name, equals, weights = given.partition("=")
    if not (name and equals and weights):
        raise InputError(
            f"--image-encoder takes NETWORK=WEIGHTS, e.g. resnet50=resnet50.safetensors, but got {given!r}."
        )
    return _cached(embeddings.image_encoder(name, Path(weights)))


def _cached(encoder: NamedEncoder) -> NamedEncoder:
    """The encoder with a file that keeps its embeddings, if the contents of its model are known."""
    import pooch

    if encoder.digest is None:
        return encoder
    folder = Path(pooch.os_cache("volmin"))
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(encoder.identity.encode()).hexdigest()[:16]
    return replace(encoder, cache=folder / f"embeddings-{key}.npz")
