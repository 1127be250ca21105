import pytest
import torch

from volmin import load_dataset


def test_digits_are_split_and_scaled(digits):
    assert (len(digits.train), len(digits.test), digits.num_classes) == (1437, 360, 10)
    assert digits.input_shape == (64,)
    x = digits.train.tensor
    assert 0 <= x.min() < x.max() <= 1
    again = load_dataset("digits")
    assert torch.equal(again.test.tensor, digits.test.tensor)
    assert digits.normalize(digits.test.x) is digits.test.x


def test_unknown_names_list_the_choices():
    with pytest.raises(ValueError, match="Unknown data set 'imagenet'. Choose one of: digits, mnist"):
        load_dataset("imagenet")
