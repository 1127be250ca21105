import csv
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volmin.exceptions import DamagedFileError
from volmin.io.atomic import replace_file, write_json
from volmin.io.locks import BusyError, only_process
from volmin.io.sealed import read_sealed_bytes, read_sealed_json, write_sealed_bytes, write_sealed_json
from volmin.io.spreadsheets import spreadsheet_safe, write_csv

JSON = st.dictionaries(
    st.text(min_size=1).filter(lambda key: key != "seal"),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**53), 2**53)
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=5,
)


@given(content=JSON)
def test_what_was_sealed_is_read_again(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("sealed") / "a.json"
    write_sealed_json(path, content)
    assert read_sealed_json(path) == content


@given(content=st.binary(max_size=200), data=st.data())
def test_any_flipped_bit_of_sealed_bytes_is_noticed(tmp_path_factory, content, data):
    path = tmp_path_factory.mktemp("sealed") / "a.ckpt"
    write_sealed_bytes(path, content)
    assert read_sealed_bytes(path) == content
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    with pytest.raises(DamagedFileError):
        read_sealed_bytes(path)


def test_another_number_in_a_sealed_file_is_noticed(tmp_path):
    write_sealed_json(tmp_path / "a.json", {"accuracy": 0.91})
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text.replace("0.91", "0.99"))
    with pytest.raises(DamagedFileError, match="checksum is wrong"):
        read_sealed_json(tmp_path / "a.json")


def test_files_from_before_seals_are_read(tmp_path):
    write_json(tmp_path / "a.json", {"accuracy": 0.5})
    assert read_sealed_json(tmp_path / "a.json", files=True) == {"accuracy": 0.5}


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})

    def write_half():
        with replace_file(path) as temporary:
            temporary.write_text("half")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_half()
    assert json.loads(path.read_text()) == {"a": 1}
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]


def test_one_process_at_a_time(tmp_path):
    with only_process(tmp_path / "run"), pytest.raises(BusyError, match="Another process is at work"):
        only_process(tmp_path / "run").__enter__()
    with only_process(tmp_path / "run"):
        pass
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize("text", ["=1+2", "+A1", "-A1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "-1-1", "+1+cmd"])
def test_what_a_spreadsheet_would_compute_becomes_text(text):
    assert spreadsheet_safe(text) == "'" + text


@pytest.mark.parametrize("cell", ["cat", "-1", "+2.5", "-1e-3", "a=b", "", 7, -0.5])
def test_words_and_numbers_stay(cell):
    assert spreadsheet_safe(cell) == str(cell)


def test_a_csv_file_is_whole_or_not_there(tmp_path):
    path = tmp_path / "new" / "t.csv"
    write_csv(path, ("=a", "b"), [(1, 'x, "y"\nz'), (2, "@")])
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["'=a", "b"], ["1", 'x, "y"\nz'], ["2", "'@"]]

    def rows():
        yield (1, 2)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_csv(path.with_name("other.csv"), ("a", "b"), rows())
    assert [file.name for file in path.parent.iterdir()] == ["t.csv"]


def test_what_a_killed_process_left_half_written_is_cleared_away(tmp_path):
    (tmp_path / ".result.json.4711.tmp").write_text("{")
    with only_process(tmp_path):
        assert [found.name for found in tmp_path.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{", "[" * 100_000, '{"a": 1, "seal": 3}', '{"a": 1, "seal": {}}', "\ud800"]
)
def test_what_is_no_sealed_object_is_damaged(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DamagedFileError, match=r"a\.json is damaged"):
        read_sealed_json(tmp_path / "a.json")
