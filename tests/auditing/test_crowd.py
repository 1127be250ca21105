"""Audits of several annotators against simulated crowds with known errors."""

import json

import numpy as np
import polars as pl
import pytest

import volmin
from volmin import noise
from volmin.auditing import CrowdAudit, audit_crowd
from volmin.exceptions import InputError

NAMES = ["ann", "bob", "cy", "dee", "eve"]
T = np.stack(
    [noise.pair(3, 0.1), noise.pair(3, 0.3), noise.symmetric(3, 0.3), np.eye(3)[[1, 1, 1]].T, noise.pair(3, 0.2)]
)


@pytest.fixture(scope="module")
def votes():
    """Three answers of five annotators to each of 500 items; dee always says 1, and eve copies bob."""
    generator = np.random.default_rng(0)
    clean = np.arange(500) % 3
    x = 1.5 * np.eye(3)[clean] + generator.normal(size=(500, 3))
    Y = np.array([[generator.choice(3, p=T[m, :, k]) for m in range(5)] for k in clean])
    Y[:, 4] = np.where(generator.random(500) < 0.9, Y[:, 1], Y[:, 4])
    Y[generator.random(Y.shape) < 0.3] = -1
    return x, Y, clean


@pytest.fixture(scope="module")
def found(votes):
    x, Y, _ = votes
    table = pl.DataFrame({name: Y[:, m] for m, name in enumerate(NAMES)})
    return audit_crowd(table, features=x, random_state=0)


def test_noise_rates_and_matrices(found, votes):
    _, Y, clean = votes
    assert isinstance(found, CrowdAudit)
    table = found.annotators
    assert table.columns == ["annotator", "answers", "noise_rate", "low", "high"]
    assert table["annotator"].to_list() == NAMES
    assert table["answers"].to_list() == (Y >= 0).sum(axis=0).tolist()
    truth = np.array([(Y[:, m] != clean)[Y[:, m] >= 0].mean() for m in range(5)])
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    assert ((low <= truth) & (truth <= high)).sum() >= 4
    assert found.transitions.shape == (5, 3, 3)
    assert np.abs(found.transitions[:4] - T[:4]).mean() < 0.08
    assert found.noise_range[0] <= found.noise_rate <= found.noise_range[1]


def test_consensus_is_better_than_the_majority_vote(found, votes):
    _, Y, clean = votes
    voted = np.array([np.bincount(row[row >= 0], minlength=3).argmax() for row in Y])
    assert (found.consensus == clean).mean() > (voted == clean).mean() + 0.03
    assert np.allclose(found.consensus_probability, found.clean_probs.max(axis=1))


def test_findings_name_the_best_the_spammer_and_the_copies(found):
    texts = {finding.code: finding.text for finding in found.findings}
    assert texts["best_annotator"].startswith("ann is the most accurate")
    assert "dee" in texts["spammers"]
    assert "ann" not in texts["spammers"]
    assert [{NAMES[pair.first], NAMES[pair.second]} for pair in found.copies] == [{"bob", "eve"}]
    assert "p ≤ 0.01" in texts["annotators_differ"]


@pytest.mark.parametrize(
    ("smallest", "mistakes"), [(0.005, ": the most frequent mistakes of 0 are 0 for 2 and 1 for 0."), (1.0, ".")]
)
def test_swapped_classes_are_named_with_mistakes_that_are_frequent_enough(smallest, mistakes, monkeypatch):
    monkeypatch.setattr("volmin.auditing.crowd.result.SMALLEST_CONFUSION", smallest)
    clean = np.arange(24) % 3
    answers = np.stack([(clean + 1) % 3, clean, clean, clean], axis=1)
    texts = {finding.code: finding.text for finding in volmin.audit(answers, random_state=0).findings}
    assert texts["swapped_labels"].startswith(f"Most answers of 0 are wrong, yet tell the class{mistakes} The")


