"""Audits of labels whose noise falls on hard examples, so that the readings of them differ."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

import volmin
from volmin import noise
from volmin.auditing.reading import DECIDED, LARGEST_GAP, OVERLAPPING, choose, decided_share
from volmin.exceptions import InputError
from volmin.io.sealed import read_sealed_json, write_sealed_json
from volmin.readings import read


class HardExamples:
    """Each example has one right label; two in five are hard, none is a tie, and a fifth of their labels are wrong."""

    def __init__(self):
        generator = np.random.default_rng(0)
        count, classes = 4000, 4
        self.clean = generator.integers(0, classes, count)
        other = (self.clean + generator.integers(1, classes, count)) % classes
        doubt = np.where(generator.random(count) < 0.4, generator.uniform(0.05, 0.35, count), 0.001)
        self.probs = np.full((count, classes), 1e-4)
        self.probs[np.arange(count), other] += doubt
        self.probs[np.arange(count), self.clean] += 1 - doubt
        self.probs /= self.probs.sum(axis=1, keepdims=True)
        self.labels = np.where(generator.random(count) < doubt, other, self.clean)
        self.wrong = self.labels != self.clean


@pytest.fixture(scope="module")
def hard():
    return HardExamples()


@pytest.fixture(scope="module")
def found(hard):
    return volmin.audit(hard.labels, probs=hard.probs, random_state=0)


def readings_of(audit):
    assert audit.readings is not None
    return audit.readings


def f1(flagged, wrong):
    return 2 * wrong[flagged].sum() / (len(flagged) + wrong.sum())


def test_range_contains_the_noise_of_hard_examples(found, hard):
    low, high = found.noise_range
    assert low < 0.5 * hard.wrong.mean()
    assert low < found.noise_rate < high
    assert low < hard.wrong.mean() < high
    assert readings_of(found).noise_rates[1] == pytest.approx(hard.wrong.mean(), abs=0.01)
    assert readings_of(found).differ
    assert readings_of(found).gap > LARGEST_GAP
    assert (found.class_noise_range[:, 0] <= found.class_noise_rates).all()
    assert (found.class_noise_rates <= found.class_noise_range[:, 1]).all()
    assert found.noise_rate == pytest.approx((1 - found.quality).mean())


def test_flags_find_the_wrong_labels_of_hard_examples(found, hard):
    flagged = found.issues()
    assert hard.wrong[flagged].mean() > 0.8
    ambiguous = volmin.audit(hard.labels, probs=hard.probs, reading="class_dependent", random_state=0)
    assert f1(flagged, hard.wrong) > max(0.7, f1(ambiguous.issues(), hard.wrong) + 0.3)
    assert (found.suggested[flagged] != found.labels[flagged]).all()
    wrong = flagged[hard.wrong[flagged]]
    assert (found.suggested[wrong] == hard.clean[wrong]).mean() > 0.95
    assert (np.diff(found.suspicion[flagged]) <= 0).all()


def test_summary_states_the_range_and_no_certainty(found, hard):
    low, high, either, one = (f"{rate:.1%}" for rate in (*found.noise_range, *readings_of(found).noise_rates))
    summary = found.summary()
    assert f"Between {low} and {high} are wrong: {either} if hard examples may rightly carry either label" in summary
    assert (
        f"{one} if each has one right label; errors of sampling and of the model widen the range. The estimates"
        in summary
    )
    assert "cannot tell which reading of hard examples is right" in summary
    first, second = readings_of(found).flagged_correct
    assert second == pytest.approx(1 - hard.wrong[found.issues()].mean(), abs=0.01)
    assert f"flagged; {second:.0%} of them are correct if each example has one right label, {first:.0%} if" in summary
    assert "cannot be known from the labels alone" in found.summary(fdr=0.1)
    for words in ("identified", "interval", "expected to be correct"):
        assert words not in summary
        assert words not in found.summary(fdr=0.1)
    assert found.intervals is None
    assert not found.identified
    assert np.array_equal(found.noise_bounds[:, 1], found.class_noise_range[:, 1])
    assert (found.noise_bounds[:, 0] <= found.class_noise_range[:, 0]).all()


def test_reading_can_be_chosen(found, hard):
    first, second = (
        volmin.audit(hard.labels, probs=hard.probs, reading=reading, random_state=0)
        for reading in ("class_dependent", "one_right_label")
    )
    assert (first.noise_rate, second.noise_rate) == pytest.approx(readings_of(found).noise_rates)
    assert second.noise_range == found.noise_range
    assert (readings_of(first).sharpness, readings_of(second).sharpness) == (1, math.inf)
    assert first.clean_probs is not None
    assert second.clean_probs is not None
    np.testing.assert_allclose(first.quality, volmin.label_quality(hard.labels, first.clean_probs, first.transition))
    assert second.transition[0, 0] == pytest.approx((hard.labels == 0)[second.clean_probs.argmax(axis=1) == 0].mean())
    assert "If each example has one right label:" in second.summary()
    assert f"If each has one right label: {second.noise_rate:.1%} are wrong." in first.summary()
    with pytest.raises(InputError, match="Choose one of: auto, class_dependent, one_right_label"):
        volmin.audit(hard.labels, probs=hard.probs, reading="both")


def test_class_dependent_noise_gives_one_number(audited, mislabelled):
    assert not readings_of(audited).differ
    assert readings_of(audited).sharpness == 1
    low, high = audited.noise_range
    assert low <= audited.noise_rate <= high
    assert audited.intervals is not None
    flagged = audited.issues()
    expected, most = audited.quality[flagged].mean(), audited.most_correct(flagged)
    assert f"about {expected:.0%} of them (at most {most:.0%}) are expected to be correct." in audited.summary()
    assert expected < most
    assert 1 - mislabelled.wrong[flagged].mean() < most
    assert audited.most_correct(np.empty(0, dtype=np.int64)) == 1
    assert f1(audited.issues(), mislabelled.wrong) > 0.95
    chosen = volmin.audit(mislabelled.labels, probs=mislabelled.probs, reading="class_dependent", random_state=0)
    assert np.array_equal(chosen.quality, audited.quality)
    assert chosen.summary() == audited.summary()


@pytest.mark.parametrize("reading", ["auto", "class_dependent", "one_right_label"])
def test_saved_audit_keeps_its_reading(hard, tmp_path, reading):
    audit = volmin.audit(hard.labels, probs=hard.probs, reading=reading, random_state=0)
    audit.save(tmp_path)
    again = volmin.Audit.load(tmp_path)
    assert again.summary() == audit.summary()
    assert again.issues().tolist() == audit.issues().tolist()
    assert again.issues(0.1).tolist() == audit.issues(0.1).tolist()
    assert readings_of(again).sharpness == readings_of(audit).sharpness
    assert again.noise_range == audit.noise_range
    assert readings_of(again).flagged_correct == readings_of(audit).flagged_correct
    content = json.loads((tmp_path / "audit.json").read_text())
    assert content["noise_range"] == list(audit.noise_range)
    assert content["readings"]["differ"]


def overlapping(rows=20_000):
    """Posteriors of two of three classes whose log-odds are uniform, and labels that are drawn from them."""
    generator = np.random.default_rng(0)
    z = generator.uniform(-8, 8, rows)
    probs = np.stack([1 / (1 + np.exp(-z)), 1 / (1 + np.exp(z)), np.zeros(rows)], axis=1)
    return probs, (generator.random(rows) > probs[:, 0]).astype(np.int64)


def test_frequent_near_ties_widen_the_range_downwards(hard):
    T = noise.symmetric(4, 0.2)
    audit = volmin.audit(noise.corrupt(hard.labels, T, seed=0), probs=hard.probs @ T.T, random_state=0)
    readings = readings_of(audit)
    first, second = readings.noise_rates
    assert audit.noise_range[0] < first - 0.01

    def with_decided(share):
        return replace(audit, readings=replace(readings, decided=share, sharpness=2.0))

    assert with_decided(0.40).noise_range == with_decided(0.7).noise_range
    low, high = with_decided(0.40).noise_range
    halfway = with_decided(0.38)
    assert not readings_of(halfway).overlapping
    assert halfway.noise_range == pytest.approx((max(0, low - (second - first) / 2), high))
    every, widened = with_decided(0.40).noise_bounds, halfway.noise_bounds
    reduced = np.diff(readings.class_noise_rates, axis=1)[:, 0] / 2
    np.testing.assert_allclose(widened[:, 0], np.maximum(0, every[:, 0] - np.maximum(0, reduced)), atol=1e-12)
    np.testing.assert_allclose(widened[:, 1], every[:, 1])
    flagged = audit.issues()
    added = (second - first) / 2 * len(audit) / len(flagged)
    certain = with_decided(0.40).most_correct(flagged)
    assert halfway.most_correct(flagged) == pytest.approx(min(1, certain + added))
    assert certain + added < 1
    overlapping = with_decided(0.36)
    assert overlapping.noise_range[0] == 0
    assert (overlapping.noise_bounds[:, 0] == 0).all()
    assert low > (second - first) / 2 > 0.02
    assert "fewer if the model is weak" in halfway.summary()
    assert "errors of sampling and of the model widen the range" in with_decided(0.40).summary()


@pytest.mark.parametrize("sharpness", [1.5, 3.0])
def test_continuous_overlap_closes_the_share_of_its_closed_form(sharpness):
    probs, labels = overlapping()
    rates = [read(labels, probs, np.eye(3), g).noise_rate for g in (1.0, sharpness, math.inf)]
    assert decided_share(*rates) == pytest.approx(1 - 1 / sharpness, abs=0.02)


def test_sharpness_follows_the_number_of_ties(hard):
    probs, labels = overlapping()
    given = probs[np.arange(len(labels)), labels]
    assert choose(labels, probs, np.eye(3), given, "auto").readings.sharpness == OVERLAPPING
    given = hard.probs[np.arange(len(hard.labels)), hard.labels]
    assert choose(hard.labels, hard.probs, np.eye(4), given, "auto").readings.sharpness > 2 * OVERLAPPING - 1
    decided = np.where(hard.probs > 0.5, 0.97, 0.01)
    given = decided[np.arange(len(hard.labels)), hard.labels]
    assert choose(hard.labels, decided, np.eye(4), given, "auto").readings.sharpness == DECIDED
    assert decided_share(0.1, 0.1, 0.1) == 0


def test_two_classes_state_no_certainty():
    generator = np.random.default_rng(0)
    clean = generator.integers(0, 2, 2000)
    labels = np.where(generator.random(2000) < 0.1, 1 - clean, clean)
    probs = np.where(np.arange(2) == clean[:, None], 0.9, 0.1)
    audit = volmin.audit(labels, probs=probs, random_state=0)
    assert audit.two_classes
    assert audit.noise_range[0] == 0
    assert audit.noise_range[1] > 0.1
    assert audit.intervals is None
    summary = audit.summary()
    assert "anchor points" in summary
    for words in ("well identified", "interval", "expected to be correct"):
        assert words not in summary


def test_interval_of_correct_labels_has_a_width():
    clean = np.random.default_rng(0).integers(0, 3, 3000)
    probs = np.where(np.arange(3) == clean[:, None], 0.998, 0.001)
    with pytest.warns(UserWarning, match="agree with"):
        audit = volmin.audit(clean, probs=probs, random_state=0)
    assert audit.intervals is not None
    assert audit.intervals.noise_rate.high > 0.001
    assert (audit.intervals.class_noise_rates.high > 0.003).all()
    low, high = audit.noise_range
    assert low <= audit.noise_rate <= high


def test_report_shows_the_range(found, tmp_path):
    found.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    low, high = (f"{rate:.1%}" for rate in found.noise_range)
    assert f"<b>{low} to {high}</b> of the labels are wrong" in page
    assert f"<dd>{found.noise_rate:.1%}<small>between the readings of hard examples" in page
    assert "The range lies between the two readings" in page
    assert "T is identified" not in page
    assert "expected to be correct" not in page


def test_audits_of_earlier_versions_load(found, audited, tmp_path):
    old = replace(audited, suspicion=None, num_flagged=None, readings=None)
    old.save(tmp_path)
    content = read_sealed_json(tmp_path / "audit.json")
    assert "readings" not in content
    again = volmin.Audit.load(tmp_path)
    assert again.issues().tolist() == audited.issues(0.1).tolist()
    low, high = again.noise_range
    assert low < audited.noise_rate < high < audited.noise_range[1]
    found.save(tmp_path)
    content = read_sealed_json(tmp_path / "audit.json")
    for damage in ({"num_flagged": -1}, {"readings": {"sharpness": "x"}}, {"readings": 3}):
        write_sealed_json(tmp_path / "audit.json", content | damage, ["labels.parquet"])
        with pytest.raises(volmin.data.DataError, match="damaged audit"):
            volmin.Audit.load(tmp_path)
