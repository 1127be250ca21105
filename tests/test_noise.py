import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volmin import noise
from volmin.exceptions import VolminError

LABELS = np.tile(np.arange(10), 2)


def digits_of(text):
    return [int(d) for d in text.split()]


@pytest.mark.parametrize(
    ("T", "seed", "expected"),
    [
        (noise.symmetric(10, 0.5), 1, "8 1 8 1 4 7 5 7 8 9 0 0 2 3 6 4 3 7 7 1"),
        (noise.symmetric(10, 0.2), 1, "0 1 2 3 4 5 6 7 4 9 0 1 2 3 4 9 6 7 8 9"),
        (noise.pair(10, 0.45), 1, "0 2 2 3 4 5 6 7 8 9 1 2 3 4 4 6 6 8 9 9"),
        (noise.pair(10, 0.45), 0, "0 2 2 3 5 6 6 8 9 0 0 1 2 4 5 6 7 8 9 9"),
    ],
)
def test_authors_draw_reproduces_their_labels(T, seed, expected):
    assert noise.corrupt(LABELS, T, seed, draw="authors").tolist() == digits_of(expected)


@pytest.mark.parametrize(
    ("T", "rate"),
    [(noise.symmetric(10, 0.2), 0.20054), (noise.symmetric(10, 0.5), 0.49912), (noise.pair(10, 0.45), 0.45210)],
)
def test_authors_draw_reproduces_their_realised_rates(T, rate):
    clean = np.repeat(np.arange(10), 5000)
    assert (noise.corrupt(clean, T, 1, draw="authors") != clean).mean() == pytest.approx(rate, abs=1e-9)


@pytest.mark.parametrize("draw", ["vectorised", "authors"])
def test_frequencies_follow_the_columns_of_T(draw):
    T = noise.asymmetric(5, 0.4, seed=3)
    count = 4000
    clean = np.repeat(np.arange(5), count)
    noisy = noise.corrupt(clean, T, seed=2, draw=draw)
    for j in range(5):
        share = np.bincount(noisy[clean == j], minlength=5) / count
        assert (np.abs(share - T[:, j]) < 4.5 * np.sqrt(T[:, j] * (1 - T[:, j]) / count)).all()


@given(st.integers(2, 30), st.floats(0, 0.99), st.integers(0, 1000))
def test_matrices_are_stochastic_with_the_given_rate(num_classes, rate, seed):
    for T in (noise.symmetric(num_classes, rate), noise.asymmetric(num_classes, rate, seed)):
        assert np.allclose(T.sum(0), 1)
        assert (T >= 0).all()
        assert np.allclose(T.diagonal(), 1 - rate)


def test_pair_noise_goes_to_the_next_class_and_wraps():
    T = noise.pair(5, 0.3)
    assert T[1, 0] == 0.3
    assert T[0, 1] == 0
    assert T[0, 4] == 0.3
    assert np.linalg.det(noise.pair(4, 0.45)) == pytest.approx(0.55**4 - 0.45**4)


def test_identity_keeps_the_labels_and_input_is_not_modified():
    labels = LABELS.copy()
    assert (noise.corrupt(labels, np.eye(10), 5) == LABELS).all()
    noise.corrupt(labels, noise.pair(10, 0.5), 5)
    assert (labels == LABELS).all()


def test_specifications_give_their_matrices(tmp_path):
    assert (noise.parse("sym:0.2", 4) == noise.symmetric(4, 0.2)).all()
    assert (noise.parse("pair:0.45", 4) == noise.pair(4, 0.45)).all()
    assert (noise.parse("asym:0.3", 4, seed=7) == noise.asymmetric(4, 0.3, 7)).all()
    assert (noise.parse("clean", 4) == np.eye(4)).all()
    np.save(tmp_path / "T.npy", noise.pair(4, 0.1))
    assert (noise.parse(str(tmp_path / "T.npy"), 4) == noise.pair(4, 0.1)).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("swap:0.2", "Unknown noise 'swap:0.2'"),
        ("pair", "Unknown noise"),
        ("pair:lots", "Unknown noise"),
        ("pair:1", "below 1"),
        ("sym:-0.1", "at least 0"),
        ("nowhere.npy", "no transition matrix at nowhere.npy"),
    ],
)
def test_invalid_specifications_are_rejected(text, message):
    with pytest.raises(ValueError, match=message):
        noise.parse(text, 4)


@pytest.mark.parametrize(
    ("num_classes", "rate", "message"),
    [
        (1, 0.2, "at least 2 classes"),
        (2.5, 0.2, "num_classes is 2.5"),
        ("3", 0.2, "num_classes is '3'"),
        (3, "much", "is 'much'"),
        (3, None, "is None"),
        (3, float("nan"), "is nan"),
    ],
)
def test_invalid_arguments_are_rejected(num_classes, rate, message):
    for make in (noise.symmetric, noise.pair, noise.asymmetric):
        with pytest.raises(VolminError, match=message):
            make(num_classes, rate)


def test_pickled_matrix_is_not_loaded(tmp_path):
    np.save(tmp_path / "T.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="not a NumPy array file"):
        noise.parse(str(tmp_path / "T.npy"), 4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 4], "0..3"),
        ([-1, 0], "0..3"),
        ([0.5, 1], "integers"),
        ([[0], [1]], "one label per row"),
        (["a"], "integers"),
    ],
)
def test_invalid_labels_are_rejected(labels, message):
    with pytest.raises(ValueError, match=message):
        noise.corrupt(labels, noise.pair(4, 0.2), 0)


def test_measured_matrix_matches_a_hand_computed_example():
    clean = np.repeat([0, 1], [4, 5])
    noisy = np.array([0, 0, 0, 1, 1, 1, 2, 2, 0])
    T = noise.measured(noisy, clean, 3)
    assert np.allclose(T, [[3 / 4, 1 / 5, 0], [1 / 4, 2 / 5, 0], [0, 2 / 5, 1]])


@pytest.mark.parametrize(
    ("noisy", "clean", "message"),
    [
        ([0, 3], [0, 1], r"noisy must lie in 0\.\.2, but span 0\.\.3"),
        ([0, -1], [0, 1], "noisy must lie in"),
        ([0.5, 1], [0, 1], "noisy must be integers"),
        ([0, 1], [0], "equal length, but have 2 and 1"),
    ],
)
def test_invalid_label_pairs_are_rejected(noisy, clean, message):
    with pytest.raises(ValueError, match=message):
        noise.measured(noisy, clean, 3)
