import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import minimize

from volmin import noise
from volmin.identifiability import bracket, scatter
from volmin.intervals import (
    _HeadAndTransition,
    _standardised,
    binomial_interval,
    bootstrap_intervals,
    conditional_intervals,
    noise_bounds,
)
from volmin.lbfgs import minimise_rows

HEAD = 3.0 * np.array([[1.0, 0.0, 0.5], [-0.5, 0.9, 0.0], [-0.5, -0.9, -0.5]])
T = np.array([[0.75, 0.2, 0.05], [0.05, 0.7, 0.25], [0.2, 0.1, 0.7]])


def simulate(num_rows=1500, seed=0):
    """Features, the clean posteriors of a linear model, and noisy labels."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(num_rows, 3))
    scores = np.exp(x @ HEAD.T)
    h = scores / scores.sum(axis=1, keepdims=True)
    clean = (generator.random((num_rows, 1)) > h.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return x, h, noise.corrupt(clean, T, seed=seed)


@pytest.fixture(scope="module")
def intervals():
    x, _, y = simulate()
    return bootstrap_intervals(x, y, replicas=20)


def inside(interval, truth):
    return (interval.low <= truth) & (truth <= interval.high)


def test_intervals_cover_the_truth(intervals):
    _, h, _ = simulate()
    assert inside(intervals.transition, T).mean() >= 8 / 9
    assert inside(intervals.class_noise_rates, 1 - np.diag(T)).mean() >= 2 / 3
    assert inside(intervals.class_priors, h.mean(axis=0)).all()
    assert inside(intervals.noise_rate, 1 - h.mean(axis=0) @ np.diag(T))
    assert not intervals.conditional


def test_intervals_have_the_expected_width(intervals):
    width = intervals.class_noise_rates.high - intervals.class_noise_rates.low
    assert np.all((width > 0.04) & (width < 0.25))
    assert 0.02 < intervals.noise_rate.high - intervals.noise_rate.low < 0.15


def test_intervals_are_consistent_with_each_other(intervals):
    estimate = intervals.transition.estimate
    np.testing.assert_allclose(estimate.sum(axis=0), 1)
    np.testing.assert_allclose(intervals.class_noise_rates.estimate, 1 - np.diag(estimate))
    assert intervals.class_priors.estimate.sum() == pytest.approx(1)
    for part in (intervals.transition, intervals.class_priors, intervals.noise_rate):
        assert np.all((part.low >= 0) & (part.low <= part.estimate))
        assert np.all((part.estimate <= part.high) & (part.high <= 1))


def test_intervals_are_reproducible_and_independent_of_the_start(intervals):
    x, _, y = simulate()
    again = bootstrap_intervals(torch.from_numpy(x), torch.from_numpy(y), replicas=20)
    np.testing.assert_array_equal(again.transition.low, intervals.transition.low)
    restarted = bootstrap_intervals(x, y, T=noise.symmetric(3, 0.1), replicas=20)
    np.testing.assert_allclose(restarted.transition.estimate, intervals.transition.estimate, atol=2e-3)
    np.testing.assert_allclose(restarted.transition.high, intervals.transition.high, atol=1e-2)


def test_conditional_intervals_are_narrower(intervals):
    _, h, y = simulate()
    given = conditional_intervals(h, y, replicas=20)
    assert given.conditional
    assert inside(given.class_noise_rates, 1 - np.diag(T)).all()
    narrow = given.class_noise_rates.high - given.class_noise_rates.low
    wide = intervals.class_noise_rates.high - intervals.class_noise_rates.low
    assert narrow.mean() < wide.mean()
    centred = conditional_intervals(h, y, T, replicas=20)
    np.testing.assert_array_equal(centred.transition.estimate, T)


def test_width_shrinks_with_the_square_root_of_the_rows():
    width = []
    for num_rows in (1000, 16_000):
        _, h, y = simulate(num_rows)
        rate = conditional_intervals(h, y, replicas=40).noise_rate
        width.append(rate.high - rate.low)
    assert width[1] == pytest.approx(width[0] / 4, rel=0.4)


def test_noise_bounds_are_the_bracket_unless_T_is_identified(intervals):
    scattered, narrow = scatter(np.eye(3), bootstraps=0), scatter(0.4 * np.eye(3) + 0.2, bootstraps=0)
    fallback = bracket(0.4 * np.eye(3) + 0.2)
    bounds = noise_bounds(scattered, intervals, fallback)
    np.testing.assert_array_equal(bounds[:, 0], intervals.class_noise_rates.low)
    np.testing.assert_array_equal(noise_bounds(narrow, intervals, fallback), fallback)
    np.testing.assert_array_equal(noise_bounds(scattered, None, fallback), fallback)


def test_fit_reaches_the_minimum_found_by_scipy():
    x, _, y = simulate(400)
    model = _HeadAndTransition(_standardised(x), torch.from_numpy(y), 3, lam=1e-3, ridge=1e-3)
    ones = torch.ones(1, 400, dtype=torch.float64)
    found = minimise_rows(lambda p: model.loss(p, ones), model.start(None), 300)
    start = model.start(None).numpy()[0]
    best = minimize(lambda p: model.loss(torch.from_numpy(p)[None], ones).item(), start, method="L-BFGS-B")
    assert model.loss(found, ones).item() <= best.fun + 1e-6


@pytest.mark.parametrize(
    ("features", "labels", "options", "complaint"),
    [
        (np.ones((4, 2, 2)), [0, 1, 0, 1], {}, "features.*shape"),
        ([[np.nan], [1.0]], [0, 1], {}, "features contain NaN"),
        (np.ones((4, 2)), [0, 1, 0], {}, r"shape \(4,\), but have shape \(3,\)"),
        (np.ones((4, 2)), [0, 1, 0, 2], {"num_classes": 2}, r"0\.\.1"),
        (np.ones((4, 2)), [0, 0, 0, 0], {}, "2 classes"),
        (np.ones((2, 2)), [0, 2], {}, "as many rows"),
        (np.ones((4, 2)), [0, 1, 0, 1], {"replicas": 3}, "replicas"),
        (np.ones((4, 2)), [0, 1, 0, 1], {"level": 95}, "level"),
        (np.ones((4, 2)), [0, 1, 0, 1], {"T": np.eye(3)}, "3 classes"),
        (np.ones((4, 2)), [], {}, "labels"),
        (np.ones((4, 2)), ["a", "b", "a", "b"], {}, "labels"),
    ],
)
def test_invalid_input_is_rejected(features, labels, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        bootstrap_intervals(features, labels, **options)


def test_invalid_posteriors_are_rejected():
    with pytest.raises(ValueError, match="clean_probs must sum to one"):
        conditional_intervals([[0.7, 0.7]], [0])


@pytest.mark.parametrize(("errors", "rows"), [(0, 100), (100, 100), (3, 50), (40, 90)])
def test_binomial_interval_equals_wilson_and_has_a_width(errors, rows):
    low, high = binomial_interval(errors / rows, rows)
    expected = stats.binomtest(errors, rows).proportion_ci(method="wilson")
    assert (float(low), float(high)) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert low <= errors / rows <= high
    assert high - low > 0.03


def test_binomial_interval_of_no_rows_is_everything():
    low, high = binomial_interval([0.0, 0.5], [0, 0])
    assert low.tolist() == [0, 0]
    assert high.tolist() == [1, 1]
