"""Array types that the whole package uses."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Array: TypeAlias = NDArray[np.float64]
"""Real numbers: probabilities, matrices, scores."""
Labels: TypeAlias = NDArray[np.int64]
"""Class numbers in ``0 .. C-1``, or row numbers."""
Mask: TypeAlias = NDArray[np.bool_]
"""One truth value per row."""
AnyArray: TypeAlias = NDArray[Any]
"""An array of any type, such as a user's own labels."""
Numbers: TypeAlias = ArrayLike | Tensor
"""What public functions accept as numbers: arrays, lists, tensors."""
