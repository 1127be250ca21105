"""What decisions about some labels say about all of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import volmin
from volmin._typing import Labels
from volmin.auditing.check import Sample, counted_interval, guessed_sample, more_decisions, powered_rate
from volmin.auditing.posterior import ReadingPosterior
from volmin.auditing.text import check_summary
from volmin.exceptions import InputError

ROWS = 4000


@pytest.fixture(scope="module")
def population():
    """Labels of which 20 % are wrong, and probabilities of that which are informative but too low."""
    generator = np.random.default_rng(0)
    risk = generator.beta(0.5, 2, ROWS)
    return risk, risk / 2, generator.random(ROWS) < risk


def decisions(wrong, count, generator):
    known = np.zeros(len(wrong), dtype=bool)
    known[generator.permutation(len(wrong))[:count]] = True
    return known, wrong[known]


@pytest.mark.parametrize("count", [20, 100, 300])
def test_interval_of_random_decisions_covers_although_the_probabilities_are_wrong(population, count):
    _, stated, wrong = population
    generator = np.random.default_rng(1)
    hits, widths = 0, []
    for _ in range(300):
        estimate, low, high = powered_rate(stated, *decisions(wrong, count, generator), level=0.95)
        assert low <= estimate <= high
        hits += low <= wrong.mean() <= high
        widths.append(high - low)
    assert hits >= 0.92 * 300
    if count == 300:
        lows, highs = zip(
            *(counted_interval(int(300 * wrong.mean()), 300, 0.95) or (0, 1) for _ in range(2)), strict=True
        )
        assert np.mean(widths) < highs[0] - lows[0]


@pytest.mark.parametrize("count", [20, 300])
def test_weighted_rates_cover_the_weighted_share(population, count):
    risk, stated, wrong = population
    generator = np.random.default_rng(2)
    weights = np.where(risk > 0.2, 4.0, 1.0)  # wrong labels weigh more
    truth = float(np.average(wrong, weights=weights))
    assert truth > wrong.mean() + 0.1
    hits = 0
    for _ in range(200):
        estimate, low, high = powered_rate(stated, *decisions(wrong, count, generator), level=0.95, weights=weights)
        assert low <= estimate <= high
        hits += low <= truth <= high
    assert hits >= 0.92 * 200


def test_weights_of_an_audit_reach_the_check(mislabelled, audited):
    """A row of weight 2 counts like two rows: in the share of wrong labels, its interval and T, not in precision."""
    generator = np.random.default_rng(3)
    labels, probs, clean = mislabelled.labels, mislabelled.probs, mislabelled.clean
    heavy = labels != clean
    plain = audited
    weighted = volmin.audit(labels, probs=probs, sample_weight=np.where(heavy, 3.0, 1.0), random_state=0)
    truth = [
        int(label) if chosen else None for label, chosen in zip(clean, generator.random(len(clean)) < 0.3, strict=True)
    ]
    first, second = (found.check(truth, sample="random") for found in (plain, weighted))
    share = first.noise_rate
    assert second.noise_rate == pytest.approx(3 * share / (1 + 2 * share))
    assert second.noise_range[0] <= np.average(heavy, weights=np.where(heavy, 3.0, 1.0)) <= second.noise_range[1]
    assert first.noise_range[1] < second.noise_range[0]
    assert np.diag(second.transition).mean() < np.diag(first.transition).mean()
    assert (first.precision, first.recall, first.flagged) == (second.precision, second.recall, second.flagged)
    flagged = [int(clean[row]) if row in set(plain.issues()[:40].tolist()) else None for row in range(len(clean))]
    assert (
        weighted.check(flagged, sample="flagged").noise_range[1] > plain.check(flagged, sample="flagged").noise_range[1]
    )


def test_decisions_that_all_agree_leave_an_interval():
    known = np.zeros(1000, dtype=bool)
    known[:50] = True
    _, low, high = powered_rate(np.zeros(1000), known, np.zeros(50, dtype=bool), level=0.95)
    assert low == 0
    assert 0.02 < high < 0.15


@given(st.integers(0, 40), st.integers(1, 40))
def test_counted_interval_contains_the_share(count, more):
    low, high = counted_interval(count, count + more, 0.9) or (2, -1)
    assert 0 <= low <= count / (count + more) <= high <= 1


def test_flagged_decisions_are_told_from_random_ones():
    flags = np.arange(100) < 20
    known = np.zeros(100, dtype=bool)
    known[:10] = True
    assert guessed_sample(flags, known) == "flagged"
    known[90] = True  # ten of eleven rows are flagged, of a fifth of all
    assert guessed_sample(flags, known) == "flagged"
    known[:] = np.arange(100) % 3 == 0
    assert guessed_sample(flags, known) == "random"
    assert guessed_sample(flags, np.ones(100, dtype=bool)) == "random"


def test_number_of_further_decisions_falls_as_the_interval_narrows():
    unsure = np.full(10_000, 0.2)
    alike = np.stack([unsure, unsure], axis=1)
    needed = more_decisions(unsure, alike, 0.95)
    assert needed == pytest.approx(4 * 0.2 * 0.8 * (1.96 / 0.05) ** 2, abs=2)
    assert more_decisions(unsure, np.stack([unsure, np.full(10_000, 0.4)], axis=1), 0.95) > needed
    assert more_decisions(unsure, alike, 0.95, 400, 0.08) < more_decisions(unsure, alike, 0.95, 200, 0.12)
    assert more_decisions(unsure, alike, 0.95, 1000, 0.05) == 0


class HardLabels:
    """Examples with one right label each; labels of hard ones are often wrong."""

    def __init__(self):
        generator = np.random.default_rng(4)
        self.clean = generator.integers(0, 3, 3000)
        other = (self.clean + generator.integers(1, 3, 3000)) % 3
        doubt = np.where(generator.random(3000) < 0.4, generator.uniform(0.05, 0.4, 3000), 0.002)
        probs = np.full((3000, 3), 1e-3)
        probs[np.arange(3000), other] += doubt
        probs[np.arange(3000), self.clean] += 1 - doubt
        self.labels = np.where(generator.random(3000) < doubt, other, self.clean)
        self.audit = volmin.audit(self.labels, probs=probs / probs.sum(axis=1, keepdims=True), random_state=0)


@pytest.fixture(scope="module")
def hard():
    return HardLabels()


def known_labels(hard, rows):
    clean = np.full(len(hard.labels), np.nan)
    clean[rows] = hard.clean[rows]
    return clean


def test_random_decisions_choose_the_right_reading(hard):
    rows = np.random.default_rng(0).permutation(3000)[:200]
    check = hard.audit.check(known_labels(hard, rows))
    assert check.sample == "random"
    low, high = check.noise_range
    assert low <= (hard.labels != hard.clean).mean() <= high
    assert high - low < hard.audit.noise_range[1] - hard.audit.noise_range[0]
    by_weight = dict(zip(check.reading_weights, check.reading_probabilities, strict=True))
    assert by_weight[0.0] < 0.01
    assert sum(by_weight.values()) == pytest.approx(1)
    mean, low, high = check.reading_weight
    assert 0.3 < low < mean < high <= 1


def test_flagged_decisions_state_the_share_of_correct_labels(hard):
    rows = hard.audit.issues()[:80]
    check = hard.audit.check(known_labels(hard, rows))
    assert check.sample == "flagged"
    assert check.correct_range is not None
    low, high = check.correct_range
    flagged = hard.audit.issues()
    assert low <= (hard.labels[flagged] == hard.clean[flagged]).mean() <= high
    assert check.noise_range[0] <= check.noise_rate_estimate <= check.noise_range[1]


@pytest.mark.parametrize("count", [50, 100, 300])
def test_interval_after_the_most_suspicious_rows_contains_the_noise_rate(hard, count):
    check = hard.audit.check(known_labels(hard, hard.audit.issues()[:count]))
    assert check.sample == "flagged"
    low, high = check.noise_range
    assert low <= (hard.labels != hard.clean).mean() <= high
    assert high - low < 0.25


def test_decisions_about_all_rows_leave_no_doubt():
    generator = np.random.default_rng(0)
    wrong = generator.random(50) < 0.3
    posterior = ReadingPosterior.of(generator.random((50, 2)), np.ones(50, dtype=bool), wrong)
    assert posterior.wrong_share(np.arange(50), 0.95) == pytest.approx((wrong.mean(),) * 3)


def test_rows_that_were_not_decided_follow_the_right_reading():
    """Of rows that are wrong with 10 % or 90 %, as the readings say, the decisions tell the share among the others."""
    generator = np.random.default_rng(1)
    for weight in (0, 1):
        by_reading = np.tile([0.1, 0.9], (2000, 1))
        wrong = generator.random(2000) < by_reading[:, weight]
        known = np.arange(2000) < 200
        posterior = ReadingPosterior.of(by_reading, known, wrong[known])
        mean, low, high = posterior.wrong_share(np.flatnonzero(~known), 0.95)
        assert low <= wrong[~known].mean() <= high
        assert abs(posterior.weight(0.95)[0] - weight) < 0.35
        assert low < mean < high


def test_saved_audit_can_be_checked(hard, tmp_path):
    hard.audit.save(tmp_path)
    again = volmin.Audit.load(tmp_path)
    rows = np.random.default_rng(0).permutation(3000)[:200]
    clean = [str(hard.clean[row]) if row in set(rows.tolist()) else None for row in range(3000)]
    check = again.check(clean)
    before = hard.audit.check(known_labels(hard, rows))
    assert check.noise_range == pytest.approx(before.noise_range)
    np.testing.assert_allclose(check.reading_probabilities, before.reading_probabilities)
    assert again.decisions_needed == hard.audit.decisions_needed > 30
    assert [finding.code for finding in again.findings] == [finding.code for finding in hard.audit.findings]
    assert list(again.judges) == list(hard.audit.judges)


def test_unknown_sample_is_rejected(hard):
    with pytest.raises(InputError, match="random, flagged"):
        hard.audit.check(known_labels(hard, [0]), sample="all")


def test_error_of_t_is_stated_for_random_rows_only():
    generator = np.random.default_rng(0)
    clean = np.arange(600) % 3
    labels = np.where(generator.random(600) < 0.1, (clean + 1) % 3, clean)
    probs = np.where(clean[:, None] == np.arange(3), 0.88, 0.02)
    probs[np.arange(600), (clean + 1) % 3] = 0.1
    audit = volmin.audit(labels, probs=probs, random_state=0)
    samples: dict[Sample, Labels] = {"random": generator.permutation(600)[:100], "flagged": audit.issues()[:50]}
    for sample, rows in samples.items():
        known = np.full(600, np.nan)
        known[rows] = clean[rows]
        assert ("the error of T is" in check_summary(audit.check(known, sample=sample))) == (sample == "random")
