import gzip
import io
import lzma
import os
import pickle
import struct
import tarfile

import numpy as np
import pytest

from volmin.data import DataError, load_dataset
from volmin.data.sources import cifar

PER_FILE = 3


def rows(file, count=PER_FILE):
    """Images whose bytes are all the number of their file, which shows the order of the files."""
    return np.full((count, 3072), file, np.uint8)


def cifar10(folder, protocol=2, as_bytes=True):
    """A miniature CIFAR-10: three images in each of the six files."""
    folder.mkdir(parents=True, exist_ok=True)
    key = (lambda name: name.encode()) if as_bytes else str
    for number in range(1, 7):
        name = f"data_batch_{number}" if number < 6 else "test_batch"
        content = {key("data"): rows(number), key("labels"): [number, 0, 9], key("batch_label"): key(name)}
        (folder / name).write_bytes(pickle.dumps(content, protocol))
    names = [key(name) for name in "abcdefghij"]
    (folder / "batches.meta").write_bytes(pickle.dumps({key("label_names"): names}, protocol))
    return folder


def cifar100(folder):
    folder.mkdir()
    for name, number in (("train", 1), ("test", 2)):
        content = {"data": rows(number), "fine_labels": [99, 0, number], "coarse_labels": [19, 19, 19]}
        (folder / name).write_bytes(pickle.dumps(content, 2))
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"class {i}" for i in range(100)]}, 2))
    return folder


def pack(folder, archive):
    with tarfile.open(archive, "w:" + archive.suffix[1:]) as tar:
        tar.add(folder, folder.name)
    return archive


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("as_bytes", [True, False])
def test_cifar10_is_read_in_file_order_from_any_pickle_protocol(tmp_path, protocol, as_bytes):
    cifar10(tmp_path / "cifar-10-batches-py", protocol, as_bytes)
    data = load_dataset("cifar10", tmp_path)
    assert data.train.x.shape == (15, 3, 32, 32)
    assert data.train.tensor[:, 0, 0, 0].tolist() == np.repeat([1, 2, 3, 4, 5], 3).tolist()
    assert data.train.y.tolist() == [1, 0, 9, 2, 0, 9, 3, 0, 9, 4, 0, 9, 5, 0, 9]
    assert data.test.tensor.unique().tolist() == [6]
    assert data.classes == tuple("abcdefghij")
    assert (data.train.y.dtype, data.test.tensor.element_size()) == (np.int64, 1)


def python2_pickle():
    """A pickle as Python 2 wrote it: strings are bytes, and NumPy's functions are in numpy.core."""

    def short(text):
        return b"U" + bytes([len(text)]) + text

    pixels = rows(7, 2).tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + short(b"b") + b"tR"
        + b"(K\x01(K\x02M\x00\x0ct" + b"cnumpy\ndtype\n(" + short(b"u1") + b"K\x00K\x01tR"
        + b"(K\x03" + short(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89T" + struct.pack("<i", len(pixels)) + pixels + b"tb"
    )  # fmt: skip
    return b"\x80\x02}(" + short(b"data") + array + short(b"labels") + b"](K\x03K\x04e" + b"u."


def test_python_2_pickles_are_read(tmp_path):
    folder = cifar10(tmp_path / "cifar-10-batches-py")
    (folder / "test_batch").write_bytes(python2_pickle())
    data = load_dataset("cifar10", tmp_path)
    assert data.test.y.tolist() == [3, 4]
    assert data.test.tensor.unique().tolist() == [7]


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("labels", [np.array([4, 5]), [np.int64(4), np.int64(5)]])
def test_numpy_labels_and_fortran_order_are_read(tmp_path, protocol, labels):
    folder, pixels = cifar10(tmp_path), np.asfortranarray(np.arange(6144).reshape(2, 3072) % 251).astype(np.uint8)
    (folder / "test_batch").write_bytes(pickle.dumps({"data": pixels, "labels": labels}, protocol))
    test = load_dataset("cifar10", tmp_path).test
    assert test.y.tolist() == [4, 5]
    assert (test.tensor.numpy().reshape(2, 3072) == pixels).all()


def test_images_are_channels_first(tmp_path):
    folder = cifar10(tmp_path)
    pixels = np.arange(3072).reshape(1, 3072) // 1024
    (folder / "test_batch").write_bytes(pickle.dumps({"data": pixels.astype(np.uint8), "labels": [0]}))
    image = load_dataset("cifar10", tmp_path).test.x[0]
    assert [channel.unique().tolist() for channel in image] == [[0], [1], [2]]


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.xz"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_archives_are_read_without_extraction(tmp_path, name, suffix):
    folder = cifar10(tmp_path / "cifar-10-batches-py") if name == "cifar10" else cifar100(tmp_path / "cifar-100-python")
    loose = load_dataset(name, folder)
    (tmp_path / "data").mkdir()
    pack(folder, tmp_path / "data" / f"{folder.name.replace('batches-py', 'python')}{suffix}")
    packed = load_dataset(name, tmp_path / "data")
    assert (packed.train.tensor == loose.train.tensor).all()
    assert packed.train.y.tolist() == loose.train.y.tolist()
    assert packed.classes == loose.classes
    assert list((tmp_path / "data").iterdir())[1:] == [], "nothing is extracted"


def test_cifar100_has_fine_labels(tmp_path):
    cifar100(tmp_path / "cifar-100-python")
    data = load_dataset("cifar100", tmp_path)
    assert data.train.y.tolist() == [99, 0, 1]
    assert data.num_classes == 100
    assert data.classes[99] == "class 99"


