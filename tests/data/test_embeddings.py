"""Embeddings by any callable, cached by content; encoders of other packages from local files only."""

import sys

import numpy as np
import pytest
from PIL import Image

from volmin.data.embeddings import embed_images, embed_texts, image_encoder, sentence_encoder
from volmin.exceptions import DataError, InputError


class Lengths:
    """An encoder that counts what it has encoded."""

    def __init__(self):
        self.seen = []

    def __call__(self, texts):
        self.seen += texts
        return [[len(text), text.count("a")] for text in texts]


def test_texts_are_encoded_once_and_kept_by_content(tmp_path):
    cache = tmp_path / "cache.npz"
    encoder = Lengths()
    texts = ["a", "bb", "a", "aaa"] * 50
    found = embed_texts(texts, encoder, cache=cache)
    np.testing.assert_array_equal(found, [[len(text), text.count("a")] for text in texts])
    assert sorted(encoder.seen) == ["a", "aaa", "bb"]
    again = embed_texts(["new", "bb"], encoder, cache=cache)
    np.testing.assert_array_equal(again, [[3, 0], [2, 0]])
    assert encoder.seen[3:] == ["new"]


def test_images_are_known_by_their_content_not_by_their_name(tmp_path):
    for name, colour in (("a.png", (255, 0, 0)), ("b.png", (0, 255, 0)), ("copy.png", (255, 0, 0))):
        Image.new("RGB", (600, 300), colour).save(tmp_path / name)
    sizes = []

    def encoder(images):
        sizes.extend(image.size for image in images)
        return np.array([np.asarray(image).mean(axis=(0, 1)) for image in images])

    found = embed_images([tmp_path / name for name in ("a.png", "b.png", "copy.png")], encoder)
    np.testing.assert_array_equal(found, [[255, 0, 0], [0, 255, 0], [255, 0, 0]])
    assert sizes == [(512, 256)] * 2  # each distinct image once, in its own shape


def test_bad_encoders_caches_and_images_are_refused(tmp_path):
    with pytest.raises(InputError, match="finite numbers"):
        embed_texts(["a", "b"], lambda texts: np.zeros(len(texts)))
    with pytest.raises(InputError, match="nothing to embed"):
        embed_texts([], Lengths())
    cache = tmp_path / "cache.npz"
    embed_texts(["a"], Lengths(), cache=cache)
    with pytest.raises(InputError, match="another encoder"):
        embed_texts(["a", "b"], lambda texts: np.zeros((len(texts), 5)), cache=cache)
    np.savez(cache, other=np.zeros(3))
    with pytest.raises(DataError, match="not a cache"):
        embed_texts(["a"], Lengths(), cache=cache)
    with pytest.raises(DataError, match="no image"):
        embed_images([tmp_path / "none.png"], Lengths())
    (tmp_path / "broken.png").write_bytes(b"\x89PNG")
    with pytest.raises(DataError, match="cannot be read"):
        embed_images([tmp_path / "broken.png"], Lengths())


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("sentence_transformers", lambda path: sentence_encoder(path)),
        ("timm", lambda path: image_encoder("resnet18", path)),
    ],
)
def test_missing_packages_are_named(monkeypatch, tmp_path, module, make):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match="pip install"):
        make(tmp_path)


def test_timm_that_cannot_be_imported_is_told_from_a_missing_one(monkeypatch, tmp_path):
    class Broken:
        """As torchvision of another build than torch, which timm imports."""

        @staticmethod
        def find_spec(name, path=None, target=None):
            if name == "timm":
                raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.delitem(sys.modules, "timm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken, *sys.meta_path])
    with pytest.raises(InputError, match="it is installed, but cannot be imported: operator torchvision::nms"):
        image_encoder("resnet18", tmp_path)


def test_nothing_is_downloaded(tmp_path):
    pytest.importorskip("sentence_transformers")
    with pytest.raises(DataError, match="nothing is downloaded"):
        sentence_encoder(tmp_path / "none")


def test_network_of_timm_from_a_local_file(tmp_path):
    timm = pytest.importorskip("timm")
    from safetensors.torch import save_file

    save_file(timm.create_model("resnet10t", pretrained=False).state_dict(), tmp_path / "weights.safetensors")
    Image.new("RGB", (60, 80), (9, 9, 9)).save(tmp_path / "a.png")
    found = embed_images([tmp_path / "a.png"], image_encoder("resnet10t", tmp_path / "weights.safetensors"))
    assert found.shape == (1, 512)
    with pytest.raises(DataError, match="nothing is downloaded"):
        image_encoder("resnet10t", tmp_path / "none.safetensors")
