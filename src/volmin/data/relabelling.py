"""Copies of a table or a folder of images with some labels corrected and everything else unchanged."""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from volmin._typing import AnyArray, Labels
from volmin.data.tables.excel import write_excel
from volmin.data.tables.files import decoded, format_of, separator_of
from volmin.exceptions import DataError
from volmin.io.arrays import read_arrays
from volmin.io.atomic import replace_file
from volmin.io.expansion import compressed_like, expanded


def write_corrected_table(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    """Write a copy of a table in which some rows have the label of another row.

    Labels are copied from rows that have them, so that they keep their type and spelling.

    Args:
        path: File that ``read_table`` reads.
        out: File to write, of the same format.
        column: Name of the label column.
        donors: Map from a row to the row whose label it gets.
    """
    ending = table_suffix(path)
    if table_suffix(out).lower() != ending.lower():
        raise DataError(f"The corrected table keeps the format of {path.name}: name it *{ending}, not {out.name}.")
    _WRITERS[format_of(path)](path, out, column, donors)


def table_suffix(path: Path) -> str:
    """Ending of a file's name, with that before a compression: ``.csv.gz``."""
    packed = path.suffix.lower() in (".gz", ".zst")
    return "".join(path.suffixes[-2:]) if packed else path.suffix


def write_corrected_folder(root: Path, out: Path, images: Sequence[Path], labels: AnyArray) -> None:
    """Copy images into a new folder with a folder per class, atomically.

    Args:
        root: Folder with a folder per class.
        out: Folder to write, which must not exist.
        images: (N,) files below ``root``.
        labels: (N,) names of the class folders that the images belong in.
    """
    if out.exists():
        raise DataError(f"{out} exists already: name another folder, or move it away.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as temporary:
        for image, label in zip(images, labels, strict=True):
            old, *inner = image.relative_to(root).parts
            place = Path(temporary) / "all" / str(label) / Path(*inner)
            if str(label) != old:
                # The other class may have a file of the same name.
                place = place.with_name(f"{place.stem}-was-{old}{place.suffix}")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(image, place)
        (Path(temporary) / "all").rename(out)


def _write_csv(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    """Copy unchanged records character by character, with their quotation marks, spaces and line ends."""
    text, encoding = decoded(path)
    separator = separator_of(path, text)
    lines = list(io.StringIO(text, newline=""))
    records = csv.reader(lines, delimiter=separator, strict=True)
    place = next(records).index(column)
    spans = [(0, records.line_num)]
    fields = []
    for record in records:
        if record:
            fields.append(record)
            spans.append((spans[-1][1], records.line_num))
        else:
            spans[-1] = (spans[-1][0], records.line_num)
    pieces = ["".join(lines[slice(*span)]) for span in spans]
    for row, donor in donors.items():
        ending = _ending(pieces[row + 1])
        buffer = io.StringIO()
        changed = [*fields[row][:place], fields[donor][place], *fields[row][place + 1 :]]
        csv.writer(buffer, delimiter=separator, lineterminator=ending).writerow(changed)
        pieces[row + 1] = buffer.getvalue()
    with replace_file(out) as temporary:
        temporary.write_bytes(compressed_like(path, "".join(pieces).encode(_with_mark(path, encoding))))


def _ending(record: str) -> str:
    """Line end of a record, with the blank lines after it."""
    return record[len(record.rstrip("\r\n")) :]


def _with_mark(path: Path, encoding: str) -> str:
    """Encoding that keeps a byte-order mark and does not add one."""
    return "utf-8" if encoding == "utf-8-sig" and not expanded(path).startswith(b"\xef\xbb\xbf") else encoding


def _write_parquet(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    frame = pl.read_parquet(path)
    corrected = frame.with_columns(frame[column].gather(_sources(len(frame), donors)))
    with replace_file(out) as temporary:
        corrected.write_parquet(temporary)


def _write_feather(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    frame = pl.read_ipc(io.BytesIO(path.read_bytes()))
    corrected = frame.with_columns(frame[column].gather(_sources(len(frame), donors)))
    with replace_file(out) as temporary:
        corrected.write_ipc(temporary)


def _write_json_lines(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    """Copy unchanged lines character by character."""
    lines = expanded(path).decode("utf-8").splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if line.strip()]
    records = {row: json.loads(lines[places[row]]) for row in {*donors, *donors.values()}}
    for row, donor in donors.items():
        changed = records[row] | {column: records[donor][column]}
        lines[places[row]] = json.dumps(changed, ensure_ascii=False) + _ending(lines[places[row]])
    with replace_file(out) as temporary:
        temporary.write_bytes(compressed_like(path, "".join(lines).encode("utf-8")))


def _write_excel(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    with replace_file(out) as temporary:
        write_excel(path, temporary, column, donors)


def _write_npz(path: Path, out: Path, column: str, donors: Mapping[int, int]) -> None:
    arrays = read_arrays(path)
    if column not in arrays:
        raise DataError(f"{column!r} is part of an array of {path}: store the labels as an array of their own.")
    arrays[column] = arrays[column][_sources(len(arrays[column]), donors)]
    # Not np.savez, which takes an array called "file" for its own argument.
    with replace_file(out) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


def _sources(count: int, donors: Mapping[int, int]) -> Labels:
    """(N,) row that each row takes its label from."""
    rows = np.arange(count)
    rows[list(donors)] = list(donors.values())
    return rows


_WRITERS: dict[str, Callable[[Path, Path, str, Mapping[int, int]], None]] = {
    "csv": _write_csv,
    "jsonl": _write_json_lines,
    "parquet": _write_parquet,
    "feather": _write_feather,
    "xlsx": _write_excel,
    "npz": _write_npz,
}
