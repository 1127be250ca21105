import pytest
from hypothesis import given
from hypothesis import strategies as st

from volmin.exceptions import DamagedFileError
from volmin.io.atomic import write_json
from volmin.io.sealed import read_sealed_bytes, read_sealed_json, write_sealed_bytes, write_sealed_json

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
def test_sealed_json_round_trip(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("sealed") / "a.json"
    write_sealed_json(path, content)
    assert read_sealed_json(path) == content


@given(content=st.binary(max_size=200), data=st.data())
def test_any_flipped_bit_of_sealed_bytes_is_detected(tmp_path_factory, content, data):
    path = tmp_path_factory.mktemp("sealed") / "a.ckpt"
    write_sealed_bytes(path, content)
    assert read_sealed_bytes(path) == content
    damaged = bytearray(path.read_bytes())
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(damaged)
    with pytest.raises(DamagedFileError):
        read_sealed_bytes(path)


def test_changed_number_in_sealed_json_is_detected(tmp_path):
    write_sealed_json(tmp_path / "a.json", {"accuracy": 0.91})
    text = (tmp_path / "a.json").read_text()
    (tmp_path / "a.json").write_text(text.replace("0.91", "0.99"))
    with pytest.raises(DamagedFileError, match="checksum is wrong"):
        read_sealed_json(tmp_path / "a.json")


def test_changed_or_missing_file_beside_sealed_json_is_detected(tmp_path):
    (tmp_path / "model").write_bytes(b"weights")
    write_sealed_json(tmp_path / "a.json", {"accuracy": 0.91}, ["model"])
    assert read_sealed_json(tmp_path / "a.json", files=True) == {"accuracy": 0.91}
    (tmp_path / "model").write_bytes(b"weight5")
    with pytest.raises(DamagedFileError, match="model is damaged or missing"):
        read_sealed_json(tmp_path / "a.json", files=True)
    (tmp_path / "model").unlink()
    with pytest.raises(DamagedFileError, match="model is damaged or missing"):
        read_sealed_json(tmp_path / "a.json", files=True)
    assert read_sealed_json(tmp_path / "a.json") == {"accuracy": 0.91}


def test_files_without_a_seal_are_read(tmp_path):
    write_json(tmp_path / "a.json", {"accuracy": 0.5})
    assert read_sealed_json(tmp_path / "a.json", files=True) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    "text", ["", "[]", "7", "{", "[" * 100_000, '{"a": 1, "seal": 3}', '{"a": 1, "seal": {}}', "\ud800"]
)
def test_invalid_json_and_invalid_seals_are_damaged(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(DamagedFileError, match=r"a\.json is damaged"):
        read_sealed_json(tmp_path / "a.json")
