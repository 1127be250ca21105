import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, make_blobs
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from volmin import NoisyLabelClassifier, noise, transition_error

NAMES = np.array(["ant", "bee", "cat"])


def noisy_blobs(count=900, rate=0.3, seed=0):
    """Three separated blobs with animal names as labels and pair noise."""
    X, clean = make_blobs(count, centers=3, cluster_std=0.8, center_box=(-20, 20), random_state=4)[:2]
    clean = np.asarray(clean)
    return X, NAMES[noise.corrupt(clean, noise.pair(3, rate), seed)], NAMES[clean]


@parametrize_with_checks([NoisyLabelClassifier(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_T_and_clean_labels_are_recovered_for_any_label_type():
    X, y, clean = noisy_blobs()
    classifier = NoisyLabelClassifier(epochs=40, random_state=0).fit(X, y)
    assert classifier.classes_.tolist() == NAMES.tolist()
    assert (classifier.predict(X) == clean).mean() > 0.98
    T = classifier.transition_matrix_
    assert T is not None
    assert transition_error(noise.pair(3, 0.3), T) < 0.15
    assert T[1, 0] > 0.2 > T[0, 1], "ants are called bees, not the other way round"
    assert classifier.score(X, clean) > 0.98
    assert len(classifier.history_) == 40


def test_features_are_standardised():
    X, y, clean = noisy_blobs()
    X = np.asarray(X) * [1e6, 1e-6]
    scaled = NoisyLabelClassifier(epochs=30, random_state=0).fit(X, y)
    assert (scaled.predict(X) == clean).mean() > 0.98


def test_cross_entropy_has_no_transition_matrix():
    X, y, _ = noisy_blobs(200)
    assert NoisyLabelClassifier("cross_entropy", epochs=2).fit(X, y).transition_matrix_ is None


def test_pipeline_grid_search_and_cross_validation():
    X, y, clean = noisy_blobs(400)
    pipeline = make_pipeline(StandardScaler(), NoisyLabelClassifier(epochs=20, random_state=0))
    assert np.mean(cross_val_predict(pipeline, X, y, cv=2) == clean) > 0.95
    grid = GridSearchCV(
        NoisyLabelClassifier(epochs=5, random_state=0), {"options": [{"lam": 0}, {"lam": 1e-3}], "lr": [0.05]}, cv=2
    )
    assert grid.fit(X, y).best_estimator_.transition_matrix_.shape == (3, 3)


def test_options_can_be_searched_one_by_one():
    X, y, _ = noisy_blobs(200)
    classifier = NoisyLabelClassifier(epochs=2, options={"shared_level": True}, random_state=0)
    search = GridSearchCV(classifier, {"options__lam": [0.0, 1e-3]}, cv=2).fit(X, y)
    assert search.best_params_["options__lam"] in (0.0, 1e-3)
    assert search.best_estimator_.options == {"shared_level": True, **{"lam": search.best_params_["options__lam"]}}
    assert classifier.options == {"shared_level": True}, "the caller's dictionary is unchanged"
    assert classifier.get_params()["options__shared_level"] is True


def test_given_module_keeps_its_weights():
    X, y, _ = noisy_blobs(200)
    net = nn.Linear(2, 3)
    classifier = NoisyLabelClassifier(network=net, epochs=1, lr=0.0, weight_decay=0.0, random_state=0).fit(X, y)
    trained = classifier.method_.net
    assert trained is not net
    assert torch.equal(trained.get_parameter("weight"), net.weight)


@pytest.mark.parametrize("method", ["mentornet", "co_teaching", "co_teaching_plus"])
def test_methods_train_by_the_settings_of_their_authors(method):
    """With noisy-validation loss these selected the first epoch and predicted one class, or diverged."""
    X, clean = load_digits(return_X_y=True)
    y = noise.corrupt(clean, noise.pair(10, 0.25), 0)
    classifier = NoisyLabelClassifier(method, epochs=25, random_state=0).fit(X / 16, y)
    assert (classifier.predict(X / 16) == clean).mean() > 0.8
    assert len(np.unique(classifier.predict(X / 16))) == 10


def test_user_network_on_images():
    torch.manual_seed(0)  # a given module keeps its weights
    generator = np.random.default_rng(0)
    clean = np.arange(300) % 2
    X = generator.normal(size=(300, 1, 6, 6)) + 3 * clean[:, None, None, None]
    y = noise.corrupt(clean, noise.symmetric(2, 0.2), 0)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 2))
    before = [p.detach().clone() for p in net.parameters()]
    classifier = NoisyLabelClassifier(network=net, epochs=15, lr=0.01, random_state=1).fit(X, y)
    assert (classifier.predict(X) == clean).mean() > 0.95
    assert all(torch.equal(p, q) for p, q in zip(before, net.parameters(), strict=True)), (
        "the user's network is unchanged"
    )
    made = NoisyLabelClassifier(
        network=lambda shape, num_classes: nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), num_classes)),
        epochs=3,
    )
    assert made.fit(X, y).predict_proba(X).shape == (300, 2)


@pytest.mark.parametrize("network", [lambda: nn.Linear(2, 3), lambda *, bias=False: nn.Linear(2, 3, bias)])
def test_function_without_arguments_may_make_the_network(network):
    X, y, _ = noisy_blobs(60)
    assert NoisyLabelClassifier(network=network, epochs=1).fit(X, y).predict_proba(X).shape == (60, 3)


def test_same_seed_gives_the_same_bits():
    X, y, _ = noisy_blobs(200)
    first, again, other = (NoisyLabelClassifier(epochs=3, random_state=s).fit(X, y).predict_proba(X) for s in (0, 0, 1))
    assert first.tobytes() == again.tobytes()
    assert not np.allclose(first, other)


def test_fifty_rows():
    X, y, clean = noisy_blobs(50, rate=0.2)
    assert (NoisyLabelClassifier(random_state=0).fit(X, y).predict(X) == clean).mean() > 0.85


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "magic"}, "Unknown method 'magic'"),
        ({"options": {"lamda": 1}}, "VolMinNet has no option 'lamda'. It has: lam, init, shared_level"),
        ({"options": {"shared_level": 1}}, "shared_level of VolMinNet takes bool, but was given 1"),
        ({"options": {"init": "low"}}, "init of VolMinNet takes float | None, but was given 'low'"),
        ({"method": "mentornet", "options": {"curriculum": "easy"}}, "curriculum of MentorNet takes"),
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"validation_fraction": 1.0}, r"validation_fraction must be in \[0, 1\)"),
        ({"selection": "best"}, "selection must be one of"),
        ({"device": "abacus"}, "Unknown device 'abacus'"),
    ],
)
def test_invalid_settings_are_rejected(changes, message):
    X, y, _ = noisy_blobs(60)
    with pytest.raises(ValueError, match=message):
        NoisyLabelClassifier(**changes).fit(X, y)


def test_invalid_data_is_rejected():
    X, y, _ = noisy_blobs(60)
    with pytest.raises(ValueError, match="name of a method must be text"):
        NoisyLabelClassifier(method=["volminnet"]).fit(X, y)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="one class only"):
        NoisyLabelClassifier().fit(X, np.full(60, "a"))
    with pytest.raises(ValueError, match="NaN"):
        NoisyLabelClassifier().fit(np.where(np.asarray(X) > 5, np.nan, X), y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        NoisyLabelClassifier().fit(X, y[:-1])


def test_tensors_with_gradients_are_accepted():
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.arange(40) % 2
    classifier = NoisyLabelClassifier(epochs=1, random_state=0, device="cpu").fit(x, y)
    assert classifier.predict_proba(x).shape == (40, 2)
