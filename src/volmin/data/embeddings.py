"""Embeddings of texts and images by an encoder of the user's choice, cached by content.

An encoder is any callable that turns a list of texts, or of Pillow images, into an (n, D) array. Two are provided, for
the optional packages sentence-transformers and timm. They load weights from local files and never download any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.data.images.files import failure_reason, pillow_warnings
from volmin.exceptions import DataError, InputError
from volmin.io.arrays import read_arrays
from volmin.io.atomic import replace_file
from volmin.progress import Progress, tracked

Encoder = Callable[[list[Any]], Any]
"""A list of texts or images -> (n, D) numbers."""

BATCH = 64
"""Number of texts or images that an encoder gets at a time."""

SIDE = 256
"""Images are given to an encoder with a shorter side of this length at most."""


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
    return _embedded(keys, lambda rows: [texts[row] for row in rows], encoder, cache, "embedding texts", progress)


def embed_images(
    paths: Sequence[str | Path],
    encoder: Encoder,
    *,
    cache: str | Path | None = None,
    progress: Progress | None = None,
) -> NDArray[np.float32]:
    """(N, D) embeddings of image files; equal files are encoded once.

    Args:
        paths: (N,) image files.
        encoder: Callable from a list of RGB Pillow images to (n, D) numbers.
        cache: File (.npz) that keeps embeddings by content for the next time; one for each encoder.
        progress: Callback for the progress.
    """
    files = [Path(path) for path in paths]
    if absent := [path for path in files if not path.is_file()]:
        raise DataError(f"There is no image at {absent[0]} ({len(absent)} of {len(files)} are missing).")
    keys = [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
    with ThreadPoolExecutor() as pool:
        return _embedded(
            keys,
            lambda rows: list(pool.map(_picture, [files[row] for row in rows])),
            encoder,
            cache,
            "embedding images",
            progress,
        )


def sentence_encoder(folder: str | Path) -> Encoder:
    """An encoder of texts from a folder with a model of sentence-transformers.

    Args:
        folder: Folder of the model, or its name in the local cache of Hugging Face.
    """
    try:
        from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("Sentence encoders need sentence-transformers: pip install 'volmin[text]'.") from None
    try:
        model = SentenceTransformer(str(folder), local_files_only=True, device="cpu")
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"There is no sentence encoder at {folder}, and nothing is downloaded: {reason}") from None
    return lambda texts: model.encode(texts, show_progress_bar=False)


def image_encoder(name: str, weights: str | Path) -> Encoder:
    """An encoder of images by a network of timm without its last layer.

    Args:
        name: Name of the network in timm.
        weights: File of its weights (.safetensors).
    """
    try:
        import timm  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("Image encoders need timm: pip install 'volmin[vision]'.") from None
    import torch
    from safetensors.torch import load_file

    if not Path(weights).is_file():
        raise DataError(f"There are no weights at {weights}, and nothing is downloaded.")
    try:
        network = timm.create_model(name, pretrained=False, num_classes=0)
        missing = network.load_state_dict(load_file(weights), strict=False).missing_keys
    except (RuntimeError, ValueError, OSError) as error:
        raise DataError(f"{weights} does not hold weights of {name}: {str(error).splitlines()[0]}") from None
    if missing:
        raise DataError(f"{weights} lacks {len(missing)} weights of {name}, such as {missing[0]}.")
    network.eval()
    prepare = timm.data.create_transform(**timm.data.resolve_data_config({}, model=network), is_training=False)

    def encode(images: list[Any]) -> NDArray[np.float32]:
        with torch.inference_mode():
            return network(torch.stack([prepare(image) for image in images])).float().numpy()

    return encode


def _embedded(
    keys: Sequence[str],
    load: Callable[[Sequence[int]], list[Any]],
    encoder: Encoder,
    cache: str | Path | None,
    title: str,
    progress: Progress | None,
) -> NDArray[np.float32]:
    """Embeddings by key: from the cache, or computed from what ``load`` gives for rows."""
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


def _picture(path: Path) -> Any:
    from PIL import Image, ImageOps

    try:
        with pillow_warnings(), Image.open(path) as image:
            image.draft("RGB", (2 * SIDE, 2 * SIDE))
            upright = ImageOps.exif_transpose(image).convert("RGB")
    except Exception as error:  # Pillow may raise anything on a damaged image
        raise DataError(f"The image {path} cannot be read: {failure_reason(error, path)}.") from None
    scale = SIDE / min(upright.size)
    return upright if scale >= 1 else upright.resize((round(upright.width * scale), round(upright.height * scale)))
