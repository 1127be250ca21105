from typing import Any

import pytest
import torch

from volmin.data import TensorLoader


def test_batches_cover_all_rows_once_in_the_order_of_the_seed():
    loader = TensorLoader(torch.arange(10).float(), torch.arange(10), batch_size=4)
    assert len(loader) == 3
    assert [batch.y.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    first, again, other = ([b.y.tolist() for b in loader.shuffled(seed)] for seed in (5, 5, 6))
    assert first == again != other
    assert sorted(sum(first, [])) == list(range(10))
    for batch in loader.shuffled(1):
        assert torch.equal(batch.x, batch.y.float())
        assert batch.index is not None
        assert torch.equal(batch.index, batch.y)


def test_devices_share_an_epoch_without_overlap():
    loader = TensorLoader(torch.arange(11), torch.arange(11), batch_size=4)
    shares = [[b.y.tolist() for b in loader.shuffled(7, rank, 2)] for rank in (0, 1)]
    assert [[len(b) for b in share] for share in shares] == [[2, 2, 1], [2, 2, 1]]
    seen = sum((sum(share, []) for share in shares), [])
    assert len(seen) == len(set(seen)) == 10


def test_invalid_arguments_are_refused():
    invalid: Any
    with pytest.raises(ValueError, match="x has 3 rows, but y has 2 labels"):
        TensorLoader(torch.zeros(3), torch.zeros(2))
    invalid = None
    with pytest.raises(ValueError, match="y must be a tensor or an array of numbers"):
        TensorLoader(torch.zeros(3), invalid)
    with pytest.raises(ValueError, match="x must have a row for each example"):
        TensorLoader(torch.tensor(1.0), torch.zeros(2))
    for invalid in (0, 2.5, None):
        with pytest.raises(ValueError, match="batch_size must be a whole number"):
            TensorLoader(torch.zeros(3), torch.zeros(3), invalid)
