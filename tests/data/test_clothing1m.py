import json
from dataclasses import replace

import numpy as np
import pytest

from volmin import load_dataset, noise
from volmin.data import DataError, ImageFiles
from volmin.exceptions import InputError
from volmin.experiments import run, spec
from volmin.experiments.source import Source

TRAIN, TEST = 200, 42


@pytest.fixture(scope="module")
def root(tmp_path_factory, make_clothing1m):
    folder = tmp_path_factory.mktemp("clothing1m")
    make_clothing1m(folder)
    return folder


def test_official_layout_is_read(root, tmp_path, make_clothing1m):
    data = load_dataset("clothing1m", root)
    assert (len(data.train), len(data.test), data.num_classes) == (TRAIN, TEST, 14)
    assert data.classes[4] == "Sweater"
    assert data.train.x.shape == (TRAIN, 3, 224, 224)
    image = data.train.x[5]
    assert image.shape == (3, 224, 224)
    assert abs(int(image[0, 100, 100]) - 20) <= 3
    assert data.train.x[:3].shape == (3, 3, 224, 224)
    assert data.resized(14).test.x.shape == (TEST, 3, 14, 14)
    keys, noisy, clean = make_clothing1m(tmp_path, annotations=True)
    again = load_dataset("clothing1m", tmp_path)
    assert (again.train.y == noisy[:TRAIN]).all()
    assert (again.test.y == clean[TRAIN:]).all()
    assert isinstance(again.train.x, ImageFiles)
    assert list(again.train.x.keys) == keys[:TRAIN]
    assert again.transition is not None
    assert np.allclose(again.transition, noise.measured(noisy[TRAIN:], clean[TRAIN:], 14))
    with pytest.raises(DataError, match="cannot be read: it does not exist"):
        data.train.x[151]
    with pytest.raises(InputError, match="not in memory"):
        _ = data.train.tensor


@pytest.mark.filterwarnings("ignore:The estimated T is nearly singular")
@pytest.mark.slow
def test_interrupted_training_resumes_to_the_same_bits(root, tmp_path):
    source = Source("clothing1m", root)
    assert source.check_noise(None) == "none"
    chosen = spec.resolve("clothing1m", "none", "volminnet", preset="fast", epochs=3)
    chosen = replace(chosen, image_side=16)

    class Killed(BaseException):
        pass

    def kill(history):
        if len(history) == 2:
            raise Killed

    with pytest.warns(UserWarning, match="cannot be read"):
        result = run.run(run.set_up(chosen, root, source.dataset), tmp_path / "whole")
    assert result["test_labels"] == "clean"
    assert result["unreadable_images"] == 3
    assert result["transition_error"] is not None, "images with both labels give the true T"
    with pytest.warns(UserWarning, match="cannot be read"), pytest.raises(Killed):
        run.run(run.set_up(chosen, root, source.dataset), tmp_path / "killed", on_epoch=kill)
    with pytest.warns(UserWarning, match="cannot be read"):
        run.run(run.set_up(chosen, root, source.dataset), tmp_path / "killed")
    whole, killed = (chosen.folder(tmp_path / name) for name in ("whole", "killed"))
    assert (whole / "model.safetensors").read_bytes() == (killed / "model.safetensors").read_bytes()
    assert json.loads((whole / "spec.json").read_text())["image_side"] == 16


def test_published_settings_start_from_imagenet_weights(root):
    chosen = spec.resolve("clothing1m", "none", "volminnet", preset="paper")
    assert (chosen.network, chosen.recipe.epochs, chosen.recipe.batch_size) == ("resnet50", 10, 32)
    schedule = chosen.recipe.learning_rate_schedule()
    assert schedule is not None
    rates = [chosen.recipe.lr * schedule(epoch) for epoch in (0, 4.9, 5)]
    assert rates == pytest.approx([2e-3, 2e-3, 2e-5])
    with pytest.raises(DataError, match=r"put torchvision's checkpoint resnet50-\*.pth into the data directory"):
        run.set_up(chosen, root)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("noisy_label_kv.txt", "images/a.jpg 14\n", "line 1: expected a key and a label in 0..13"),
        ("noisy_label_kv.txt", "images/a.jpg\n", "line 1: expected a key and a label"),
        ("clean_label_kv.txt", "images/a.jpg 3\n", "lacks the labels of 42 images"),
        ("clean_test_key_list.txt", "\n", "names no images"),
        ("clean_test_key_list.txt", "../../secret.jpg\n", "outside the data directory"),
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


def test_missing_images_or_data_directory_are_refused(root, tmp_path):
    for path in root.glob("*.txt"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="holds no images"):
        load_dataset("clothing1m", tmp_path)
    with pytest.raises(DataError, match="on request"):
        load_dataset("clothing1m")
