"""What ``volmin audit`` reads: labels, features, and what the report shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from volmin.exceptions import InputError

if TYPE_CHECKING:
    from volmin._typing import AnyArray
    from volmin.cli.labels import Spelling
    from volmin.progress import Progress


@dataclass(frozen=True)
class AuditInput:
    """The labels to audit, the features to learn from, and the examples to show in the report."""

    path: Path
    labels: AnyArray
    features: Any
    examples: Any
    names: list[str] | None = None
    clean: AnyArray | None = None
    weights: AnyArray | None = None

    @property
    def is_table(self) -> bool:
        """Whether the features are columns of a table."""
        return hasattr(self.features, "columns")


def load_input(
    path: Path,
    label: str | None,
    spelling: Spelling,
    *,
    images: bool,
    clean: str | None,
    weight: str | None,
    ignore: Sequence[str],
    progress: Progress,
) -> AuditInput:
    """Read what is audited; the arguments are options of the command."""
    from volmin.cli.labels import labelled_table
    from volmin.data.images import load_images
    from volmin.data.tables.columns import as_numbers

    if path.is_dir() or images:
        if weight is not None:
            raise InputError(f"--weight is for tables of features, but {path} names images.")
        found = load_images(path, label, clean=clean, progress=progress)
        root = path if path.is_dir() else path.parent
        names = [str(file.relative_to(root)) for file in found.paths]
        known = None if found.clean is None else found.clean.to_numpy()
        return AuditInput(path, spelling(found.labels), found.x, found.paths, names, clean=known)
    table = labelled_table(path, label, [*ignore, *(column for column in (clean, weight) if column)])
    frame = table.frame.select(table.feature_columns)
    known = None if clean is None else table.frame[clean].to_numpy()
    weights = None if weight is None else as_numbers(table.frame[weight])
    labels = table.of_all_rows(spelling(table.labels))
    return AuditInput(path, labels, frame, frame if frame.width else None, clean=known, weights=weights)


def embedded(source: AuditInput, encoder: str, progress: Progress) -> AnyArray:
    """(N, D) features of images by the encoder that ``--image-encoder`` names."""
    from volmin.cli.encoders import image_encoder
    from volmin.data.embeddings import embed_images

    if source.names is None:
        raise InputError("--image-encoder is for a folder of images, or a table of their paths with --images.")
    found = image_encoder(encoder)
    assert found is not None
    root = source.path if source.path.is_dir() else source.path.parent
    return embed_images([root / name for name in source.names], found, cache=found.cache, progress=progress)
