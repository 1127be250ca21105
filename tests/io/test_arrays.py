import zipfile

import numpy as np
import pytest

from volmin.io import expansion
from volmin.io.arrays import read_array, read_arrays


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3)), np.zeros((0, 2)), np.array(["é", "cat"])]
)
def test_round_trip(array, tmp_path):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", x=array, y=array)
    found = read_array(tmp_path / "a.npy")
    assert found.dtype == array.dtype
    assert found.flags.writeable
    assert np.array_equal(found, array)
    assert {name: np.array_equal(value, array) for name, value in read_arrays(tmp_path / "a.npz").items()} == {
        "x": True,
        "y": True,
    }


@pytest.mark.parametrize("header", ["{'descr': '<f8', 'shape': (", "{'descr': '<f8'}}", "\x00", "[1, 2", "'" * 3])
def test_damaged_header_is_refused(header, tmp_path):
    """NumPy parses the header as Python, which can raise tokenizer and syntax errors."""
    text = header.encode().ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(8))
    with pytest.raises(ValueError, match="is not a NumPy array file"):
        read_array(tmp_path / "a.npy")


def test_length_beyond_the_file_allocates_no_memory(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(7))
    content = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(content.replace(b"(7,), }" + b" " * 12, b"(7000000000000,), }"))
    with pytest.raises(ValueError, match="is not a NumPy array file"):
        read_array(tmp_path / "a.npy")


@pytest.mark.parametrize("code", [0xD800, 0x110000])
def test_invalid_unicode_is_refused(code, tmp_path):
    """polars ends the process on such text."""
    broken = np.array([65, code], np.uint32).view("<U1")
    np.save(tmp_path / "a.npy", broken)
    np.savez(tmp_path / "a.npz", x=broken)
    for read, name in ((read_array, "a.npy"), (read_arrays, "a.npz")):
        with pytest.raises(ValueError, match="not valid Unicode"):
            read(tmp_path / name)


def test_compression_bomb_is_refused(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(2_000_000, np.uint8))
    assert read_arrays(tmp_path / "a.npz")["x"].size == 2_000_000
    monkeypatch.setattr(expansion, "ALWAYS_EXPANDED", 1_000_000)
    with pytest.raises(ValueError, match=r"a.npz cannot be read safely: it expands to 0.0 GB, .* times its size"):
        read_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", x=np.zeros(2_000_000, np.uint8))
    assert read_arrays(tmp_path / "b.npz")["x"].size == 2_000_000


def test_object_arrays_are_not_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("a pickle was executed",))

    objects = np.array([Bomb()], object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects)
    with pytest.raises(ValueError, match="is not a NumPy array file"):
        read_array(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="The array 'x' of .* cannot be read safely"):
        read_arrays(tmp_path / "a.npz")


def test_files_without_arrays_are_refused(tmp_path):
    np.savez(tmp_path / "a.npy.npz", x=np.zeros(2))
    (tmp_path / "a.npy.npz").rename(tmp_path / "a.npy")
    with pytest.raises(ValueError, match="archive of several arrays"):
        read_array(tmp_path / "a.npy")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("note.txt", "no array")
    with pytest.raises(ValueError, match="not arrays: note.txt"):
        read_arrays(tmp_path / "b.npz")
    with pytest.raises(ValueError, match="There is no array at"):
        read_array(tmp_path / "c.npy")
