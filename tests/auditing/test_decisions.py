import contextlib
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest

import volmin
from volmin.data import DataError
from volmin.data.relabelling import write_corrected_folder, write_corrected_table

HEADER = "row,given,suggested,probability_wrong,decision,label\n"


def decisions(tmp_path, *lines):
    path = tmp_path / "decisions.csv"
    path.write_text(HEADER + "".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def test_only_labels_marked_as_wrong_are_replaced(tmp_path):
    path = decisions(tmp_path, "1,b,a,0.99,wrong,a", "2,a,b,0.9,right,", "3,b,a,0.8,unsure,", "0,a,b,0.95,wrong,c")
    corrected = volmin.apply_decisions(["a", "b", "a", "b", "c"], path)
    assert corrected.labels.tolist() == ["c", "a", "a", "b", "c"]
    assert corrected.rows.tolist() == [0, 1]
    assert corrected.counts == {"wrong": 2, "right": 1, "unsure": 1}


def test_suggested_label_is_used_without_a_label_column():
    frame = pl.DataFrame({"row": [1], "given": [7], "suggested": [3], "decision": ["Wrong"]})
    assert volmin.apply_decisions(np.array([3, 7]), frame).labels.tolist() == [3, 3]
    assert volmin.apply_decisions([3, 7], pd.DataFrame(frame.to_dict(as_series=False))).labels.tolist() == [3, 3]


@pytest.mark.parametrize(
    ("samples", "expected"),
    [(["flagged", "flagged"], "flagged"), (["random", "flagged"], "random"), (["flagged", ""], None)],
)
def test_sample_is_that_of_the_decided_rows(samples, expected):
    frame = pl.DataFrame({"row": [0, 1], "given": ["a", "b"], "suggested": ["b", "a"], "decision": ["wrong", "right"]})
    assert volmin.apply_decisions(["a", "b"], frame.with_columns(sample=pl.Series(samples))).sample == expected
    assert volmin.apply_decisions(["a", "b"], frame).sample is None


def test_malformed_csv_is_rejected(tmp_path):
    path = decisions(tmp_path, '1,b,a,0.99,"wrong,a')
    with pytest.raises(DataError, match="decisions.csv"):
        volmin.apply_decisions(["a", "b"], path)


def test_quotation_mark_inside_a_cell_changes_no_decision(tmp_path):
    path = decisions(tmp_path, '1,b,a,0."99,wrong,a')
    with contextlib.suppress(DataError):  # polars 1.9 reads the cell as it is, later versions refuse the file
        assert volmin.apply_decisions(["a", "b"], path).labels.tolist() == ["a", "a"]


def test_labels_that_look_like_formulas_round_trip(tmp_path):
    path = decisions(tmp_path, """0,'=1+2,"a ""b"",\nc",1,wrong,"a ""b"",\nc" """.strip(), "2,-1,'=1+2,1,wrong,'=1+2")
    labels = ["=1+2", 'a "b",\nc', "-1"]
    assert volmin.apply_decisions(labels, path).labels.tolist() == ['a "b",\nc', 'a "b",\nc', "=1+2"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("9,a,b,1,wrong,b", "rows are numbered from 0 to 2"),
        ("x,a,b,1,wrong,b", "rows are numbered from 0 to 2"),
        ("0,b,a,1,wrong,a", "row 0 is labelled 'b', but its label is 'a': the decisions belong to another table"),
        ("0,a,b,1,perhaps,b", "the decision is 'perhaps', but must be wrong, right, unsure"),
        ("0,a,z,1,wrong,z", "the new label 'z' is not one of the classes"),
    ],
)
def test_decisions_that_do_not_fit_the_labels_are_rejected(tmp_path, line, message):
    with pytest.raises(DataError, match=message):
        volmin.apply_decisions(["a", "b", "b"], decisions(tmp_path, line))


