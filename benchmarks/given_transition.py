"""What labels with symmetric noise allow a linear head, if it is told T: softmax regression with forward correction."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from torch import Tensor

from volmin._typing import Array, Labels
from volmin.losses import forward_nll

COMPONENTS = 400
PENALTIES = (1e-5, 3e-5, 6e-5, 1e-4, 2e-4)
STEPS = 60


class GivenTransition:
    """Softmax regression on principal components that is told T; true labels of held-out rows choose its penalty."""

    def __init__(self, T: Array) -> None:
        self.T = torch.from_numpy(T).float()

    def fit(self, x: Array, given: Labels, clean: Labels) -> GivenTransition:
        """Train on rows, their noisy labels, and their true labels, which choose the penalty only."""
        self.components = PCA(min(COMPONENTS, *x.shape), random_state=0).fit(x)
        rows, noisy = self._rows(x), torch.from_numpy(given)
        train, held_out = train_test_split(np.arange(len(x)), test_size=0.2, random_state=0)

        def accuracy(penalty: float) -> float:
            coefficients = self._fitted(rows[train], noisy[train], penalty)
            return float((_logits(rows[held_out], coefficients).argmax(1).numpy() == clean[held_out]).mean())

        self.coefficients = self._fitted(rows, noisy, max(PENALTIES, key=accuracy))
        return self

    def predict_proba(self, x: Array) -> Array:
        """(N, C) posteriors of the clean label."""
        return _logits(self._rows(x), self.coefficients).softmax(1).numpy()

    def _rows(self, x: Array) -> Tensor:
        return torch.from_numpy(self.components.transform(x) / self.components.explained_variance_.sum() ** 0.5).float()

    def _fitted(self, rows: Tensor, noisy: Tensor, penalty: float) -> Tensor:
        coefficients = torch.zeros(rows.shape[1] + 1, len(self.T), requires_grad=True)
        optimizer = torch.optim.LBFGS([coefficients], max_iter=STEPS, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimizer.zero_grad()
            value = forward_nll(_logits(rows, coefficients), self.T, noisy)
            value = value + penalty * coefficients[:-1].square().sum()
            value.backward()
            return value

        optimizer.step(loss)  # pyright: ignore[reportArgumentType]
        return coefficients.detach()


def _logits(rows: Tensor, coefficients: Tensor) -> Tensor:
    return rows @ coefficients[:-1] + coefficients[-1]
