import json

import numpy as np
import polars as pl
import pytest

from volmin.data import DataError
from volmin.data.tables import TableEncoder, as_frame, load_table, read_table


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


CITIES = "name,size\nMünchen,1.5\nZürich,0.4\n"


@pytest.mark.parametrize(
    "content",
    [
        CITIES.encode(),
        b"\xef\xbb\xbf" + CITIES.encode(),
        CITIES.encode("latin-1"),
        CITIES.encode("utf-16"),
        CITIES.replace("\n", "\r\n").encode(),
        CITIES.replace("\n", "\r").encode(),
        CITIES.replace(",", ";").replace(".", ",").encode("latin-1"),
        CITIES.replace(",", "\t").encode(),
        CITIES.replace(",", "|").encode(),
        CITIES.replace("\n", "\n\n").encode(),
    ],
    ids=["utf-8", "bom", "latin-1", "utf-16", "crlf", "cr", "semicolon and decimal comma", "tab", "bar", "blank lines"],
)
def test_common_csv_dialects(tmp_path, content):
    frame = read_table(write(tmp_path / "cities.csv", content))
    assert frame.to_dict(as_series=False) == {"name": ["München", "Zürich"], "size": [1.5, 0.4]}


def test_quoted_separators_and_newlines(tmp_path):
    frame = read_table(write(tmp_path / "t.csv", 'text,y\n"a, b",1\n"two\nlines",2\n"say ""hi""",3\n'))
    assert frame["text"].to_list() == ["a, b", "two\nlines", 'say "hi"']
    assert frame["y"].to_list() == [1, 2, 3]


@pytest.mark.parametrize(
    ("separator", "written", "values"),
    [
        ("\t", ["1,234", "950", "2,100"], [1234, 950, 2100]),
        ("\t", ["1,23", "950", "2,1"], [1.23, 950, 2.1]),
        ("\t", ["0,125", "0,250", "1,500"], [0.125, 0.25, 1.5]),
        (";", ["1,234", "0,950", "2,100"], [1.234, 0.95, 2.1]),
        (";", ["4.507,29", "12,5", "1.000,00"], [4507.29, 12.5, 1000]),
    ],
)
def test_decimal_commas_and_thousands(tmp_path, separator, written, values):
    lines = [f"price{separator}y", *(f"{text}{separator}a" for text in written * 10)]
    frame = read_table(write(tmp_path / "t.csv", "\n".join(lines)))
    found = TableEncoder().fit(frame, ["price"])
    expected = TableEncoder().fit(pl.DataFrame({"price": values * 10}), ["price"])
    assert np.allclose(found.transform(frame), expected.transform(pl.DataFrame({"price": values * 10})))


def test_types_are_inferred_from_all_rows(tmp_path):
    rows = "".join(f"{i},{i},true,2024-01-{i % 28 + 1:02d},x\n" for i in range(2000))
    last = "2000,2.5,False,2024-02-01,NA\n,n/a,,,\n"
    frame = read_table(write(tmp_path / "t.csv", "whole,number,flag,day,text\n" + rows + last))
    assert frame.dtypes == [pl.Int64, pl.Float64, pl.Boolean, pl.Date, pl.String]
    assert frame.row(-1) == (None, None, None, None, None)
    assert frame["text"][2000] == "NA", "in text, NA may mean Namibia"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "line 3: 1 fields, but the first line names 2 columns"),
        ('a,b\n"x\ny",2\n3,4,5\n', "line 4: 3 fields"),
        ('a,b\n1,"x\n', "line 2: unexpected end of data"),
        ("a,b,a\n1,2,3\n", "several columns called 'a'"),
        ("a,b\n", "has no rows"),
        ('[{"a": 1, "b": 2}]', "holds a JSON array: write JSON lines"),
        ("sep=;\na;b\n1;2\n", "begins with Excel's line 'sep=;'"),
        ("", "is empty"),
        (b"\x00\x01\x02a,b", "not a text file"),
        (b"\xff\xfea,b", "utf-16"),
    ],
)
def test_damaged_csv_is_refused_with_file_and_line(tmp_path, content, message):
    path = write(tmp_path / "bad.csv", content)
    with pytest.raises(DataError, match=message) as caught:
        read_table(path)
    assert "bad.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_lists_in_parquet_become_columns(tmp_path):
    frame = pl.DataFrame({"e": [[1.0, 2.0], [3.0, 4.0]], "ragged": [[1], [2, 3]], "y": ["a", "b"]})
    frame.write_parquet(tmp_path / "t.parquet")
    found = read_table(tmp_path / "t.parquet")
    assert found.columns == ["e0", "e1", "ragged", "y"]
    assert found["e1"].to_list() == [2.0, 4.0]
    fixed = frame.with_columns(pl.col("e").cast(pl.Array(pl.Float64, 2)))
    fixed.write_parquet(tmp_path / "fixed.parquet")
    assert read_table(tmp_path / "fixed.parquet").equals(found)


