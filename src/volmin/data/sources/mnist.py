"""MNIST: handwritten digits of 28 x 28 pixels."""

from __future__ import annotations

from pathlib import Path

from volmin.data.dataset import Dataset
from volmin.data.sources.idx import download_idx, read_parts
from volmin.progress import Progress

_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_DIGESTS = (
    "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
)
_FOLDERS = ("", "MNIST/raw", "mnist", "raw")


def load(data_dir: Path | None = None, progress: Progress | None = None) -> Dataset:
    """60,000 training and 10,000 test digits, read from ``data_dir`` or downloaded once."""
    folder = data_dir if data_dir is not None else download_idx("mnist", _SOURCE, _DIGESTS, progress)
    train, test = read_parts(folder, "MNIST", _FOLDERS)
    return Dataset("mnist", train, test, classes=tuple("0123456789"), mean=(0.1307,), std=(0.3081,))
