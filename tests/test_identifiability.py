import dataclasses
import importlib.util
import re
import sys
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from volmin import noise
from volmin.exceptions import InputError
from volmin.identifiability import (
    TOLERANCES,
    Verdict,
    bracket,
    certificate,
    common_transition_test,
    dominance_test,
    hull,
    scatter,
)


def capped(num_classes, a):
    """The vertices of {v in simplex : max v <= a}, whose scatter index is C a - 1."""
    full = int(1 / a + 1e-9)
    values = [a] * full + ([1 - full * a] if 1 - full * a > 1e-9 else [])
    rows = set()
    for places in permutations(range(num_classes), len(values)):
        row = [0.0] * num_classes
        for place, value in zip(places, values, strict=True):
            row[place] = value
        rows.add(tuple(row))
    return np.array(sorted(rows))


def surrounded(h, point):
    """Whether the point lies in the convex hull of the rows."""
    weights = linprog(np.zeros(len(h)), A_eq=np.r_[h.T, [np.ones(len(h))]], b_eq=[*point, 1.0])
    return weights.status == 0


def draw_labels(h, T, seed):
    generator = np.random.default_rng(seed)
    return (generator.random((len(h), 1)) > (h @ T.T).cumsum(axis=1)[:, :-1]).sum(axis=1)


@pytest.mark.parametrize(
    ("num_classes", "a"),
    [(3, 0.6), (3, 2 / 3), (3, 0.7), (3, 0.9), (5, 0.35), (5, 0.5), (5, 0.9), (7, 0.25), (7, 0.4), (7, 0.8)],
)
def test_index_of_capped_posteriors_is_exact(num_classes, a):
    found = scatter(capped(num_classes, a), bootstraps=0)
    assert found.index == pytest.approx(num_classes * a - 1, abs=1e-6)
    assert found.exact
    assert found.holds == (num_classes * a - 1 > 1 + 1e-6)
    assert found.refuted == (not found.holds)


@pytest.mark.parametrize(("num_classes", "a"), [(8, 0.2), (10, 0.18), (10, 0.3), (10, 0.65), (30, 0.55)])
def test_search_finds_the_index_of_capped_posteriors(num_classes, a):
    found = scatter(capped(num_classes, a), bootstraps=0)
    assert found.index == pytest.approx(num_classes * a - 1, rel=0.01)
    assert found.holds == (num_classes * a > 2)
    assert found.refuted == (num_classes * a < 2)


def test_search_handles_a_hundred_classes():
    generator = np.random.default_rng(0)
    pattern = np.r_[np.full(55, 0.018), 0.01, np.zeros(44)]
    found = scatter([generator.permutation(pattern) for _ in range(600)], bootstraps=0, tolerance=0)
    assert found.index == pytest.approx(0.8, rel=0.01)
    assert found.refuted


def test_anchor_points_have_the_largest_index():
    for num_classes in (2, 3, 6, 9, 50):
        found = scatter(np.eye(num_classes), bootstraps=0)
        assert found.index == num_classes - 1
        assert found.holds
        assert found.verdict is Verdict.WELL_IDENTIFIED
        assert found.score == pytest.approx(1 if num_classes > 2 else 0)


def test_two_classes_require_anchor_points():
    found = scatter([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]], bootstraps=0)
    assert found.index == pytest.approx(0.6)
    assert found.refuted
    assert found.per_class.failing == (0, 1)
    assert scatter([[0.995, 0.005], [0.0, 1.0]], bootstraps=0).holds


@pytest.mark.parametrize("num_classes", [2, 3, 8])
def test_posteriors_that_do_not_span_the_simplex_have_index_zero(num_classes):
    constant = np.full((20, num_classes), 1 / num_classes)
    few = np.eye(num_classes)[: num_classes - 1]
    for posteriors in (constant, few):
        found = scatter(posteriors)
        assert found.index == 0
        assert found.refuted
        assert found.score == -np.inf
        assert found.verdict is Verdict.NOT_IDENTIFIED


def test_hull_without_the_barycentre_has_index_zero():
    h = np.random.default_rng(0).dirichlet([50, 5, 5, 5], 200)
    found = scatter(h)
    assert found.index == 0
    assert found.refuted


def test_witness_and_missing_point_prove_the_failure():
    h = np.random.default_rng(1).dirichlet(np.ones(5) * 2, 300)
    found = scatter(h, tolerance=0, bootstraps=0)
    assert found.refuted
    radius = found.index / np.sqrt(5 * 4)
    assert np.linalg.norm(found.witness) == pytest.approx(1)
    assert found.witness.sum() == pytest.approx(0, abs=1e-9)
    assert (h @ found.witness).max() == pytest.approx(radius)
    assert np.linalg.norm(found.missing - 0.2) == pytest.approx(radius)
    assert surrounded(h, 0.2 + 0.99 * (found.missing - 0.2))
    assert not surrounded(h, 0.2 + 1.01 * (found.missing - 0.2))