def test_arrays_in_npz_become_columns(tmp_path):
    x = np.arange(12.0).reshape(3, 2, 2)
    np.savez(tmp_path / "t.npz", x=x, y=np.array(["a", "b", "c"]), z=np.array([b"u", b"v", b"w"]))
    frame = read_table(tmp_path / "t.npz")
    assert frame.columns == ["x0", "x1", "x2", "x3", "y", "z"]
    assert frame["x3"].to_list() == [3, 7, 11]
    assert frame["z"].to_list() == ["u", "v", "w"]
    np.savez(tmp_path / "t.npz", x=x, y=np.array([[1], [2], [3]]))
    assert read_table(tmp_path / "t.npz")["y"].to_list() == [1, 2, 3]


class Malicious:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 2)), "y": np.zeros(2)}, r"x \(3, 2\), y \(2,\)"),
        ({"x": np.float64(1)}, r"one entry per row each, but they are: x \(\)"),
        ({"x": np.zeros((2, 2)), "x1": np.zeros(2)}, "several columns of the same name"),
        ({"x": np.zeros(2, complex)}, "complex128"),
        ({"x": np.array([Malicious(), 1], dtype=object)}, "'x' of .* cannot be read safely"),
    ],
)
def test_npz_without_a_table_is_refused(tmp_path, arrays, message):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_table(tmp_path / "t.npz")


def test_unsupported_and_damaged_files_are_refused(tmp_path):
    for name in ("t.xlsx", "none.csv"):
        with pytest.raises(DataError, match="no table at"):
            read_table(tmp_path / name)
    for name in ("t.parquet", "t.npz"):
        with pytest.raises(DataError, match="cannot be read|not an NPZ"):
            read_table(write(tmp_path / name, b"PK\x05\x06 nonsense"))
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(DataError, match="not an NPZ"):
        read_table((tmp_path / "a.npy").rename(tmp_path / "a.npz"))


def labels(tmp_path, *values, kind=None):
    path = tmp_path / "t.parquet"
    pl.DataFrame({"y": pl.Series(values, dtype=kind), "x": range(len(values))}).write_parquet(path)
    return load_table(path, "y").labels


def test_labels_keep_their_type(tmp_path):
    for values in (["b", "a", "b"], [3, 1, 3], [True, False, True], [0.5, 1.5, 0.5]):
        found = labels(tmp_path, *values)
        assert found.tolist() == values
        assert found.dtype == np.array(values).dtype
    whole = labels(tmp_path, 1.0, 2.0, 1.0)
    assert whole.tolist() == [1, 2, 1]
    assert whole.dtype == np.int64
    assert labels(tmp_path, "b", "a", "b", kind=pl.Categorical()).tolist() == ["b", "a", "b"]


def test_labels_with_special_characters_are_unchanged(tmp_path):
    special = ["<script>alert(1)</script>", "a,b", "two\nlines", '"', "\x1b[31mred", "🙂", "=cmd()", "../../etc"]
    pl.DataFrame({"y": special * 3}).write_csv(tmp_path / "t.csv")
    assert load_table(tmp_path / "t.csv", "y").labels.tolist() == special * 3


