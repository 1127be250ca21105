"""Every format: written by its own library, read, and written again with only labels changed."""

import datetime
import gzip
import json
import zipfile

import numpy as np
import openpyxl
import polars as pl
import pytest
import zstandard

from volmin.data.relabelling import write_corrected_table
from volmin.data.tables import as_frame, read_table
from volmin.exceptions import DataError

ROWS = {"x": [1.5, 2.0, -3.25, 4.0], "note": ["a, b", "ü\nz", None, "=1"], "y": ["cat", "dog", "cat", "dog"]}
FRAME = pl.DataFrame(ROWS)
FORMATS = ["t.csv", "t.csv.gz", "t.tsv", "t.csv.zst", "t.jsonl", "t.jsonl.gz", "t.parquet", "t.feather", "t.xlsx"]


def write(path):
    name = path.name
    if name.endswith(".parquet"):
        FRAME.write_parquet(path)
    elif name.endswith(".feather"):
        FRAME.write_ipc(path)
    elif name.endswith(".xlsx"):
        book = openpyxl.Workbook()
        sheet = book.worksheets[0]
        sheet.append(FRAME.columns)
        for row in FRAME.iter_rows():
            sheet.append(row)
        sheet["B5"].data_type = "s"  # text that looks like a formula
        sheet.insert_rows(3)  # an empty row
        book.create_sheet("other").append(["kept"])
        book.save(path)
    else:
        lines = [json.dumps(row, ensure_ascii=False) for row in FRAME.iter_rows(named=True)]
        separator = "\t" if ".tsv" in name else ","
        text = "\n".join(lines) + "\n" if ".jsonl" in name else FRAME.write_csv(separator=separator)
        content = text.encode()
        pack = {".gz": gzip.compress, ".zst": zstandard.ZstdCompressor().compress}.get(path.suffix, bytes)
        path.write_bytes(pack(content))
    return path


@pytest.mark.parametrize("name", FORMATS)
def test_only_labels_change_in_every_format(tmp_path, name):
    path = write(tmp_path / name)
    frame = read_table(path)
    assert frame.to_dict(as_series=False) == ROWS
    out = tmp_path / f"corrected-{name}"
    write_corrected_table(path, out, "y", {0: 1, 3: 2})
    after = read_table(out)
    assert after["y"].to_list() == ["dog", "dog", "cat", "cat"]
    assert after.drop("y").equals(frame.drop("y"))
    assert out.read_bytes()[:4] == path.read_bytes()[:4] or name in ("t.csv", "t.tsv")
    # The content decides, not the name.
    path.rename(tmp_path / "unnamed.txt")
    if ".tsv" not in name:
        assert read_table(tmp_path / "unnamed.txt").equals(frame)


def test_other_sheets_and_types_of_a_workbook_are_kept(tmp_path):
    book = openpyxl.load_workbook(write(tmp_path / "t.xlsx"))
    book.worksheets[0]["D1"], book.worksheets[0]["D2"] = "day", datetime.datetime(2024, 1, 2)
    book.save(tmp_path / "t.xlsx")
    assert read_table(tmp_path / "t.xlsx")["day"].dtype == pl.Datetime
    write_corrected_table(tmp_path / "t.xlsx", tmp_path / "out.xlsx", "y", {0: 1})
    after = openpyxl.load_workbook(tmp_path / "out.xlsx")
    assert after.sheetnames == ["Sheet", "other"]
    assert after.worksheets[0]["C2"].value == "dog"
    assert after.worksheets[0]["D2"].value == datetime.datetime(2024, 1, 2)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_are_refused_in_one_line(tmp_path, name):
    path = write(tmp_path / name)
    content = path.read_bytes()
    broken = {"t.csv": b'x,y\n"1,2\n', "t.tsv": b"x\ty\n1\n", "t.jsonl": b'{"x": 1}\n{"x": \n'}
    path.write_bytes(broken.get(name, content[: len(content) // 2]))
    with pytest.raises(DataError) as caught:
        read_table(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    path.write_bytes(b"")
    with pytest.raises(DataError):
        read_table(path)


def test_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("volmin.io.expansion.ALWAYS_EXPANDED", 100_000)
    zeros = b"x,y\n" + b"0,0\n" * 3_000_000
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(zeros))
    (tmp_path / "t.csv.zst").write_bytes(zstandard.ZstdCompressor().compress(zeros))
    for name in ("t.csv.gz", "t.csv.zst"):
        with pytest.raises(DataError, match="expands to more than"):
            read_table(tmp_path / name)
    write(tmp_path / "t.xlsx")
    with zipfile.ZipFile(tmp_path / "t.xlsx", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/worksheets/bomb.xml", b"0" * 20_000_000)
    with pytest.raises(DataError, match="expands to"):
        read_table(tmp_path / "t.xlsx")


def test_workbooks_without_names_of_columns_are_refused(tmp_path):
    for first, message in ((["a", None, "b"], "must name every column"), (["a", "a"], "several columns called 'a'")):
        book = openpyxl.Workbook()
        book.worksheets[0].append(first)
        book.worksheets[0].append([1] * len(first))
        book.save(tmp_path / "t.xlsx")
        with pytest.raises(DataError, match=message):
            read_table(tmp_path / "t.xlsx")


def test_frames_of_the_arrow_protocol():
    class Stream:
        """A table of which only the protocol is known."""

        def __arrow_c_stream__(self, requested_schema=None):
            return FRAME.__arrow_c_stream__(requested_schema)

    found = as_frame(Stream())
    assert found is not None
    assert found.equals(FRAME)
    lazy = as_frame(FRAME.lazy())
    assert lazy is not None
    assert lazy.equals(FRAME)
    assert as_frame(np.zeros((2, 2))) is None
