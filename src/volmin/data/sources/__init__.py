"""Named data sets: one module each, with a function ``load(data_dir, progress)``."""

SOURCES = {
    "digits": "1,437 + 360 digits of 8 x 8 pixels, included in scikit-learn",
    "mnist": "60,000 + 10,000 digits of 28 x 28 pixels (IDX files in --data-dir, or downloaded)",
    "fashion_mnist": "60,000 + 10,000 articles of clothing of 28 x 28 pixels (IDX files in --data-dir, or downloaded)",
    "cifar10": "50,000 + 10,000 colour images of 32 x 32 pixels (cifar-10-batches-py in --data-dir, or downloaded)",
    "cifar100": "the same with 100 classes (cifar-100-python in --data-dir, or downloaded)",
    "clothing1m": "1,000,000 photographs with noisy labels + 10,526 with clean ones (images/ and lists in --data-dir)",
}
"""Descriptions of the data sets by name."""

NOISY = ("clothing1m",)
"""Data sets whose training labels are noisy as published."""


def names() -> list[str]:
    """Names of the data sets that ``load_dataset`` accepts."""
    return list(SOURCES)