def test_rare_and_many_classes_are_accepted(tmp_path):
    assert len(set(labels(tmp_path, *(f"class {i % 300}" for i in range(900))))) == 300
    assert (labels(tmp_path, *["common"] * 98, "rare", "rare") == "rare").sum() == 2


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["a", None, "b", " ", None], r"empty in 3 of 5 rows \(counted from 0: 1, 3, 4\)"),
        ([1.0, float("nan"), 2.0], "empty in 1 of 3 rows"),
        (["a", "a"], "only one class: 'a'"),
        ([f"id {i}" for i in range(100)], "100 different values in 100 rows"),
        ([f"id {i % 1100}" for i in range(5000)], "1100 different values in 5000 rows"),
        (["a", "b" * 5000], "up to 5000 characters"),
        ([[1], [2, 3]], "cannot be labels"),
    ],
)
def test_unsuitable_label_columns_are_refused(tmp_path, values, message):
    with pytest.raises(DataError, match=message):
        labels(tmp_path, *values)


def test_unknown_column_lists_the_columns(tmp_path):
    path = write(tmp_path / "t.csv", "age,species\n1,cat\n2,dog\n")
    with pytest.raises(DataError, match="no column 'specie'. Did you mean 'species'. It has: age, species"):
        load_table(path, "specie")
    with pytest.raises(DataError, match="no column 'colour'"):
        load_table(path, "species", ignore=["colour"])
    assert load_table(path, "species").feature_columns == ("age",)
    assert load_table(path, "species", ignore=["age"]).feature_columns == ()


def encode(**columns):
    frame = pl.DataFrame(columns)
    return TableEncoder().fit(frame, frame.columns)


def test_numbers_are_standardised():
    values = np.random.default_rng(0).normal(50, 7, 1000)
    encoder = encode(x=values, flag=values > 50)
    features = encoder.transform(pl.DataFrame({"flag": values > 50, "x": values}))
    assert features.dtype == np.float32
    assert np.allclose(features[:, 0], (values - values.mean()) / values.std(), atol=1e-5)
    assert np.allclose(features.mean(0), 0, atol=1e-6)
    assert np.allclose(features.std(0), 1, atol=1e-6)


def test_outliers_and_infinities_are_clipped():
    values = np.append(np.random.default_rng(0).normal(size=997), [np.inf, -np.inf, 1e300])
    features = encode(x=values).transform(pl.DataFrame({"x": values}))
    assert np.isfinite(features).all()
    assert np.std(features[:-3]) > 0.8
    assert features[-3] == features[-1] == features.max()
    sparse = np.append(np.zeros(995), [np.inf] * 5)
    assert np.isfinite(encode(x=sparse).transform(pl.DataFrame({"x": sparse}))).all()


def test_missing_numbers_become_the_median_and_are_marked():
    encoder = encode(x=[1.0, 2.0, 9.0, None, float("nan")])
    assert encoder.feature_names == ["x", "x is missing"]
    features = encoder.transform(pl.DataFrame({"x": [None, 2.0, 1.0]}))
    assert features[0, 0] == features[1, 0] != features[2, 0]
    assert features[:, 1].tolist() == [1, 0, 0]
    assert encode(x=[1.0, 2.0]).transform(pl.DataFrame({"x": [None, 1.5]})).tolist() == [[0], [0]]


def test_dates_are_encoded_independently_of_their_unit():
    days = pl.Series(["2024-01-01", "2024-01-11", "2024-01-06"]).str.to_date()
    encoder = encode(day=days)
    features = encoder.transform(pl.DataFrame({"day": days}))
    assert np.allclose(features[:, 0], np.array([-1, 1, 0]) * np.sqrt(1.5))
    for unit in ("ms", "ns"):
        assert np.allclose(encoder.transform(pl.DataFrame({"day": days.cast(pl.Datetime(unit))})), features)


def test_text_is_one_hot_encoded_by_frequent_values():
    text = [f"t{i:02d}" for i in range(60) for _ in range(60 - i)] + [None] * 100
    encoder = encode(x=text)
    names = encoder.feature_names
    assert names[:2] == ["x is missing", "x = t00"]
    assert names[50] == "x is another"
    features = encoder.transform(pl.DataFrame({"x": ["t01", "t59", "never seen", None]}))[:, :51]
    assert features.sum(1).tolist() == [1, 1, 1, 1]
    assert features.argmax(1).tolist() == [2, 50, 50, 0]


