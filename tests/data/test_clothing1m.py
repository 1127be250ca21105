import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from volmin import load_dataset, noise
from volmin.data import DataError, ImageLoader
from volmin.data.augmentation import AUGMENTATIONS
from volmin.experiments import run, spec
from volmin.experiments.source import DataSource

TRAIN, TEST = 200, 42


@pytest.fixture(scope="module")
def root(tmp_path_factory, make_clothing1m):
    folder = tmp_path_factory.mktemp("clothing1m")
    make_clothing1m(folder)
    return folder


def test_the_official_layout(root, tmp_path, make_clothing1m):
    data = load_dataset("clothing1m", root)
    assert (len(data.train), len(data.test), data.num_classes) == (TRAIN, TEST, 14)
    assert data.classes[4] == "Sweater"
    assert data.train.x.shape == (TRAIN, 3, 224, 224)
    image = data.train.x[5]
    assert image.shape == (3, 224, 224)
    assert abs(int(image[0, 100, 100]) - 20) <= 3
    assert data.train.x[:3].shape == (3, 3, 224, 224)
    keys, noisy, clean = make_clothing1m(tmp_path, annotations=True)
    again = load_dataset("clothing1m", tmp_path)
    assert (again.train.y == noisy[:TRAIN]).all()
    assert (again.test.y == clean[TRAIN:]).all()
    assert list(again.train.x.keys) == keys[:TRAIN]
    assert np.allclose(again.transition, noise.measured(noisy[TRAIN:], clean[TRAIN:], 14))
    with pytest.raises(DataError, match="cannot be read: it does not exist"):
        data.train.x[151]


