"""Official files, downloaded once and verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from volmin.exceptions import DataError
from volmin.progress import Progress


def cache_dir() -> Path:
    """Folder of this package in the user's cache."""
    import pooch

    return Path(pooch.os_cache("volmin"))


def download(url: str, digest: str, folder: Path, progress: Progress | None = None) -> Path:
    """Download a file into a folder unless it is there already; give its path.

    Args:
        url: Address of the official file.
        digest: Checksum of the file as ``md5:...`` or ``sha256:...``; any other content is refused.
        folder: Folder to keep the file in.
        progress: Callback that reports the number of bytes downloaded.
    """
    import pooch

    name = url.rpartition("/")[2]
    bar = False if progress is None else _Bar(f"downloading {name} (bytes)", progress)
    downloader: Any = pooch.HTTPDownloader  # its type hints know no progress bar but tqdm
    try:
        pooch.retrieve(url, known_hash=digest, fname=name, path=folder, downloader=downloader(progressbar=bar))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{url} could not be downloaded to {folder} ({type(error).__name__}). "
            "Give a directory that holds the official files (--data-dir, data_dir=)."
        ) from None
    return folder / name


class _Bar:
    """Adapts a progress callback to the methods of tqdm that pooch calls."""

    def __init__(self, title: str, progress: Progress) -> None:
        self.title, self.progress = title, progress
        self.done, self._total = 0, 0

    @property
    def total(self) -> int:
        """Size of the file in bytes, 0 if unknown; pooch sets it before the first ``update``."""
        return self._total

    @total.setter
    def total(self, size: int) -> None:
        self._total = int(size)
        self._report()

    def update(self, count: int) -> None:
        # pooch counts whole chunks, of which the last is shorter.
        self.done = min(self.done + count, self.total)
        self._report()

    def reset(self) -> None:
        self.done = 0  # not reported: pooch calls update(total) next

    def close(self) -> None:
        pass

    def _report(self) -> None:
        if self.total > 0:
            self.progress(self.title, self.done, self.total)
