import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmin.auditing.judges import assign_folds, cross_fit, first_copies, noisy_posteriors, resolve_model


def test_folds_are_stratified_and_keep_copies_together():
    codes = np.repeat([0, 1, 2], [50, 20, 2])
    copy_of = np.arange(72)
    copy_of[[10, 60]] = 5  # row 60 has another label
    fold = assign_folds(codes, copy_of, 5, np.random.default_rng(0))
    assert fold[5] == fold[10] == fold[60]
    for code in (0, 1):
        counts = np.bincount(fold[codes == code], minlength=5)
        assert np.ptp(counts) <= 2
    assert fold[70] != fold[71]


def test_copies_are_found_unless_most_rows_are_repeated():
    x = np.array([[1, 2], [3, 4], [1, 2], [5, 6]], np.float32)
    assert first_copies(x).tolist() == [0, 1, 0, 3]
    assert first_copies(np.zeros((6, 2), np.float32)).tolist() == list(range(6))


def test_clean_posteriors_are_converted_to_noisy_ones():
    class Clean:
        classes_ = np.array([0, 2])
        transition_matrix_ = np.array([[0.8, 0.1], [0.2, 0.9]])

        def predict_proba(self, x):
            return np.tile([1.0, 0.0], (len(x), 1))

    assert noisy_posteriors(Clean(), np.zeros((2, 1)), 3).tolist() == [[0.8, 0, 0.2]] * 2


def test_no_model_predicts_its_training_rows():
    seen = []

    class Watcher(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            self.rows = set(X[:, 0].tolist())
            return super().fit(X, y, sample_weight)

        def predict_proba(self, X):
            seen.append(self.rows & set(X[:, 0].tolist()))
            return super().predict_proba(X)

    x = np.arange(40, dtype=np.float32)[:, None]
    model = make_pipeline(StandardScaler(with_mean=False, with_std=False), Watcher())
    found = cross_fit(model, x, np.arange(40) % 2, 2, folds=4, random_state=0)
    assert seen == [set()] * 4
    assert np.allclose(found.probs.sum(axis=1), 1)


@pytest.mark.parametrize(("side", "convolutional"), [(8, False), (20, True)])
def test_large_images_get_a_convolutional_network(side, convolutional):
    generator = np.random.default_rng(0)
    codes = np.arange(60) % 2
    x = generator.random((60, 1, side, side), dtype=np.float32)
    x[codes == 1, :, : side // 2] += 1
    model = resolve_model(None, x)
    assert (model.network is not None) == convolutional
    found = cross_fit(model.set_params(epochs=3), x, codes, 2, folds=2, random_state=0)
    assert found.probs.shape == (60, 2)
    assert len(found.histories) == 2
