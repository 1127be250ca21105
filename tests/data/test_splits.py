import numpy as np
import torch

from volmin import noise
from volmin.data import Part, noisy_split, split_indices
from volmin.data.splits import held_out


def test_split_equals_that_of_the_authors_code():
    train, validation = split_indices(20, 1)
    assert train.tolist() == [3, 16, 6, 10, 2, 14, 4, 17, 7, 1, 13, 0, 19, 18, 9, 15, 8, 12]
    assert validation.tolist() == [5, 11]
    assert split_indices(20, 0)[1].tolist() == [12, 15]
    assert [len(rows) for rows in split_indices(60_000, 1)] == [54_000, 6_000]


def test_all_labels_are_corrupted_before_the_split():
    y = np.arange(1000) % 10
    part = Part(torch.arange(1000).float()[:, None], y)
    split = noisy_split(part, noise.pair(10, 0.45), seed=3)
    rows = split.train.tensor[:, 0].long().numpy()
    assert (split.clean == y[rows]).all()
    whole = noise.corrupt(y, noise.pair(10, 0.45), 3, draw="authors")
    assert (split.train.y == whole[rows]).all()
    assert (split.validation.y == whole[split.validation.tensor[:, 0].long().numpy()]).all()
    assert set((split.train.y - split.clean) % 10) == {0, 1}


def test_rows_are_held_out_in_each_class():
    labels = np.repeat([0, 1, 2, 3], [100, 10, 3, 2])
    train, test = held_out(labels)
    assert sorted([*train, *test]) == list(range(115))
    assert np.bincount(labels[test]).tolist() == [20, 2, 1]
    assert (held_out(labels)[1] == test).all()
