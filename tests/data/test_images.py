import numpy as np
import pytest
from PIL import Image

from volmin.data import DataError
from volmin.data.images import load_images


def save(path, colour=(255, 0, 0), size=(20, 18), mode="RGB", **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """Red cats and blue dogs of 20 x 18 pixels in nested folders, among files that must be ignored."""
    for i in range(3):
        save(tmp_path / "cat" / f"{i}.png")
        save(tmp_path / "dog" / "deep" / f"{i}.BMP", (0, 0, 255))
    for ignored in ("cat/.hidden.png", "cat/Thumbs.db", ".git/x.png", "__MACOSX/y.png", "read me.txt"):
        (tmp_path / ignored).parent.mkdir(exist_ok=True)
        (tmp_path / ignored).write_bytes(b"not an image")
    return tmp_path


def test_folder_per_class(folder):
    images = load_images(folder)
    assert images.labels.tolist() == ["cat"] * 3 + ["dog"] * 3
    assert [path.name for path in images.paths] == ["0.png", "1.png", "2.png", "0.BMP", "1.BMP", "2.BMP"]
    assert images.x.shape == (6, 3, 18, 20)
    assert str(images.x.dtype) == "torch.uint8"
    assert images.x[0, :, 3, 4].tolist() == [255, 0, 0]
    assert images.x[5, :, 3, 4].tolist() == [0, 0, 255]
    assert load_images(folder, size=(4, 6)).x.shape == (6, 3, 4, 6)
    assert load_images(folder, size=5).x.shape == (6, 3, 5, 5)


def test_images_are_resized_to_at_most_64_pixels(tmp_path):
    for i, size in enumerate([(300, 150), (200, 100), (90, 60)]):
        save(tmp_path / str(i % 2) / f"{i}.jpg", 128, size, "L")
    save(tmp_path / "0" / "16-bit.png", 128 * 257, (200, 100), "I;16")
    save(tmp_path / "1" / "bit.png", 1, (200, 100), "1")
    images = load_images(tmp_path)
    assert images.x.shape == (5, 1, 32, 64), "grey images have one channel"
    means = dict(zip([path.name for path in images.paths], images.x.float().mean((1, 2, 3)).tolist(), strict=True))
    assert means["16-bit.png"] == 128
    assert means["bit.png"] == 255
    save(tmp_path / "1" / "colour.webp", (9, 9, 9), (5, 5))
    assert load_images(tmp_path).x.shape[1] == 3


def test_palette_and_transparent_images_are_converted(tmp_path):
    save(tmp_path / "a" / "p.gif", (0, 255, 0), (6, 6))
    save(tmp_path / "b" / "t.png", (0, 255, 0, 255), (6, 6), "RGBA")
    images = load_images(tmp_path)
    assert images.x[:, :, 2, 2].tolist() == [[0, 255, 0], [0, 255, 0]]


def test_images_are_rotated_by_their_exif_orientation(tmp_path):
    for name, orientation in (("a", 1), ("b", 6)):
        pixels = np.zeros((8, 16, 3), np.uint8)
        pixels[:, :8] = 255  # the left half is white
        exif = Image.Exif()
        exif[0x0112] = orientation
        (tmp_path / name).mkdir()
        Image.fromarray(pixels).save(tmp_path / name / "x.png", exif=exif)
    straight, turned = load_images(tmp_path, size=8).x.float().mean(1)
    assert straight[:, 0].min() > 200 > 50 > straight[:, -1].max()
    assert turned[0].min() > 200 > 50 > turned[-1].max(), "rotated clockwise, the left side is at the top"


def test_damaged_images_are_reported_and_left_out(folder, monkeypatch):
    whole = save(folder / "dog" / "whole.jpg", size=(64, 64)).read_bytes()
    (folder / "dog" / "whole.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / "cat" / "text.png").write_text("no image")
    (folder / "cat" / "nothing.png").touch()
    save(folder / "dog" / "bomb.png", size=(100, 100))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 6000)
    with pytest.warns(UserWarning, match="4 of 10 images of .* were left out: ") as caught:
        images = load_images(folder)
    assert len(images) == len(images.labels) == len(images.x) == 6
    assert {path.name for path, _ in images.left_out} == {"whole.jpg", "text.png", "nothing.png", "bomb.png"}
    assert "text.png" in str(caught[0].message)


def test_class_without_readable_images_is_refused(folder):
    for path in (folder / "cat").glob("[0-9].png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"No image of the class 'cat' in .* can be read: .*0\.png"):
        load_images(folder)
    for path in (folder / "dog").rglob("*.BMP"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match="None of the 6 images"):
        load_images(folder)


def test_folders_without_classes_are_refused(folder, tmp_path_factory):
    (folder / "bird").mkdir()
    with pytest.raises(DataError, match="class folders without images: 'bird'"):
        load_images(folder)
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(DataError, match="has no folders"):
        load_images(empty)
    save(empty / "only" / "1.png")
    with pytest.raises(DataError, match="only one class folder"):
        load_images(empty)
    with pytest.raises(DataError, match="no folder of images at"):
        load_images(empty / "nowhere")


def test_table_of_paths_and_labels(folder):
    table = folder / "labels.csv"
    table.write_text("note,file,label\na,cat/0.png,5\nb,dog/deep/1.BMP,7\nc,cat/gone.png,5\nd,cat/2.png,7\n")
    with pytest.warns(UserWarning, match=r"gone.png \(it does not exist\)"):
        images = load_images(table, "label")
    assert images.labels.tolist() == [5, 7, 7]
    assert images.x[1, :, 0, 0].tolist() == [0, 0, 255]
    with pytest.warns(UserWarning, match="1 of 4"):
        assert len(load_images(table, "label", path_column="file")) == 3
    with pytest.raises(DataError, match="Name the label column"):
        load_images(table)
    with pytest.raises(DataError, match="no column 'path'"):
        load_images(table, "label", path_column="path")
    table.write_text("note,label\na,1\nb,2\n")
    with pytest.raises(DataError, match="no column of image paths"):
        load_images(table, "label")
