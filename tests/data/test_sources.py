import numpy as np
import pytest
import torch

from volmin import load_dataset, noise
from volmin.data import Part, TensorLoader, noisy_split, split_indices
from volmin.data.splits import held_out


def test_digits_are_embedded_split_and_scaled(digits):
    assert (len(digits.train), len(digits.test), digits.num_classes) == (1437, 360, 10)
    assert digits.input_shape == (64,)
    assert 0 <= digits.train.x.min() < digits.train.x.max() <= 1
    again = load_dataset("digits")
    assert torch.equal(again.test.x, digits.test.x)
    assert digits.normalize(digits.test.x) is digits.test.x


def test_unknown_names_list_the_choices():
    with pytest.raises(ValueError, match="Unknown data set 'imagenet'. Choose one of: digits, mnist"):
        load_dataset("imagenet")


def test_the_split_is_the_authors():
    train, held_out = split_indices(20, 1)
    assert train.tolist() == [3, 16, 6, 10, 2, 14, 4, 17, 7, 1, 13, 0, 19, 18, 9, 15, 8, 12]
    assert held_out.tolist() == [5, 11]
    assert split_indices(20, 0)[1].tolist() == [12, 15]
    assert [len(rows) for rows in split_indices(60_000, 1)] == [54_000, 6_000]


def test_all_labels_are_corrupted_before_the_split():
    y = np.arange(1000) % 10
    part = Part(torch.arange(1000).float()[:, None], y)
    split = noisy_split(part, noise.pair(10, 0.45), seed=3)
    rows = split.train.x[:, 0].long().numpy()
    assert (split.clean == y[rows]).all()
    whole = noise.corrupt(y, noise.pair(10, 0.45), 3, draw="authors")
    assert (split.train.y == whole[rows]).all()
    assert (split.validation.y == whole[split.validation.x[:, 0].long().numpy()]).all()
    assert set((split.train.y - split.clean) % 10) == {0, 1}


def test_batches_cover_all_rows_once_in_an_order_of_the_seed():
    loader = TensorLoader(torch.arange(10).float(), torch.arange(10), batch_size=4)
    assert len(loader) == 3
    assert [batch.y.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    first, again, other = ([b.y.tolist() for b in loader.shuffled(seed)] for seed in (5, 5, 6))
    assert first == again != other
    assert sorted(sum(first, [])) == list(range(10))
    for batch in loader.shuffled(1):
        assert torch.equal(batch.x, batch.y.float())
        assert torch.equal(batch.index, batch.y)


def test_devices_share_an_epoch_without_overlap():
    loader = TensorLoader(torch.arange(11), torch.arange(11), batch_size=4)
    shares = [[b.y.tolist() for b in loader.shuffled(7, rank, 2)] for rank in (0, 1)]
    assert [[len(b) for b in share] for share in shares] == [[2, 2, 1], [2, 2, 1]]
    seen = sum((sum(share, []) for share in shares), [])
    assert len(seen) == len(set(seen)) == 10


def test_rows_are_held_out_class_by_class():
    labels = np.repeat([0, 1, 2, 3], [100, 10, 3, 2])
    train, test = held_out(labels)
    assert sorted([*train, *test]) == list(range(115))
    assert np.bincount(labels[test]).tolist() == [20, 2, 1]
    assert (held_out(labels)[1] == test).all()


def test_lengths_that_differ_are_refused():
    with pytest.raises(ValueError, match="x has 3 rows, but y has 2 labels"):
        TensorLoader(torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match="y must be a tensor or an array of numbers"):
        TensorLoader(torch.zeros(3), None)
    with pytest.raises(ValueError, match="x must have a row for each example"):
        TensorLoader(torch.tensor(1.0), torch.zeros(2))
    for size in (0, 2.5, None):
        with pytest.raises(ValueError, match="batch_size must be a whole number"):
            TensorLoader(torch.zeros(3), torch.zeros(3), size)
