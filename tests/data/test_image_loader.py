import numpy as np
import pytest
import torch
from PIL import Image

from volmin.data import AUGMENTATIONS, DataError, ImageFiles, ImageLoader
from volmin.data.loaders import Loader
from volmin.exceptions import InputError

SIDE = 14
UNREADABLE = {3: "damaged", 12: "missing", 13: "damaged", 14: "missing", 15: "damaged"}
LABELS = np.array([0, 1, 2, 1] * 9 + [1, 1])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """38 images of 20 x 16 pixels whose red value is their number; the fourth batch of four is unreadable."""
    root = tmp_path_factory.mktemp("images")
    for row in range(len(LABELS)):
        Image.new("RGB", (20, 16), (row, 0, 200)).save(root / f"{row}.png")
    for row, how in UNREADABLE.items():
        (root / f"{row}.png").write_bytes(b"damaged") if how == "damaged" else (root / f"{row}.png").unlink()
    return ImageFiles(root, [f"{row}.png" for row in range(len(LABELS))], SIDE)


@pytest.fixture
def loader(files):
    return ImageLoader(files, LABELS, 4, normalize=lambda x: x.float(), workers=0)


def rows(batches):
    return torch.cat([batch.index for batch in batches]).tolist()


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_length_is_the_number_of_batches_of_an_iteration(loader):
    batches = list(loader)
    assert len(loader) == len(batches) == 10
    assert [len(batch.y) for batch in batches] == [3, 4, 4, 0, 4, 4, 4, 4, 4, 2]
    assert batches[3].x.shape == (0, 3, SIDE, SIDE)
    assert rows(batches) == [row for row in range(38) if row not in UNREADABLE]
    assert torch.cat([batch.x[:, 0, 0, 0] for batch in batches]).tolist() == rows(batches)
    assert torch.equal(torch.cat([batch.y for batch in batches]), torch.from_numpy(LABELS)[rows(batches)])


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_epoch_batches_is_the_number_of_batches_of_an_epoch(files):
    loader = ImageLoader(files, LABELS, 8, normalize=lambda x: x.float(), workers=0)
    assert loader.epoch_batches == len(list(loader.shuffled(0))) == 4  # of 3 classes with 9 images each
    assert len(loader) == 5


def test_epochs_are_balanced_and_a_function_of_the_seed(loader):
    first, again, other = (loader.balanced(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert set(first.tolist()) != set(other.tolist())
    assert len(first.unique()) == len(first) == 27
    assert np.bincount(LABELS[first]).tolist() == [9, 9, 9]


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_devices_share_an_epoch_without_overlap(loader):
    shares = [rows(loader.shuffled(1, rank, 2)) for rank in (0, 1)]
    assert not set(shares[0]) & set(shares[1])
    readable = set(loader.balanced(torch.Generator().manual_seed(1)).tolist()) - set(UNREADABLE)
    assert len(readable - {*shares[0], *shares[1]}) <= 1  # 27 rows are not divisible by 2


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_batches_without_a_readable_image_are_skipped_in_training(files):
    """The mean loss of an empty batch is not a number."""
    few = ImageLoader(files.take(np.array([3, 4])), [0, 1], 1, normalize=lambda x: x.float(), workers=0)
    assert [batch.index.tolist() for batch in few.shuffled(0) if batch.index is not None] == [[1]]
    assert [batch.index.tolist() for batch in few if batch.index is not None] == [[], [1]]


@pytest.mark.filterwarnings("ignore:.*cannot be read")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # on machines with one core
def test_worker_processes_give_the_same_batches(files):
    epochs = [
        list(
            ImageLoader(
                files,
                LABELS,
                8,
                normalize=lambda x: x.float(),
                augment=AUGMENTATIONS["inner_crop_flip"],
                workers=workers,
            ).shuffled(3)
        )
        for workers in (0, 2)
    ]
    assert rows(epochs[0]) == rows(epochs[1])
    for here, there in zip(*epochs, strict=True):
        assert here.x.shape[1:] == (3, SIDE, SIDE)
        assert torch.equal(here.x, there.x)
        assert torch.equal(here.y, there.y)


def test_unreadable_images_are_reported_once_and_left_out(loader, files):
    with pytest.warns(UserWarning, match=r"5 images cannot be read and are left out: 3.png \("):
        assert not set(rows(loader)) & set(UNREADABLE)
    assert loader.unreadable["12.png"] == "it does not exist"
    assert len(list(loader)) == 10  # without a second warning
    assert loader.to(torch.device("cpu")).unreadable is loader.unreadable
    broken = ImageLoader(files.take(np.array([12, 13])), [0, 1], normalize=lambda x: x, workers=0)
    with pytest.raises(DataError, match="None of 2 images"):
        list(broken)


def test_labels_outside_the_classes_are_refused(loader, files):
    loader.check_labels(3)
    with pytest.raises(InputError, match=r"Labels must lie in 0\.\.1, but span 0\.\.2"):
        loader.check_labels(2)
    with pytest.raises(InputError, match="vector of whole numbers"):
        ImageLoader(files, LABELS / 2, normalize=lambda x: x).check_labels(3)


def test_missing_images_and_labels_are_refused(files):
    with pytest.raises(InputError, match="There are 38 images, but 2 labels"):
        ImageLoader(files, [0, 1], normalize=lambda x: x)
    with pytest.raises(InputError, match="no images"):
        ImageLoader(files.take(np.array([], int)), [], normalize=lambda x: x)


def test_image_loader_follows_the_loader_protocol(loader):
    assert isinstance(loader, Loader)
    assert loader.example() is None