def test_missing_point_proves_the_margin():
    h = capped(4, 0.7)
    found = scatter(h, bootstraps=0)
    assert found.index == pytest.approx(1.8)
    assert found.missing.min() >= 0
    outwards = 0.25 + 1.01 * (found.missing - 0.25)
    assert not surrounded(h, outwards)


@pytest.mark.parametrize("num_classes", [3, 5])
def test_search_and_enumeration_agree(monkeypatch, num_classes):
    h = np.random.default_rng(2).dirichlet(np.full(num_classes, 0.5), 2000)
    exact = scatter(h, bootstraps=0)
    monkeypatch.setattr(hull, "MOST_CLASSES_ENUMERATED", 2)
    searched = scatter(h, bootstraps=0)
    assert exact.exact
    for tolerance, index in exact.profile.items():
        assert searched.profile[tolerance] == pytest.approx(index, rel=0.1)
        assert searched.profile[tolerance] >= index - 1e-6


def test_index_is_measured_at_the_tolerances_that_are_asked_for():
    h = 0.985 * capped(3, 0.9) + 0.005
    full, alone, two = (scatter(h, profile=profile) for profile in (None, (), (0.0, 0.01)))
    assert list(full.profile) == list(TOLERANCES)
    assert alone.profile == {full.tolerance: full.index}
    assert two.profile == {tau: full.profile[tau] for tau in (0.0, 0.01, full.tolerance)}
    assert alone.quantile == two.quantile == full.quantile
    with pytest.raises(InputError, match="tolerance must be at least 0"):
        scatter(h, profile=(0.5,))


def test_tolerance_replaces_the_zeros_that_a_softmax_lacks():
    h = 0.985 * capped(3, 0.9) + 0.005
    found = scatter(h, bootstraps=0)
    assert found.profile[0.0] == pytest.approx(0.985, abs=1e-6)
    assert found.profile[0.0] < 1 < found.profile[0.02]
    assert found.holds
    assert not scatter(h, tolerance=0.001, bootstraps=0).holds


@pytest.mark.parametrize("num_classes", [4, 9])
def test_failing_classes_are_reported(num_classes):
    anchors = np.eye(num_classes)
    always = 0.9 * anchors
    always[:, 2] += 0.1  # class 2 is never excluded
    found = scatter(np.r_[always, always], bootstraps=0)
    assert 2 in found.per_class.failing
    assert found.per_class.zeros[2] == 0
    assert found.refuted
    assert re.search(r"condition: .*\b2\b", found.explanation)

    never = capped(num_classes, 0.8)
    unsure = scatter(never[never[:, 1] <= 0.2001], bootstraps=0)
    assert 1 in unsure.per_class.failing
    assert unsure.refuted
    assert unsure.per_class.peak[1] == pytest.approx(0.2)


def test_bootstrap_quantile_is_lower_for_fewer_rows():
    h = np.random.default_rng(3).dirichlet(np.full(4, 0.3), 60)
    found = scatter(h)
    assert found.quantile < found.index
    assert np.isnan(scatter(h, bootstraps=0).quantile)
    many = scatter(np.repeat(h, 20, axis=0))
    assert many.quantile == pytest.approx(many.index)


@pytest.mark.parametrize(
    ("num_classes", "a", "verdict", "reason"),
    [
        (3, 0.6, Verdict.NOT_IDENTIFIED, "largest noise compatible"),
        (3, 0.7, Verdict.BORDERLINE, "scatter index 1.10"),
        (3, 0.9, Verdict.WELL_IDENTIFIED, "never prove"),
        (10, 0.28, Verdict.BORDERLINE, "scatter index 1.80"),
        (10, 0.65, Verdict.WELL_IDENTIFIED, "never prove"),
    ],
)
def test_verdict_depends_on_the_margin(num_classes, a, verdict, reason):
    found = scatter(capped(num_classes, a), bootstraps=0)
    assert found.verdict is verdict
    assert reason in found.explanation


def test_verdict_uses_the_bootstrap_quantile():
    found = scatter(capped(3, 0.9), bootstraps=0)
    assert dataclasses.replace(found, quantile=1.2).verdict is Verdict.BORDERLINE


def test_explanation_says_when_nothing_is_proved():
    found = scatter(capped(3, 0.9), bootstraps=0)
    assert "no proof" in dataclasses.replace(found, holds=False).explanation
    assert "no proof" not in found.explanation


@settings(max_examples=25, deadline=None)
@given(st.integers(3, 4), st.integers(0, 10**6), st.floats(0.1, 1.5))
def test_index_is_bounded_monotone_and_independent_of_the_class_order(num_classes, seed, concentration):
    generator = np.random.default_rng(seed)
    h = generator.dirichlet(np.full(num_classes, concentration), 40)
    found = scatter(h, tolerance=0.02, bootstraps=0)
    assert 0 <= found.index <= num_classes - 1
    renamed = scatter(h[:, generator.permutation(num_classes)], tolerance=0.02, bootstraps=0)
    assert renamed.index == pytest.approx(found.index, abs=1e-6)
    more = scatter(np.r_[h, generator.dirichlet(np.ones(num_classes), 5)], tolerance=0.02, bootstraps=0)
    assert more.index >= found.index - 1e-6
    # The inscribed ball touches each facet in its centre, which the hull contains wherever the condition holds.
    clipped = np.where(h < 0.02, 0, h)
    clipped /= clipped.sum(axis=1, keepdims=True)
    if found.holds:
        centres = (1 - np.eye(num_classes)) / (num_classes - 1)
        assert all(surrounded(clipped, centre) for centre in centres)


