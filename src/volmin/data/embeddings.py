"""Embeddings of texts and images by an encoder of the user's choice, cached by content.

An encoder is any callable that turns a list of texts, or of Pillow images, into an (n, D) array. Two are provided, for
the optional packages sentence-transformers and timm. They load weights from local files and never download any.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volmin.data.encoders import Encoder, NamedEncoder, embed, embed_texts
from volmin.data.images.files import failure_reason, pillow_warnings
from volmin.exceptions import DataError, InputError
from volmin.progress import Progress

__all__ = ["embed_images", "embed_texts", "image_encoder", "sentence_encoder"]

SIDE = 256
"""Images are given to an encoder with a shorter side of this length at most."""


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
        return embed(
            keys,
            lambda rows: list(pool.map(_picture, [files[row] for row in rows])),
            encoder,
            cache,
            "embedding images",
            progress,
        )


def sentence_encoder(folder: str | Path) -> NamedEncoder:
    """An encoder of texts from a folder with a model of sentence-transformers.

    Args:
        folder: Folder of the model, or its name in the local cache of Hugging Face.
    """
    try:
        from sentence_transformers import SentenceTransformer  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise InputError("Sentence encoders need sentence-transformers: pip install 'volmin[text]'.") from None
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # a bar of its own for the weights, also with --quiet
            model = SentenceTransformer(str(folder), local_files_only=True, device="cpu")
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise DataError(f"There is no sentence encoder at {folder}, and nothing is downloaded: {reason}") from None
    digest = (
        _digest(sorted(file for file in Path(folder).rglob("*") if file.is_file())) if Path(folder).is_dir() else None
    )
    return NamedEncoder(Path(folder).name, lambda texts: model.encode(texts, show_progress_bar=False), digest)


def image_encoder(name: str, weights: str | Path) -> NamedEncoder:
    """An encoder of images by a network of timm without its last layer.

    Args:
        name: Name of the network in timm.
        weights: File of its weights (.safetensors).
    """
    try:
        import timm  # pyright: ignore[reportMissingImports]
    except (ImportError, RuntimeError) as error:  # torchvision of another build than torch raises the latter
        reason = " ".join(str(error).split()) if getattr(error, "name", None) != "timm" else ""
        found = f" (it is installed, but cannot be imported: {reason})" if reason else ""
        raise InputError(f"Image encoders need timm: pip install 'volmin[vision]'{found}.") from None
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

    return NamedEncoder(name, encode, _digest([Path(weights)]))


def _digest(files: Sequence[Path]) -> str:
    """SHA-256 of the contents of files, in their order."""
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.read_bytes())
    return whole.hexdigest()


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
