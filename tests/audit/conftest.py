import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import volmin
from volmin import noise


class MislabelledDigits:
    """All 1,797 digits with 30 % asymmetric noise, and out-of-fold probabilities of a plain classifier."""

    def __init__(self, seed):
        self.x, self.clean = load_digits(return_X_y=True)
        self.T = noise.asymmetric(10, 0.3, seed)
        self.labels = noise.corrupt(self.clean, self.T, seed)
        self.wrong = self.labels != self.clean
        plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.01))
        folds = StratifiedKFold(3, shuffle=True, random_state=seed)
        self.probs = cross_val_predict(plain, self.x, self.labels, cv=folds, method="predict_proba")

    def pixels(self):
        return (self.x.reshape(-1, 1, 8, 8) * 15.9).astype(np.uint8)


@pytest.fixture(scope="session")
def mislabelled():
    return MislabelledDigits(seed=0)


@pytest.fixture(scope="session")
def audited(mislabelled):
    return volmin.audit(mislabelled.labels, probs=mislabelled.probs, random_state=0)


@pytest.fixture
def exact():
    """Three classes that separate in most rows: clean posteriors, T, true and noisy labels."""
    generator = np.random.default_rng(0)
    T = np.array([[0.8, 0.1, 0.0], [0.2, 0.6, 0.1], [0.0, 0.3, 0.9]])
    h = generator.dirichlet(np.full(3, 0.1), 1500)
    clean = (generator.random((1500, 1)) > h.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return h, T, clean, noise.corrupt(clean, T, seed=1)
