"""Images: files decoded on demand, and folders or tables of images read into memory."""

from volmin.data.images.files import ImageFiles, decode
from volmin.data.images.folder import LabelledImages, load_images
from volmin.data.images.loader import ImageLoader

__all__ = ["ImageFiles", "ImageLoader", "LabelledImages", "decode", "load_images"]
