import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from volmin import noise
from volmin.auditing import crossfit, judges
from volmin.auditing.crossfit import HeldOut, cross_fit, training_rows
from volmin.auditing.judges import judge, mixture_weights, resolve_models, stack
from volmin.data import folds
from volmin.data.folds import assign_folds, first_copies
from volmin.transition import transition_error


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


def test_digests_find_the_same_copies_as_comparing(monkeypatch):
    x = np.random.default_rng(0).integers(0, 3, (400, 8)).astype(np.float32)
    expected = first_copies(x)
    assert (expected != np.arange(400)).any()
    monkeypatch.setattr(folds, "MOST_COMPARED", 10)
    np.testing.assert_array_equal(first_copies(x), expected)


def test_models_are_fitted_to_a_sample_of_many_rows(monkeypatch):
    labels = np.repeat([0, 1, 2], [6000, 3000, 40])
    usable = np.arange(9040) % 5 != 0
    generator = np.random.default_rng(0)
    assert len(training_rows(usable, labels, generator)) == usable.sum()
    monkeypatch.setattr(crossfit, "MOST_TRAINED", 1000)
    rows = training_rows(usable, labels, generator)
    assert usable[rows].all()
    assert len(np.unique(rows)) == len(rows)
    # The frequent classes keep their shares, and the rare one keeps all its rows.
    assert np.bincount(labels[rows]).tolist() == [664, 332, 32]


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
    found = cross_fit({"watcher": model}, x, np.arange(40) % 2, 2, folds=4, random_state=0)["watcher"]
    assert seen == [set()] * 4
    assert np.allclose(found.probs.sum(axis=2), 1)


def test_a_fold_is_the_same_whatever_else_is_fitted():
    generator = np.random.default_rng(4)
    x = generator.normal(size=(60, 3)).astype(np.float32)
    labels = generator.integers(0, 2, 60)
    models = {name: resolve_models(name, len(x), x.shape[1:], 2)[name] for name in ("logistic", "forest")}
    every = cross_fit(models, x, labels, 2, folds=3, random_state=0)["forest"]
    alone = {"forest": models["forest"].set_params(n_estimators=300)}
    first, rest = (
        cross_fit(alone, x, labels, 2, folds=3, parts=parts, random_state=0)["forest"] for parts in ([0], [1, 2])
    )
    assert 0 < first.probs[0].any(axis=1).sum() < 60
    np.testing.assert_array_equal(first.with_folds(rest).probs, every.probs)


@pytest.mark.parametrize("most", [20_000, 800])
def test_judges_that_lose_on_the_first_fold_are_not_fitted_to_the_others(most, monkeypatch):
    monkeypatch.setattr(judges, "SCREENED_ROWS", most)
    monkeypatch.setattr(crossfit, "MOST_LIGHT", 10**9)  # so that the fits are counted in this process
    fitted = []

    class Watcher(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            fitted.append(len(X))
            return super().fit(X, y, sample_weight)

    labels = np.arange(1200) % 3
    x = (np.random.default_rng(3).normal(size=(1200, 4)) + 2 * labels[:, None]).astype(np.float32)
    models = {"watcher": Watcher(), "logistic": resolve_models("logistic", len(x), x.shape[1:], 3)["logistic"]}
    judged = judge(models, x, labels, 3, folds=4, random_state=0)
    assert fitted == [min(most, 1200) * 3 // 4]
    assert [entry.name for entry in judged.judges] == ["logistic"]
    assert np.allclose(judged.probs.sum(axis=1), 1)
    alone = judge({"logistic": models["logistic"]}, x, labels, 3, folds=4, random_state=0)
    np.testing.assert_allclose(judged.probs, alone.probs)


@pytest.mark.parametrize(("side", "convolutional"), [(8, False), (20, True)])
def test_large_images_get_a_convolutional_network(side, convolutional):
    generator = np.random.default_rng(0)
    codes = np.arange(60) % 2
    x = generator.random((60, 1, side, side), dtype=np.float32)
    x[codes == 1, :, : side // 2] += 1
    model = resolve_models("network", len(x), x.shape[1:], 2)["network"]
    assert callable(model.network) == convolutional
    found = cross_fit({"net": model.set_params(epochs=3)}, x, codes, 2, folds=2, random_state=0)["net"]
    assert found.probs.shape == (1, 60, 2)
    assert found.clean
    assert len(found.histories) == 2


def test_mixture_weights_recover_a_known_mixture():
    generator = np.random.default_rng(0)
    models = generator.dirichlet(np.ones(4), size=(3, 20_000))
    true = np.array([0.6, 0.0, 0.4])
    mixed = np.einsum("k,knc->nc", true, models)
    labels = (generator.random((20_000, 1)) < mixed.cumsum(axis=1)).argmax(axis=1)
    likelihoods = models[:, np.arange(20_000), labels].T
    assert np.allclose(mixture_weights(likelihoods), true, atol=0.03)


def test_one_transition_for_all_folds_is_fitted_to_a_clean_posterior():
    generator = np.random.default_rng(1)
    T = noise.pair(3, 0.3)
    h = generator.dirichlet([0.2] * 3, size=30_000)
    labels = (generator.random((30_000, 1)) < (h @ T.T).cumsum(axis=1)).argmax(axis=1)
    found = stack({"net": HeldOut(h[None], clean=True)}, labels)
    estimate = np.linalg.lstsq(h, found.probs, rcond=None)[0].T
    assert transition_error(T, estimate / estimate.sum(axis=0)) < 0.05


def test_a_judge_of_noise_gets_no_weight_and_the_best_penalty_is_kept():
    generator = np.random.default_rng(2)
    labels = generator.integers(0, 3, 3000)
    good = np.full((3000, 3), 0.1)
    good[np.arange(3000), labels] = 0.8
    flat = generator.dirichlet(np.ones(3), size=3000)
    judged = stack(
        {
            "boosting": HeldOut(flat[None]),
            "logistic, C = 1": HeldOut(good[None]),
            "logistic, C = 0.1": HeldOut(flat[None]),
        },
        labels,
    )
    assert [(entry.name, entry.weight) for entry in judged.judges] == [("logistic, C = 1", 1.0)]
    assert judged.judges[0].agreement == 1
    assert judged.judges[0].log_likelihood > np.log(0.8)


def test_cross_fitting_is_repeated_for_few_rows():
    generator = np.random.default_rng(3)
    labels = np.arange(90) % 3
    x = (generator.normal(size=(90, 4)) + 3 * labels[:, None]).astype(np.float32)
    models = {
        name: model for name, model in resolve_models("auto", len(x), x.shape[1:], 3).items() if name != "network"
    }
    judged = judge(models, x, labels, 3, folds=3, random_state=0)
    assert judged.repeated.shape == (3, 90, 3)
    assert np.allclose(judged.repeated.mean(axis=0), judged.probs)
    assert sum(entry.weight for entry in judged.judges) == pytest.approx(1)