def test_missing_file_and_missing_columns_are_rejected(tmp_path):
    with pytest.raises(DataError, match="There is no file of decisions"):
        volmin.apply_decisions(["a", "b"], tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("row,given\n0,a\n")
    with pytest.raises(DataError, match="lacks the columns suggested, decision"):
        volmin.apply_decisions(["a", "b"], tmp_path / "other.csv")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_corrected_csv_differs_only_in_its_labels(tmp_path, encoding, ending):
    lines = [
        "id;name;label",
        '001;"Müller; Jo";cat',
        "",
        "002;\"two\nlines\";'dog'",
        '003;" x ""y""";"cat"',
        "004;;cow",
    ]
    path, out = tmp_path / "t.csv", tmp_path / "out" / "t.csv"
    path.write_bytes(ending.join(lines).encode(encoding))
    write_corrected_table(path, out, "label", {0: 3, 3: 1})
    text = out.read_bytes().decode(encoding)
    assert text == ending.join(lines).replace('Jo";cat', 'Jo";cow').replace("004;;cow", "004;;'dog'")
    assert out.read_bytes().startswith(b"\xef\xbb\xbf") == (encoding == "utf-8-sig")


def test_corrected_parquet_and_npz_keep_their_types(tmp_path):
    frame = pl.DataFrame(
        {"x": [[1.0], [2.0], [3.0]], "label": pl.Series(["a", "b", "b"], dtype=pl.Categorical), "n": [1, None, 3]}
    )
    frame.write_parquet(tmp_path / "t.parquet")
    write_corrected_table(tmp_path / "t.parquet", tmp_path / "c.parquet", "label", {2: 0})
    corrected = pl.read_parquet(tmp_path / "c.parquet")
    assert corrected.schema == frame.schema
    assert corrected["label"].to_list() == ["a", "b", "a"]
    assert corrected.drop("label").equals(frame.drop("label"))
    np.savez(tmp_path / "t.npz", x=np.eye(3), y=np.array([5.0, 6.0, 6.0]))
    write_corrected_table(tmp_path / "t.npz", tmp_path / "c.npz", "y", {1: 0})
    with np.load(tmp_path / "c.npz") as arrays:
        assert arrays["y"].tolist() == [5.0, 5.0, 6.0]
        assert np.array_equal(arrays["x"], np.eye(3))
    with pytest.raises(DataError, match="keeps the format"):
        write_corrected_table(tmp_path / "t.npz", tmp_path / "c.csv", "y", {})


def test_corrected_folder_is_a_new_complete_copy(tmp_path):
    root = tmp_path / "images"
    for name in ("cat/1.png", "cat/deep/2.png", "dog/1.png"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    images = [root / "cat" / "1.png", root / "cat" / "deep" / "2.png", root / "dog" / "1.png"]
    out = tmp_path / "corrected"
    write_corrected_folder(root, out, images, np.array(["dog", "cat", "dog"]))
    written = {str(path.relative_to(out)): path.read_text() for path in out.rglob("*.png")}
    assert written == {"dog/1-was-cat.png": "cat/1.png", "cat/deep/2.png": "cat/deep/2.png", "dog/1.png": "dog/1.png"}
    assert len(list(tmp_path.iterdir())) == 2
    with pytest.raises(DataError, match="exists already"):
        write_corrected_folder(root, out, images, np.array(["dog", "cat", "dog"]))


def test_corrected_npz_keeps_arrays_of_any_name(tmp_path):
    """``np.savez(file, **arrays)`` would treat some names as its own arguments."""
    np.savez(tmp_path / "t.npz", y=np.array([5, 6]), x=np.eye(2))
    with zipfile.ZipFile(tmp_path / "t.npz") as old, zipfile.ZipFile(tmp_path / "named.npz", "w") as new:
        new.writestr("allow_pickle.npy", old.read("x.npy"))
        new.writestr("file.npy", old.read("y.npy"))
    write_corrected_table(tmp_path / "named.npz", tmp_path / "c.npz", "file", {1: 0})
    with np.load(tmp_path / "c.npz") as arrays:
        assert arrays["file"].tolist() == [5, 5]
        assert np.array_equal(arrays["allow_pickle"], np.eye(2))
