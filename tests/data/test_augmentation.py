import pytest
import torch
import torch.nn.functional as F

from volmin.data import AUGMENTATIONS, CropFlip, ProgressiveCropFlip, TensorLoader


def images(count=6, side=5):
    """Images with pairwise different pixels."""
    return torch.arange(count * 2 * side * side).view(count, 2, side, side)


def test_images_are_cropped_and_mirrored_by_their_choices():
    x = images()
    choices = torch.tensor([[2, 2, 0], [0, 0, 0], [4, 1, 0], [2, 2, 1], [0, 4, 1], [3, 3, 1]])
    augmented = CropFlip(padding=2)(x, choices)
    padded = F.pad(x, [2, 2, 2, 2])
    for image, whole, (top, left, mirrored) in zip(augmented, padded, choices.tolist(), strict=True):
        crop = whole[:, top : top + 5, left : left + 5]
        assert torch.equal(image, crop.flip(2) if mirrored else crop)
    assert torch.equal(augmented[0], x[0]), "the central crop is the image itself"


def test_choices_are_uniform_over_places():
    choices = CropFlip().draw(torch.arange(9 * 9 * 2 * 200), torch.Generator().manual_seed(0))
    counts = torch.bincount(choices[:, 0] * 18 + choices[:, 1] * 2 + choices[:, 2], minlength=162)
    assert len(counts) == 162
    assert (counts - 200).abs().max() < 5 * 200**0.5


def test_augmented_images_are_channels_last_bytes():
    x = torch.zeros(4, 3, 32, 32, dtype=torch.uint8)
    out = AUGMENTATIONS["crop_flip"](x, torch.zeros(4, 3, dtype=torch.long))
    assert out.dtype == torch.uint8
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_crops_lie_inside_and_half_are_mirrored():
    augment = AUGMENTATIONS["inner_crop_flip"]
    x = torch.arange(256).expand(200, 1, 256, 256)
    choices = augment.draw(torch.arange(200), torch.Generator().manual_seed(0))
    crops = augment(x, choices)
    assert crops.shape == (200, 1, 224, 224)
    ends = crops[:, 0, 0, [0, -1]]
    lefts, mirrored = ends.min(1).values, ends[:, 0] > ends[:, 1]
    assert (ends.max(1).values - lefts == 223).all()
    assert (lefts.min(), lefts.max()) == (0, 32)
    assert 70 < mirrored.sum() < 130


@pytest.mark.parametrize(("done", "side"), [(0.0, 20), (0.33, 20), (0.34, 26), (0.66, 26), (0.67, 32), (1.0, 32)])
def test_resolution_grows_in_equal_shares_of_training(done, side):
    augment = AUGMENTATIONS["progressive_crop_flip"].at(0, done)
    out = augment(torch.zeros(4, 3, 32, 32, dtype=torch.uint8), torch.zeros(4, 3, dtype=torch.long))
    assert out.shape == (4, 3, side, side)
    assert out.dtype == torch.uint8
    assert out.is_contiguous(memory_format=torch.channels_last)


def test_small_images_show_the_whole_crop():
    x = torch.zeros(2, 1, 32, 32)
    x[0, 0, :16] = 200  # the upper half
    x[1, 0, :, :16] = 200  # the left half
    centred = torch.tensor([[4, 4, 0], [4, 4, 0]])
    small = ProgressiveCropFlip().at(0, 0.0)(x, centred)
    assert torch.allclose(F.avg_pool2d(small, 5), F.avg_pool2d(x, 8), atol=5)


def test_shrinking_averages_fine_patterns():
    stripes = torch.zeros(1, 1, 32, 32)
    stripes[..., ::2] = 255
    small = ProgressiveCropFlip(0).at(0, 0.0)(stripes, torch.zeros(1, 3, dtype=torch.long))
    assert small.std() < 0.3 * stripes.std()


def test_full_resolution_is_the_default():
    x, choices = images(side=8), torch.tensor([[1, 0, 1]] * 6)
    assert torch.equal(ProgressiveCropFlip(1)(x, choices), CropFlip(1)(x, choices))


def test_each_image_is_mirrored_in_every_other_epoch():
    augment, rows = ProgressiveCropFlip(), torch.randperm(10_000, generator=torch.Generator().manual_seed(0))
    mirrored = [augment.at(epoch, 0.5).draw(rows, torch.Generator().manual_seed(epoch))[:, 2] for epoch in range(4)]
    assert torch.equal(mirrored[0], 1 - mirrored[1])
    assert torch.equal(mirrored[0], mirrored[2])
    assert torch.equal(mirrored[1], mirrored[3])
    assert abs(int(mirrored[0].sum()) - 5_000) < 300


def test_mirroring_does_not_depend_on_the_order_of_an_epoch():
    augment = ProgressiveCropFlip().at(3, 0.5)
    rows = torch.tensor([7, 0, 3, 9])
    there = augment.draw(rows.flip(0), torch.Generator().manual_seed(1))[:, 2].flip(0)
    assert torch.equal(augment.draw(rows, torch.Generator().manual_seed(0))[:, 2], there)


def test_an_epoch_has_the_resolution_of_its_place_in_training():
    batches = TensorLoader(images(20, side=32), torch.arange(20), 8, augment=ProgressiveCropFlip())
    batches.x = batches.x.to(torch.uint8)
    sides = [{batch.x.shape[-1] for batch in batches.shuffled(0, epoch=epoch, done=epoch / 3)} for epoch in range(3)]
    assert sides == [{20}, {26}, {32}]
    assert {batch.x.shape[-1] for batch in batches} == {32}


def loader(**settings):
    x = images(20)
    return TensorLoader(x, torch.arange(20), 8, augment=CropFlip(1), **settings)


def test_augmented_epoch_is_a_function_of_the_seed():
    first, again, other = (torch.cat([batch.x for batch in loader().shuffled(seed)]) for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_augmentation_changes_neither_order_nor_evaluation():
    plain = TensorLoader(images(20), torch.arange(20), 8)
    for augmented, batch in zip(loader().shuffled(3), plain.shuffled(3), strict=True):
        assert torch.equal(augmented.y, batch.y)
        assert augmented.index is not None
        assert batch.index is not None
        assert torch.equal(augmented.index, batch.index)
        assert not torch.equal(augmented.x, batch.x)
    assert torch.equal(torch.cat([batch.x for batch in loader()]), images(20))


def test_several_devices_get_the_images_of_one_device():
    whole = {int(y): x for batch in loader().shuffled(5) for x, y in zip(batch.x, batch.y, strict=True)}
    for rank in (0, 1):
        for batch in loader().shuffled(5, rank, 2):
            for x, y in zip(batch.x, batch.y, strict=True):
                assert torch.equal(x, whole[int(y)])


def test_images_stay_bytes_and_are_normalised_per_batch():
    x = images(20).to(torch.uint8)
    batches = loader(normalize=lambda x: x.float() / 255)
    batches.x = x
    assert torch.equal(torch.cat([batch.x for batch in batches]), x.float() / 255)
    moved = batches.to(torch.device("cpu"))
    assert moved.x.dtype == torch.uint8
    for here, there in zip(batches.shuffled(1), moved.shuffled(1), strict=True):
        assert here.x.is_floating_point()
        assert torch.equal(here.x, there.x)
