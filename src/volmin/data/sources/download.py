"""Official files, fetched once and checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from volmin.cli.progress import DownloadProgress
from volmin.exceptions import DataError


def cache_dir() -> Path:
    """The folder of the user's cache that belongs to this package."""
    import pooch

    return Path(pooch.os_cache("volmin"))


def download(url: str, digest: str, folder: Path) -> Path:
    """Fetch ``url`` into ``folder`` unless the file is there already.

    Args:
        url: where the official file lives.
        digest: its checksum as ``md5:...`` or ``sha256:...``; another content is refused.
        folder: where to keep it.
    """
    import pooch

    name = url.rpartition("/")[2]
    try:
        with DownloadProgress(name) as progress:
            fetch = cast(Any, pooch.HTTPDownloader)(progressbar=progress)  # its types know of tqdm only
            pooch.retrieve(url, known_hash=digest, fname=name, path=folder, downloader=fetch)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{url} could not be downloaded to {folder} ({type(error).__name__}). "
            "Give a directory that holds the official files (--data-dir, data_dir=)."
        ) from None
    return folder / name