class Malicious:
    def __reduce__(self):
        return os.mkdir, ("executed",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pickle.dumps({"data": Malicious()}), r"it refers to (posix|nt|os)\.mkdir, which official files do not"),
        (b"cbuiltins\neval\n(S'1'\ntR.", r"it refers to builtins\.eval"),
        (b"cnumpy.testing\nmeasure\n(S'1'\ntR.", r"it refers to numpy\.testing\.measure"),
        (pickle.dumps({"data": rows(1).astype(object)}), "it holds values of the type 'O8'"),
        (pickle.dumps({"data": rows(1)})[:-500], "cannot be read"),
        (b"", "cannot be read"),
        (b"not a pickle", "cannot be read"),
        (pickle.dumps([1, 2]), "does not hold rows of 3,072 bytes"),
        (pickle.dumps({"data": rows(1)[:, :100], "labels": [0, 0, 0]}), "does not hold rows of 3,072 bytes"),
        (pickle.dumps({"data": rows(1).astype(float), "labels": [0, 0, 0]}), "it holds values of the type 'f8'"),
        (pickle.dumps({"data": rows(1).astype(int), "labels": [0, 0, 0]}), "does not hold rows of 3,072 bytes"),
        (pickle.dumps({"data": rows(1), "labels": [0, 0]}), r"int64 of shape \(2,\), but must hold 3 class numbers"),
        (pickle.dumps({"data": rows(1), "labels": [0, 0, 10]}), r"Labels must lie in 0\.\.9, but span 0\.\.10"),
        (pickle.dumps({"data": rows(1), "labels": [0, [0], 0]}), "data_batch_3 of CIFAR-10 is damaged"),
        (pickle.dumps({"data": rows(1), "labels": ["a", "b", "c"]}), "<U1 of shape"),
    ],
)
def test_damaged_and_malicious_files_are_refused_in_one_line(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    folder = cifar10(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(DataError, match=message) as error:
        load_dataset("cifar10", tmp_path)
    assert "data_batch_3" in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "executed").exists()


def test_malicious_pickle_in_an_archive_is_refused(tmp_path):
    folder = cifar10(tmp_path / "cifar-10-batches-py")
    (folder / "test_batch").write_bytes(pickle.dumps(Malicious()))
    (tmp_path / "data").mkdir()
    pack(folder, tmp_path / "data" / "cifar-10-python.tar.gz")
    with pytest.raises(DataError, match=r"cifar-10-python.tar.gz:test_batch cannot be read \(it refers to"):
        load_dataset("cifar10", tmp_path / "data")


def test_damaged_archives_are_refused_by_name(tmp_path):
    archive = pack(cifar10(tmp_path / "cifar-10-batches-py"), tmp_path / "whole.xz")
    (tmp_path / "data").mkdir()
    target = tmp_path / "data" / "cifar-10-python.tar.gz"
    whole = lzma.decompress(archive.read_bytes())
    for damaged in (archive.read_bytes()[:-100], gzip.compress(whole)[:-100], whole[:4000], b"<html></html>", b""):
        target.write_bytes(damaged)
        with pytest.raises(DataError, match="cifar-10-python.tar.gz (cannot be read|lacks)"):
            load_dataset("cifar10", target.parent)


def test_archive_member_of_impossible_size_is_refused(tmp_path):
    member = tarfile.TarInfo("cifar-10-batches-py/test_batch")
    member.size = 2**70
    (tmp_path / "cifar-10-python.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))
    with pytest.raises(DataError, match="cifar-10-python.tar cannot be read"):
        load_dataset("cifar10", tmp_path)


def test_paths_and_links_in_an_archive_write_nothing(tmp_path):
    folder = cifar10(tmp_path / "cifar-10-batches-py")
    place = tmp_path / "deep" / "data"
    place.mkdir(parents=True)
    with tarfile.open(place / "cifar-10-python.tar.gz", "w:gz") as tar:
        for name in ("../escaped", str(tmp_path / "absolute"), "cifar-10-batches-py/../../escaped"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
        link = tarfile.TarInfo("cifar-10-batches-py/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        tar.addfile(link)
        tar.add(folder, folder.name)
    before = sorted(tmp_path.rglob("*"))
    assert len(load_dataset("cifar10", place).train) == 15
    assert sorted(tmp_path.rglob("*")) == before


def test_compression_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "_MOST_BYTES", 1_000_000)
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-py/readme.html")
        member.size = 3_000_000
        tar.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(DataError, match="expands to more than 1 MB"):
        load_dataset("cifar10", tmp_path)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match="No CIFAR-10 files in .* cifar-10-batches-py or the archive cifar-10-python"):
        load_dataset("cifar10", tmp_path)
    folder = cifar10(tmp_path / "cifar-10-batches-py")
    (folder / "data_batch_2").unlink()
    with pytest.raises(DataError, match="cifar-10-batches-py lacks data_batch_2"):
        load_dataset("cifar10", tmp_path)
    archive = pack(folder, tmp_path / "short.gz")
    (tmp_path / "data").mkdir()
    archive.rename(tmp_path / "data" / "cifar-10-python.tar.gz")
    with pytest.raises(DataError, match="lacks cifar-10-batches-py/data_batch_2"):
        load_dataset("cifar10", tmp_path / "data")


def test_classes_are_numbers_if_the_file_of_names_is_missing(tmp_path):
    folder = cifar10(tmp_path)
    (folder / "batches.meta").unlink()
    assert load_dataset("cifar10", tmp_path).classes == tuple("0123456789")