def test_another_vote_is_asked_of_somebody_who_has_not_answered(found, votes):
    _, Y, _ = votes
    asked = found.next_votes()
    assert asked["gain"].is_sorted(descending=True)
    for item, who in asked.select("item", "ask").head(50).iter_rows():
        assert who is None or Y[item, NAMES.index(who)] == -1
    assert "dee" not in asked["ask"]  # a spammer's answer does not help
    assert asked.filter(pl.col("ask").is_null())["gain"].max() == 0


def test_files_and_page(found, tmp_path):
    found.save(tmp_path / "out")
    content = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert content["noise_rate"] == pytest.approx(found.noise_rate)
    assert pl.read_csv(tmp_path / "out" / "consensus.csv")["consensus"].to_list() == found.consensus.tolist()
    matrices = pl.read_csv(tmp_path / "out" / "transitions.csv")
    ann = matrices.filter(pl.col("annotator") == "ann")["probability"].to_numpy().reshape(3, 3)
    assert np.allclose(ann.sum(axis=0), 1, atol=1e-4)
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(name in page for name in NAMES)


def test_interrupted_save_leaves_no_finished_audit(found, tmp_path):
    found.save(tmp_path)
    with pytest.raises(InputError, match="one entry per label"):
        found.save(tmp_path, examples={"text": ["one row"]})
    assert not (tmp_path / "audit.json").exists()


def test_names_and_labels_are_escaped(votes, tmp_path):
    _, Y, _ = votes
    classes = np.array(["<script>x</script>", "b", "=1+2"], dtype=object)
    words = classes[np.maximum(Y, 0)]
    words[Y < 0] = None
    table = pl.DataFrame({f"<img src={m}>": words[:, m].tolist() for m in range(5)})
    result = audit_crowd(table, random_state=0)
    result.save(tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script>" not in page
    assert "<img" not in page
    assert "'=1+2" in (tmp_path / "transitions.csv").read_text()


def test_equal_annotators_are_not_said_to_differ():
    generator = np.random.default_rng(1)
    clean = np.arange(400) % 3
    Y = np.array([[generator.choice(3, p=T[1, :, k]) for _ in range(4)] for k in clean])
    codes = {finding.code for finding in volmin.audit(Y, random_state=0).findings}
    assert "annotators_alike" in codes
    assert not codes & {"spammers", "copied_answers"}


def test_gaps_are_findings_and_not_errors(votes):
    _, Y, _ = votes
    gaps = Y.copy()
    gaps[:, 2] = -1
    gaps[7] = -1
    found = audit_crowd(gaps, random_state=0)
    codes = {finding.code for finding in found.findings}
    assert {"annotators_without_answers", "items_without_answers"} <= codes
    nobody = found.annotators.row(2, named=True)
    assert (nobody["answers"], nobody["noise_rate"], nobody["low"], nobody["high"]) == (0, None, 0, 1)


@pytest.mark.slow
def test_groups_of_single_labels(votes):
    x, _, clean = votes
    generator = np.random.default_rng(2)
    year = np.where(np.arange(500) < 250, 2020, 2021)
    y = np.array([generator.choice(3, p=T[0 if who == 2020 else 2, :, k]) for who, k in zip(year, clean, strict=True)])
    found = audit_crowd(y, features=2 * x, groups=year, random_state=0)
    early, late = found.annotators["noise_rate"]
    assert late > early + 0.05
    assert "annotators_differ" in {finding.code for finding in found.findings}
    assert found.summary().startswith("500 labels of 2 groups")


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([[0, 1], [1, 0]], {"probs": np.eye(2)}, "probs is for one label per row"),
        ([[0, 1], [1, 0]], {"features": np.zeros((3, 2))}, "3 rows, but there are 2 items"),
        ([[1, 1], [1, -1]], {}, "All answers are 1"),
        ([0, 1], {"groups": [1, 2]}, "need features"),
        ([0, 1], {"groups": [1], "features": np.zeros((2, 2))}, "each of 2 labels"),
        ({"row": [0, 0], "annotator": ["a", "a"], "label": [0, 1]}, {}, "repeat an annotator and an item"),
    ],
)
def test_bad_input(labels, options, message):
    with pytest.raises(InputError, match=message):
        volmin.audit(labels, **options)
