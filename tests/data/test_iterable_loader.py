"""A user's own loaders: batches of any structure, own samplers, several devices."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
    WeightedRandomSampler,
)

from volmin import Recipe, fit, networks
from volmin.data import TensorLoader
from volmin.data.iterable_loader import IterableLoader, moved, split_batch
from volmin.exceptions import InputError
from volmin.methods import CrossEntropy

CPU = torch.device("cpu")
ROWS = torch.arange(22)
Pair = namedtuple("Pair", ["left", "right"])


def pairs(count=22, **settings):
    """A loader whose inputs are the numbers of the rows."""
    return DataLoader(TensorDataset(ROWS[:count].float()[:, None], ROWS[:count] % 2), batch_size=4, **settings)


def numbers(batches):
    return [batch.x[:, 0].int().tolist() for batch in batches]


def adapted(batches, world_size=1, split=None):
    loader = IterableLoader(batches, split, world_size)
    loader.check_labels(2)
    return loader


class Two(nn.Module):
    """A network of two inputs in a dict."""

    def __init__(self):
        super().__init__()
        self.net = networks.mlp(4, 3)

    def forward(self, x):
        return self.net(torch.cat([x["left"], x["right"]], dim=1))


@pytest.mark.parametrize("key", ["labels", "label", "y"])
def test_dicts_are_split_at_their_labels(key):
    x, y = torch.ones(3, 2), torch.zeros(3)
    assert split_batch({"x": x, key: y}) == (x, y)
    given = {"left": x, "right": x, key: y, "index": ROWS[:3]}
    assert split_batch(given) == ({"left": x, "right": x}, y, given["index"])
    assert split_batch((x, y)) == (x, y)
    with pytest.raises(InputError, match="entries left, right, but needs one of labels, label, y"):
        split_batch({"left": x, "right": x})


def test_any_nesting_is_moved():
    x = {"a": (torch.ones(2), [np.zeros(2), "text"]), "b": OrderedDict(c=None), "d": Pair(torch.ones(1), 3)}
    found = moved(x, torch.device("meta"))
    assert found["a"][0].device.type == found["a"][1][0].device.type == found["d"].left.device.type == "meta"
    assert found["a"][1][1] == "text"
    assert found["b"] == {"c": None}
    assert found["d"].right == 3


@pytest.mark.parametrize("form", ["dict", "split"])
def test_network_of_two_inputs_learns_from_nested_batches(form):
    y = torch.arange(120) % 3
    x = torch.randn(120, 2, generator=torch.Generator().manual_seed(0)) + 4 * torch.eye(3)[y, :2]

    class Rows(Dataset):
        def __len__(self):
            return len(y)

        def __getitem__(self, row):
            parts = {"left": x[row], "right": -x[row]}
            return {**parts, "labels": y[row]} if form == "dict" else {"inputs": parts, "answer": [y[row]]}

    loader = DataLoader(Rows(), batch_size=20, shuffle=True)
    split = None if form == "dict" else lambda batch: (batch["inputs"], batch["answer"][0])
    torch.manual_seed(0)
    method = CrossEntropy(Two(), 3)
    history = fit(method, loader, loader, Recipe(epochs=15, lr=0.1), split=split)
    assert history[-1]["val_accuracy"] > 0.9


def test_split_of_another_structure_is_rejected():
    with pytest.raises(InputError, match=r"split gives the type Tensor, but must give \(x, y\)"):
        list(adapted(pairs(), split=lambda batch: batch[0]))


@pytest.mark.parametrize("source", ["global", "own"])
def test_order_depends_on_the_seed_alone(source):
    loader = adapted(pairs(shuffle=True, generator=torch.Generator() if source == "own" else None))

    def epoch(seed):
        torch.manual_seed(seed)
        return numbers(loader.shuffled(seed))

    first, other, again = epoch(1), epoch(2), epoch(1)
    assert first == again != other
    assert sorted(sum(first, [])) == ROWS.tolist()


def test_own_sampler_is_used_and_hears_of_the_epoch():
    class Backwards:
        def __init__(self):
            self.epochs = []

        def set_epoch(self, epoch):
            self.epochs.append(epoch)

        def __iter__(self):
            return iter(range(21, -1, -1))

        def __len__(self):
            return 22

    sampler = Backwards()
    loader = adapted(pairs(sampler=sampler))
    assert sum(numbers(loader.shuffled(0, epoch=5)), []) == ROWS.tolist()[::-1]
    assert sampler.epochs == [5]


class Stream(IterableDataset):
    """Rows in an order that is drawn while they are read."""

    def __len__(self):
        return 22

    def __iter__(self):
        for start in (0, 11):
            for row in torch.randperm(11):
                yield (start + row).float()[None], (start + row) % 2


@pytest.mark.parametrize("kind", ["shuffled", "weighted", "stream", "list"])
def test_devices_get_disjoint_batches_of_one_order(kind):
    """Also where a device draws other random numbers between two batches."""
    if kind == "shuffled":
        batches = pairs(shuffle=True)
    elif kind == "weighted":
        batches = pairs(sampler=WeightedRandomSampler([1.0] * 22, 22, replacement=False))
    elif kind == "stream":
        batches = DataLoader(Stream(), batch_size=4)
    else:
        batches = [(part.float()[:, None], part % 2) for part in ROWS.split(4)]
    found = []
    for rank in range(2):
        loader = adapted(batches, 2)
        assert loader.epoch_batches == 3
        torch.manual_seed(rank)
        here = []
        for batch in loader.shuffled(7, rank, 2):
            torch.randn(rank)
            here.append(batch)
        found.append(numbers(here))
    assert [len(part) for part in found] == [3, 3]
    rows = sum(found[0] + found[1], [])
    assert sorted(rows) == ROWS.tolist()


def test_distributed_sampler_keeps_its_shares_and_evaluation_sees_all_rows():
    data = TensorDataset(ROWS.float()[:, None], ROWS % 2)
    shares = []
    for rank in range(2):
        sampler = DistributedSampler(data, num_replicas=2, rank=rank, seed=3)
        loader = adapted(DataLoader(data, batch_size=4, sampler=sampler), 2)
        assert (loader.epoch_batches, len(loader)) == (3, 6)
        first, second = (sum(numbers(loader.shuffled(epoch, rank, 2, epoch=epoch)), []) for epoch in (0, 1))
        assert sorted(first) != sorted(second), "the epoch is handed to the sampler"
        shares += first
        assert sum(numbers(loader), []) == ROWS.tolist()
    assert sorted(shares) == ROWS.tolist()


def test_loader_for_another_number_of_devices_is_rejected():
    data = TensorDataset(ROWS.float()[:, None], ROWS % 2)
    sampler = DistributedSampler(data, num_replicas=3, rank=0)
    with pytest.raises(InputError, match="sampler is for 3 devices, but there are 2"):
        IterableLoader(DataLoader(data, sampler=sampler), None, 2)
    with pytest.raises(InputError, match="1 batches, too few for 2 devices"):
        _ = IterableLoader(pairs(4), None, 2).epoch_batches
    assert len(list(adapted(pairs(4), 2))) == 1, "validation data may be a single batch"


def test_tensor_loader_beside_a_split_function():
    x, y = torch.randn(40, 3), torch.arange(40) % 2
    rows = [{"features": x[i : i + 10], "given": y[i : i + 10]} for i in range(0, 40, 10)]
    history = fit(
        CrossEntropy(networks.mlp(3, 2), 2), rows, TensorLoader(x, y), Recipe(epochs=1),
        split=lambda batch: (batch["features"], batch["given"]),
    )  # fmt: skip
    assert "val_loss" in history[0]
