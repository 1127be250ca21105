import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmin.auditing.judges import cross_fit, deal, named_model, noisy_posteriors, repeated_rows


def test_every_class_is_spread_over_the_folds_and_copies_stay_together():
    codes = np.repeat([0, 1, 2], [50, 20, 2])
    row = np.arange(72)
    row[[10, 60]] = 5  # rows 10 and 60 repeat row 5, under whatever label
    fold = deal(codes, row, 5, np.random.default_rng(0))
    assert fold[5] == fold[10] == fold[60]
    for code in (0, 1):
        counts = np.bincount(fold[codes == code], minlength=5)
        assert np.ptp(counts) <= 2
    assert fold[70] != fold[71]


def test_copies_are_found_unless_rows_are_categories():
    x = np.array([[1, 2], [3, 4], [1, 2], [5, 6]], np.float32)
    assert repeated_rows(x).tolist() == [0, 1, 0, 3]
    assert repeated_rows(np.zeros((6, 2), np.float32)).tolist() == list(range(6))


def test_a_model_of_the_clean_label_is_asked_for_the_given_one():
    class Clean:
        classes_ = np.array([0, 2])
        transition_matrix_ = np.array([[0.8, 0.1], [0.2, 0.9]])

        def predict_proba(self, x):
            return np.tile([1.0, 0.0], (len(x), 1))

    assert noisy_posteriors(Clean(), np.zeros((2, 1)), 3).tolist() == [[0.8, 0, 0.2]] * 2


def test_no_row_is_judged_by_a_model_that_saw_it():
    seen = []

    class Watcher(DummyClassifier):
        def fit(self, x, y):
            self.rows = set(x[:, 0].tolist())
            return super().fit(x, y)

        def predict_proba(self, x):
            seen.append(self.rows & set(x[:, 0].tolist()))
            return super().predict_proba(x)

    x = np.arange(40, dtype=np.float32)[:, None]
    model = make_pipeline(StandardScaler(with_mean=False, with_std=False), Watcher())
    found = cross_fit(model, x, np.arange(40) % 2, 2, folds=4, seed=0, quiet=True)
    assert seen == [set()] * 4
    assert np.allclose(found.probs.sum(axis=1), 1)


@pytest.mark.parametrize(("side", "convolutional"), [(8, False), (20, True)])
def test_images_large_enough_are_judged_by_a_convolutional_network(side, convolutional):
    generator = np.random.default_rng(0)
    codes = np.arange(60) % 2
    x = generator.random((60, 1, side, side), dtype=np.float32)
    x[codes == 1, :, : side // 2] += 1
    model = named_model(None, x)
    assert (model.network is not None) == convolutional
    found = cross_fit(model.set_params(epochs=3), x, codes, 2, folds=2, seed=0, quiet=True)
    assert found.probs.shape == (60, 2)
    assert len(found.histories) == 2