@pytest.mark.filterwarnings("ignore:.*cannot be read")
def test_epochs_are_balanced_drawn_anew_and_a_function_of_the_seed(root):
    data = load_dataset("clothing1m", root).resized(14)
    loader = ImageLoader(data.train.x, data.train.y, 16, normalize=lambda x: x.float(), workers=0)
    smallest = np.bincount(data.train.y).min()
    first, again, other = (loader.balanced(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert set(first.tolist()) != set(other.tolist())
    assert len(first.unique()) == len(first) == 14 * smallest
    assert np.bincount(data.train.y[first]).tolist() == [smallest] * 14
    assert len(loader) == -(-14 * smallest // 16)
    shares = [torch.cat([batch.index for batch in loader.shuffled(1, rank, 2)]) for rank in (0, 1)]
    assert not set(shares[0].tolist()) & set(shares[1].tolist())


@pytest.mark.filterwarnings("ignore:.*cannot be read")
@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # where there is one core only
def test_batches_are_the_same_in_worker_processes(root):
    data = load_dataset("clothing1m", root).resized(14)
    settings = {"normalize": data.normalize, "augment": AUGMENTATIONS["inner_crop_flip"]}
    epochs = [
        list(ImageLoader(data.train.x, data.train.y, 16, workers=workers, **settings).shuffled(3)) for workers in (0, 2)
    ]
    assert len(epochs[0]) == len(epochs[1])
    for here, there in zip(*epochs, strict=True):
        assert here.x.shape[1:] == (3, 14, 14)
        assert torch.equal(here.x, there.x)
        assert torch.equal(here.index, there.index)
        assert torch.equal(here.y, torch.from_numpy(data.train.y)[here.index])


def test_images_that_cannot_be_read_are_reported_by_key_and_left_out(root):
    data = load_dataset("clothing1m", root).resized(14)
    loader = ImageLoader(data.train.x, data.train.y, 16, normalize=lambda x: x.float(), workers=0)
    with pytest.warns(UserWarning, match=r"2 images cannot be read and are left out: images/0/50/1150,\d+.jpg \("):
        rows = torch.cat([batch.index for batch in loader]).tolist()
    assert sorted(set(range(TRAIN)) - set(rows)) == [150, 151]
    assert [why for key, why in loader.unreadable.items() if key.startswith("images/1/51")] == ["it does not exist"]
    assert len(list(loader)) == 13, "they are reported once"
    broken = ImageLoader(data.train.x.take(np.array([150, 151])), [0, 1], normalize=lambda x: x, workers=0)
    with pytest.raises(DataError, match="None of 2 images"):
        list(broken)


def test_crops_lie_inside_and_half_are_mirrored():
    augment = AUGMENTATIONS["inner_crop_flip"]
    x = torch.arange(256).expand(200, 1, 256, 256)
    choices = augment.draw(200, torch.Generator().manual_seed(0))
    crops = augment(x, choices)
    assert crops.shape == (200, 1, 224, 224)
    ends = crops[:, 0, 0, [0, -1]]
    lefts, mirrored = ends.min(1).values, ends[:, 0] > ends[:, 1]
    assert (ends.max(1).values - lefts == 223).all()
    assert (lefts.min(), lefts.max()) == (0, 32)
    assert 70 < mirrored.sum() < 130


@pytest.mark.filterwarnings("ignore:The estimated T is nearly singular")
def test_a_miniature_trains_and_resumes_to_the_same_bits(root, tmp_path):
    source = DataSource("clothing1m", root)
    assert source.check_noise(None) == "none"
    chosen = spec.resolve("clothing1m", "none", "volminnet", preset="fast", epochs=3)
    chosen = replace(chosen, image_side=16)

    class Killed(BaseException):
        pass

    def kill(history):
        if len(history) == 2:
            raise Killed

    with pytest.warns(UserWarning, match="cannot be read"):
        result = run.run(run.set_up(chosen, root, source.load()), tmp_path / "whole")
    assert result["test_labels"] == "clean"
    assert result["unreadable_images"] == 3
    assert result["transition_error"] is not None, "images with both labels tell T"
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(Killed):
        run.run(run.set_up(chosen, root, source.load()), tmp_path / "killed", on_epoch=kill)
    with pytest.warns(UserWarning, match="cannot be read"):
        run.run(run.set_up(chosen, root, source.load()), tmp_path / "killed")
    whole, killed = (chosen.folder(tmp_path / name) for name in ("whole", "killed"))
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    assert json.loads((whole / "spec.json").read_text())["image_side"] == 16


def test_published_settings_start_from_imagenet(root):
    chosen = spec.resolve("clothing1m", "none", "volminnet", preset="paper")
    assert (chosen.network, chosen.recipe.epochs, chosen.recipe.batch_size) == ("resnet50", 10, 32)
    rates = [chosen.recipe.lr * chosen.recipe.learning_rate_schedule()(epoch) for epoch in (0, 4.9, 5)]
    assert rates == pytest.approx([2e-3, 2e-3, 2e-5])
    with pytest.raises(DataError, match=r"put torchvision's checkpoint resnet50-\*.pth into the data directory"):
        run.set_up(chosen, root)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("noisy_label_kv.txt", "images/a.jpg 14\n", "line 1: a key and a label in 0..13 are expected"),
        ("noisy_label_kv.txt", "images/a.jpg\n", "line 1: a key and a label"),
        ("clean_label_kv.txt", "images/a.jpg 3\n", "lacks the labels of 42 images"),
        ("clean_test_key_list.txt", "\n", "names no images"),
        ("clean_test_key_list.txt", "../../secret.jpg\n", "outside of the data directory"),
        ("clean_test_key_list.txt", None, "lacks clean_test_key_list.txt"),
    ],
)
def test_damaged_lists_are_refused(root, tmp_path, name, content, message):
    for path in root.glob("*.txt"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "images").symlink_to(root / "images")
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        load_dataset("clothing1m", tmp_path)


def test_a_folder_without_images_or_no_folder_is_refused(root, tmp_path):
    for path in root.glob("*.txt"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="holds no images"):
        load_dataset("clothing1m", tmp_path)
    with pytest.raises(DataError, match="on request"):
        load_dataset("clothing1m")
