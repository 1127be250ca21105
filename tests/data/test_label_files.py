from contextlib import suppress

import numpy as np
import pytest
import torch

from volmin.data import DataError
from volmin.data.label_files import find_labels, number_labels, read_label_sets, read_labels

SETS = {
    "clean_label": np.array([0, 1, 2, 1]),
    "worse_label": np.array([0, 2, 2, 1]),
    "random_label1": np.array([1, 1, 2, 1], np.int32),
}


class Malicious:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was executed",))


def test_label_sets_of_cifar_n(tmp_path):
    torch.save(SETS, tmp_path / "human.pt")
    path, key = find_labels(f"{tmp_path}/human.pt:worse_label")
    assert read_labels(path, key).tolist() == [0, 2, 2, 1]
    assert read_label_sets(path).keys() == SETS.keys()
    assert read_labels(path, "random_label1").tolist() == [1, 1, 2, 1]
    for key in (None, "best_label"):
        with pytest.raises(DataError, match="The file has: clean_label, worse_label, random_label1"):
            read_labels(path, key)
    tensors = {key: torch.as_tensor(value) for key, value in SETS.items()}
    torch.save(tensors, path)
    assert read_labels(path, "worse_label").tolist() == [0, 2, 2, 1]


def test_label_sets_of_numpy_1(tmp_path):
    """NumPy 1 has its functions in another module; its files differ by that name only."""
    torch.save(SETS, tmp_path / "new.pt", _use_new_zipfile_serialization=False)
    old = (tmp_path / "new.pt").read_bytes().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    assert b"numpy.core.multiarray" in old
    (tmp_path / "old.pt").write_bytes(old)
    assert read_labels(tmp_path / "old.pt", "worse_label").tolist() == [0, 2, 2, 1]


def test_pickled_code_is_not_executed(tmp_path):
    torch.save({"worse_label": Malicious()}, tmp_path / "evil.pt")
    with pytest.raises(DataError, match="cannot be read safely"):
        read_labels(tmp_path / "evil.pt", "worse_label")
    np.save(tmp_path / "evil.npy", np.array([Malicious()], dtype=object))
    with pytest.raises(DataError, match="is not a NumPy array file"):
        read_labels(tmp_path / "evil.npy")
    (tmp_path / "text.pt").write_text("no labels")
    with pytest.raises(DataError, match="cannot be read safely"):
        read_labels(tmp_path / "text.pt")


def test_labels_in_arrays_and_tables(tmp_path):
    np.save(tmp_path / "a.npy", np.array([1.0, 0.0, 2.0]))
    assert read_labels(tmp_path / "a.npy").tolist() == [1, 0, 2]
    (tmp_path / "b.csv").write_text("noisy\ncat\ndog\n")
    assert read_labels(tmp_path / "b.csv").tolist() == ["cat", "dog"]
    (tmp_path / "c.csv").write_text("id,noisy\n1,cat\n2,dog\n")
    assert read_labels(tmp_path / "c.csv", "noisy").tolist() == ["cat", "dog"]
    with pytest.raises(DataError, match="Name the label column .* id, noisy"):
        read_labels(tmp_path / "c.csv")
    np.save(tmp_path / "d.npy", np.zeros((3, 2)))
    with pytest.raises(DataError, match=r"one label per row, but holds float64 of shape \(3, 2\)"):
        read_labels(tmp_path / "d.npy")


def test_file_names_and_keys_are_separated(tmp_path):
    odd = tmp_path / "a:b.npy"
    odd.touch()
    assert find_labels(str(odd)) == (odd, None)
    assert find_labels(f"{odd}:key") == (odd, "key")
    for text, message in (
        (f"{tmp_path}/no.npy", "no label file at"),
        (str(tmp_path / "x.doc"), "must end in .npy"),
    ):
        (tmp_path / "x.doc").touch()
        with pytest.raises(DataError, match=message):
            find_labels(text)


def test_labels_that_do_not_fit_the_training_part_are_refused():
    classes = ("cat", "dog")
    assert number_labels(np.array([1, 0]), classes, 2, "f").tolist() == [1, 0]
    assert number_labels(np.array(["dog", "cat"]), classes, 2, "f").tolist() == [1, 0]
    assert number_labels(np.array([-1, 1]), classes, 2, "f").tolist() == [-1, 1]
    assert number_labels(np.array([True, False]), (False, True), 2, "f").tolist() == [1, 0]
    for labels, message in (
        (np.array([-1, -1]), "f holds no label"),
        (np.array([-2, 0]), r"Labels must lie in 0\.\.1, but span -2\.\.0"),
        (np.array([0]), "f holds 1 labels, but the training part has 2 rows"),
        (np.array([0, 2]), r"f is damaged .* Labels must lie in 0\.\.1, but span 0\.\.2"),
        (np.array(["dog", "<b>bird</b>"]), "not classes: '<b>bird</b>'. The classes are: cat, dog"),
    ):
        with pytest.raises(DataError, match=message):
            number_labels(labels, classes, 2, "f")


@pytest.mark.parametrize("damage", range(0, 200, 7))
def test_damaged_label_sets_are_refused_or_read(damage, tmp_path):
    """A damaged pickle may raise anything in torch.load."""
    torch.save({"worse": np.arange(4)}, tmp_path / "a.pt")
    content = bytearray((tmp_path / "a.pt").read_bytes())
    start = content.index(b"worse") - 20
    content[start + damage] ^= 0x55
    (tmp_path / "a.pt").write_bytes(content)
    with suppress(DataError):
        assert len(read_labels(tmp_path / "a.pt", "worse"))
