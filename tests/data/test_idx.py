import gzip
import struct

import numpy as np
import pytest

from volmin.data import DataError, load_dataset
from volmin.data.sources.idx import read_idx

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def tiny(tmp_path):
    """A miniature MNIST: 6 training and 3 test images."""
    generator = np.random.default_rng(0)
    for prefix, count in (("train", 6), ("t10k", 3)):
        images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        (tmp_path / f"{prefix}-images-idx3-ubyte").write_bytes(idx(images))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(np.arange(count, dtype=np.uint8)))
    return tmp_path


def test_plain_and_gzipped_files_are_read_from_the_usual_folders(tiny, tmp_path_factory):
    plain = load_dataset("mnist", tiny)
    assert plain.train.x.shape == (6, 1, 28, 28)
    assert plain.train.y.tolist() == [0, 1, 2, 3, 4, 5]
    assert len(plain.test) == 3
    nested = tmp_path_factory.mktemp("data") / "MNIST" / "raw"
    nested.mkdir(parents=True)
    for name in NAMES:
        (nested / f"{name}.gz").write_bytes(gzip.compress((tiny / name).read_bytes()))
    zipped = load_dataset("mnist", nested.parents[1])
    assert (zipped.train.tensor == plain.train.tensor).all()


def test_images_are_normalised_as_in_the_paper(tiny):
    data = load_dataset("mnist", str(tiny))
    pixels = data.test.tensor
    x = data.normalize(pixels)
    assert x[0, 0, 3, 4].item() == pytest.approx((pixels[0, 0, 3, 4].item() / 255 - 0.1307) / 0.3081, abs=1e-6)
    assert not pixels.is_floating_point()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[:-5], "announces 4,704 values, but it holds 4,699"),
        (lambda b: b[:10], "not an IDX file"),
        (lambda b: b"", "not an IDX file"),
        (lambda b: b"\x1f\x8b" + b[2:], "cannot be read"),
        (lambda b: gzip.compress(b)[:-20], "cannot be read"),
        (lambda b: bytes([0, 0, 13, 3]) + b[4:], "not an IDX file"),
    ],
)
def test_damaged_files_are_refused_by_name(tiny, damage, message):
    path = tiny / NAMES[0]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DataError, match=message) as error:
        load_dataset("mnist", tiny)
    assert str(path) in str(error.value)


def test_compression_bomb_is_refused(tiny, monkeypatch):
    monkeypatch.setattr("volmin.data.sources.idx._MOST_BYTES", 1_000_000)
    (tiny / NAMES[0]).write_bytes(gzip.compress(bytes(3_000_000)))
    with pytest.raises(DataError, match="it expands to more than 1 MB"):
        load_dataset("mnist", tiny)


def test_different_numbers_of_images_and_labels_are_refused(tiny):
    (tiny / NAMES[1]).write_bytes(idx(np.zeros(5, np.uint8)))
    with pytest.raises(DataError, match="6 train images but 5 labels"):
        load_dataset("mnist", tiny)


def test_labels_outside_the_classes_are_refused(tiny):
    (tiny / NAMES[3]).write_bytes(idx(np.array([0, 10, 1], np.uint8)))
    with pytest.raises(
        DataError, match=r"t10k-labels-idx1-ubyte is damaged .* Labels must lie in 0\.\.9, but span 0\.\.10"
    ):
        load_dataset("mnist", tiny)


def test_fashion_mnist_has_the_format_of_mnist(tiny, tmp_path_factory):
    data = load_dataset("fashion_mnist", tiny)
    assert (data.train.tensor == load_dataset("mnist", tiny).train.tensor).all()
    assert data.classes[9] == "ankle boot"
    with pytest.raises(DataError, match="No Fashion-MNIST files in"):
        load_dataset("fashion_mnist", tmp_path_factory.mktemp("empty"))


def test_missing_files_and_folders_are_named(tiny, tmp_path_factory):
    (tiny / NAMES[3]).unlink()
    with pytest.raises(DataError, match="lacks t10k-labels-idx1-ubyte"):
        load_dataset("mnist", tiny)
    with pytest.raises(DataError, match="No MNIST files in"):
        load_dataset("mnist", tmp_path_factory.mktemp("empty"))
    with pytest.raises(DataError, match="does not exist"):
        load_dataset("mnist", "nowhere")


def test_read_idx_gives_a_writable_array(tiny):
    assert read_idx(tiny / NAMES[1], 1).flags.writeable