@pytest.mark.skipif(importlib.util.find_spec("pyscipopt") is None, reason="PySCIPOpt is optional")
def test_certificate_agrees_with_the_closed_form(monkeypatch):
    monkeypatch.setattr(hull, "_inner_cap", lambda h: 0.0)
    assert certificate(capped(8, 0.5)) is True
    assert certificate(capped(8, 0.2)) is False
    monkeypatch.setattr(hull, "MOST_CLASSES_ENUMERATED", 2)
    assert certificate(capped(4, 0.6), margin=1.3) is True  # index 1.4
    assert certificate(capped(4, 0.6), margin=1.5) is False


def test_missing_solver_is_reported(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyscipopt", None)
    with pytest.raises(InputError, match="pip install pyscipopt"):
        certificate(np.eye(8))


def test_bracket_contains_the_noise_rates():
    T = noise.pair(4, 0.3)
    h = np.random.default_rng(4).dirichlet(np.full(4, 0.1), 5000)
    bounds = bracket(h @ T.T)
    assert np.all(bounds[:, 0] == 0)
    assert np.all((bounds[:, 1] >= 0.3 - 1e-9) & (bounds[:, 1] < 0.32))
    assert np.all(bracket(h @ T.T, trim=0.2)[:, 1] >= bounds[:, 1])


def test_dominance_is_rejected_for_a_class_mostly_labelled_otherwise():
    T = np.array([[0.8, 0.1, 0.1], [0.1, 0.25, 0.1], [0.1, 0.65, 0.8]])  # class 1 is mostly labelled 2
    h = np.random.default_rng(5).dirichlet(np.full(3, 0.5), 1000)
    found = dominance_test(h, draw_labels(h, T, 6), resamples=39)
    assert found.p_value == 1 / 40
    assert found.classes == (1,)
    assert found.T[2, 1] == pytest.approx(0.65, abs=0.12)


def test_dominance_is_not_rejected_for_dominant_noise():
    h = np.random.default_rng(5).dirichlet(np.full(3, 0.5), 1000)
    found = dominance_test(h, draw_labels(h, noise.pair(3, 0.3), 7), resamples=39)
    assert found.p_value > 0.1
    assert found.classes == ()


def test_common_transition_is_rejected_only_for_groups_with_different_noise():
    h = np.random.default_rng(8).dirichlet(np.full(3, 0.5), 1500)
    groups = np.where(np.arange(1500) % 2, "web", "shop")
    mixed = np.where(groups == "web", draw_labels(h, noise.pair(3, 0.4), 9), draw_labels(h, np.eye(3), 9))
    found = common_transition_test(h, mixed, groups, resamples=39)
    assert found.p_value == 1 / 40
    assert found.classes == (0, 1, 2)
    assert found.T.shape == (2, 3, 3)
    np.testing.assert_allclose(np.diagonal(found.T, axis1=1, axis2=2), [[1] * 3, [0.6] * 3], atol=0.1)

    same = common_transition_test(h, draw_labels(h, noise.pair(3, 0.4), 10), groups, resamples=39)
    assert same.p_value > 0.05


@pytest.mark.parametrize(
    ("posteriors", "complaint"),
    [
        ([[1.5, -0.5], [0.5, 0.5]], "negative"),
        ([[0.7, 0.7]], "sum to one"),
        ([[0.5, np.nan]], "NaN"),
        ([[1.0], [1.0]], "at least 2 classes"),
        ([], "shape"),
    ],
)
def test_invalid_posteriors_are_rejected(posteriors, complaint):
    for function in (scatter, bracket):
        with pytest.raises(ValueError, match=complaint):
            function(posteriors)


def test_other_invalid_input_is_rejected():
    h = np.eye(3)
    with pytest.raises(ValueError, match="tolerance"):
        scatter(h, tolerance=0.5)
    with pytest.raises(ValueError, match="trim"):
        bracket(h, trim=1)
    with pytest.raises(ValueError, match="groups"):
        common_transition_test(h, [0, 1, 2], ["a", "a", "a"])
    with pytest.raises(ValueError, match="groups"):
        common_transition_test(h, [0, 1, 2], ["a", "b"])
    with pytest.raises(ValueError, match="groups must be of one type"):
        common_transition_test(h, [0, 1, 2], np.array(["a", None, 1], dtype=object))
    with pytest.raises(ValueError, match="resamples"):
        dominance_test(h, [0, 1, 2], resamples=5)
    with pytest.raises(ValueError, match="labels"):
        dominance_test(h, [0, 1, 3])
