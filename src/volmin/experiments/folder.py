"""The folder of a run: its files, how they are written and how they are read.

``spec.json`` identifies the run and ``metrics.jsonl`` has a line per epoch. ``checkpoint.ckpt`` and ``warnings.json``
exist while the run is unfinished. ``result.json`` is written last, with checksums of the other files: a folder that has
it is finished.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from volmin.exceptions import DamagedFileError
from volmin.io.atomic import read_json, replace_file, write_json, write_text
from volmin.io.locks import only_process
from volmin.io.sealed import read_sealed_json, write_sealed_json
from volmin.methods.base import Method
from volmin.training import Record

CHECKPOINT = "checkpoint.ckpt"
_WARNINGS = "warnings.json"
_ARTEFACTS = ("spec.json", "encoder.json", "transition.npy", "model.safetensors", "metrics.jsonl")


def read_result(folder: Path, files: bool = False) -> dict[str, Any] | None:
    """The result of a finished run; None for an unfinished one.

    Args:
        folder: Folder of the run.
        files: Whether to verify the checksums of the files beside ``result.json`` too.
    """
    path = folder / "result.json"
    return read_sealed_json(path, files) if path.exists() else None


def read_metrics(folder: Path) -> list[Record]:
    """The recorded epochs of a run, without a last line that was cut off: resuming writes it again."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    content = path.read_bytes()
    try:
        records = [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]
        if not all(isinstance(record["seconds"], float) for record in records):
            raise TypeError("seconds are not numbers")
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise DamagedFileError(
            f"{path} is damaged ({error}): delete it, and resume the run to write it again."
        ) from None
    return records


def write_result(folder: Path, method: Method, encoding: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Write the files of a finished run, ``result.json`` last, and remove those of an unfinished one."""
    with torch.no_grad():
        T = method.transition()
    if T is not None:
        with replace_file(folder / "transition.npy") as temporary, temporary.open("wb") as file:
            np.save(file, T.cpu().numpy())
    with replace_file(folder / "model.safetensors") as temporary:
        save_file({name: value.contiguous() for name, value in method.state_dict().items()}, temporary)
    write_json(folder / "encoder.json", encoding)
    beside = sorted(path.name for path in folder.iterdir() if path.name in _ARTEFACTS)
    write_sealed_json(folder / "result.json", result, beside)
    _remove_unfinished(folder)


def tidy(folder: Path) -> None:
    """Remove the checkpoint of a finished run whose process was killed just after it wrote the result."""
    if (folder / CHECKPOINT).exists() or (folder / _WARNINGS).exists():
        with suppress(OSError), only_process(folder):
            _remove_unfinished(folder)


def _remove_unfinished(folder: Path) -> None:
    for name in (CHECKPOINT, _WARNINGS):
        (folder / name).unlink(missing_ok=True)


class MetricsFile:
    """Writes a line per epoch.

    The first update of a process writes the whole history, because a killed run may have lost its last line.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self.written = folder / "metrics.jsonl", 0

    def update(self, history: list[Record]) -> None:
        """Write the epochs that are not in the file yet."""
        lines = "".join(json.dumps(record) + "\n" for record in history[self.written :])
        if self.written == 0:
            write_text(self.path, lines)
        else:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(lines)
        self.written = len(history)


class WarningsFile:
    """Keeps the distinct texts of a run's warnings until it has finished, so that an interruption loses none."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / _WARNINGS
        self.texts: list[str] = list(read_json(self.path).get("warnings", [])) if self.path.exists() else []

    def add(self, text: str) -> None:
        """Keep a text, once."""
        if text not in self.texts:
            self.texts.append(text)
            write_json(self.path, {"warnings": self.texts})