def test_encoder_json_round_trip():
    frame = pl.DataFrame({"x": [1.1, None, 1e200], "c": ["a", "ü", None], "b": [True, False, True], "y": [0, 1, 0]})
    encoder = TableEncoder().fit(frame, ["x", "c", "b"])
    again = TableEncoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    assert again.transform(frame).tobytes() == encoder.transform(frame).tobytes()
    assert again.feature_names == encoder.feature_names
    with pytest.raises(DataError, match="not the content of a table encoder"):
        TableEncoder.from_json({"columns": [{"kind": "magic"}]})
    with pytest.raises(DataError, match="'c' has a value twice"):
        TableEncoder.from_json({"columns": [{"kind": "category", "name": "c", "values": ["x", None, "x"]}]})


def test_rows_with_missing_or_wrong_columns_are_refused():
    encoder = encode(x=[1.0, 2.0], c=["a", "b"])
    with pytest.raises(DataError, match="lacks columns that the encoding needs: x$|lacks .*: x\\."):
        encoder.transform(pl.DataFrame({"c": ["a"]}))
    with pytest.raises(DataError, match="'x' must hold numbers, but holds text: 'tall'"):
        encoder.transform(pl.DataFrame({"x": ["tall"], "c": ["a"]}))
    with pytest.raises(DataError, match="'x' must hold numbers, but holds List"):
        encoder.transform(pl.DataFrame({"x": [[1.0]], "c": ["a"]}))
    as_text = encoder.transform(pl.DataFrame({"x": ["2", "NA"], "c": [1, 2]}))
    assert as_text[:, 0].tolist() == [1, 0]
    assert as_text[:, -1].tolist() == [1, 1]
    assert encoder.transform(pl.DataFrame({"x": [None], "c": ["a"]}))[0, 0] == 0


def test_duplicate_rows_are_kept(tmp_path):
    table = load_table(write(tmp_path / "t.csv", "x,y\n1,a\n1,a\n2,b\n"), "y")
    assert len(table) == table.frame.height == 3


def test_frames_and_mappings_in_memory_are_converted():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": [1.5, None], "b": ["x", None], "c": pandas.array([1, pandas.NA], dtype="Int64")})
    frame = as_frame(table)
    assert frame is not None
    assert frame.null_count().row(0) == (1, 1, 1)
    assert frame["b"].to_list() == ["x", None]
    mapping = as_frame({"a": [1, 2]})
    assert mapping is not None
    assert mapping["a"].to_list() == [1, 2]
    assert as_frame(frame) is frame
    assert as_frame(np.zeros((2, 2))) is None


NUMBER = {"kind": "number", "name": "a", "median": 0, "low": 0, "high": 1, "mean": 0, "std": 1, "tells_missing": True}


@pytest.mark.parametrize(
    "column",
    [
        {"kind": "category", "name": "a", "values": [["b"]]},
        {"kind": "category", "name": "a", "values": "b"},
        NUMBER | {"mean": None},
        NUMBER | {"std": 0},
        NUMBER | {"name": 3},
        NUMBER | {"style": "backwards"},
        {
            "kind": "text",
            "name": "a",
            "terms": {"words": ["b"]},
            "weights": {},
            "reduction": "",
            "center": [],
            "scale": 1,
        },
        {"kind": "text", "name": "a", "terms": {}, "weights": {}, "reduction": "AAAA", "center": [1.0], "scale": 1},
        "a",
    ],
)
def test_invalid_encoder_json_is_refused(column):
    with pytest.raises(DataError, match="not the content of a table encoder"):
        TableEncoder.from_json({"columns": [column]})
    assert TableEncoder.from_json({"columns": [NUMBER]}).feature_names == ["a", "a is missing"]


def test_panic_of_the_parquet_reader_is_a_data_error(tmp_path, monkeypatch):
    def panic(path):
        raise pl.exceptions.PanicException("assertion failed: offset + length <= self.length")

    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setattr(pl, "read_parquet", panic)
    with pytest.raises(DataError, match="cannot be read: assertion failed"):
        read_table(tmp_path / "a.parquet")
