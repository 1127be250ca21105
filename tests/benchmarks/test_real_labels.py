"""The measures and tables of ``benchmarks/real_labels`` on small inputs with known answers."""

import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks.real_labels import __main__ as program
from benchmarks.real_labels import measures, record, sets
from benchmarks.real_labels.decisions import coverage
from benchmarks.real_labels.tools import Finding

import volmin

GIVEN = np.array([0, 0, 0, 0, 1, 1, 1, 1])
CLEAN = np.array([0, 0, 0, 1, 1, 1, 1, 0])  # rows 3 and 7 are wrong


def finding(flagged, quality=None, noise_range=None, T=None):
    quality = np.linspace(1, 0, 8) if quality is None else np.asarray(quality)
    T = np.full((2, 2), 0.5) if T is None else np.asarray(T)
    return Finding(quality, np.asarray(flagged, dtype=int), 0.2, T, 0.5, noise_range)


def measured(**changes):
    return measures.measures(finding(**changes), GIVEN, CLEAN)


def test_flags_are_counted():
    found = measured(flagged=[3, 6, 5])
    assert (found["flagged"], found["false_alarms"]) == (3, 2)
    assert found["precision"] == pytest.approx(1 / 3)
    assert found["fdr"] == pytest.approx(2 / 3)
    assert found["recall"] == pytest.approx(1 / 2)
    assert found["f1"] == pytest.approx(2 / 5)


def test_without_flags_precision_is_undefined_and_f1_is_zero():
    found = measured(flagged=[])
    assert found["precision"] is None
    assert found["fdr"] is None
    assert (found["recall"], found["f1"]) == (0, 0)


def test_clean_labels_have_no_ranking_and_no_recall():
    found = measures.measures(finding([2]), CLEAN, CLEAN)
    assert {found[name] for name in ("auroc", "average_precision", "recall", "f1")} == {None}
    assert (found["false_alarms"], found["true_noise_rate"]) == (1, 0)


def test_lowest_quality_ranks_first():
    # The wrong rows are the first and the third of the ranking: one of six right labels precedes the second.
    quality = [0.9, 0.8, 0.7, 0.1, 0.6, 0.5, 0.2, 0.3]
    found = measured(flagged=[], quality=quality)
    assert found["auroc"] == pytest.approx(11 / 12)
    assert found["average_precision"] == pytest.approx((1 + 2 / 3) / 2)


@pytest.mark.parametrize(
    ("noise_range", "hit"), [((0.2, 0.3), True), ((0.25, 0.25), True), ((0.0, 0.24), False), (None, None)]
)
def test_range_hits_if_it_contains_the_true_rate(noise_range, hit):
    assert measured(flagged=[], noise_range=noise_range)["hit"] is hit


def test_transition_is_compared_with_the_counted_one():
    # Columns are true classes: a fourth of each has the other label.
    assert measured(flagged=[], T=[[0.75, 0.25], [0.25, 0.75]])["transition_error"] == pytest.approx(0)
    assert measured(flagged=[], T=np.eye(2))["transition_error"] == pytest.approx(0.5)


def rows():
    """Two seeds of one tool, of which the first hits, and one seed of another tool without a range."""
    one = {"set": "made-a", "seed": 0, "tool": "volmin", **measured(flagged=[3], noise_range=(0.2, 0.4))}
    two = {"set": "made-a", "seed": 1, "tool": "volmin", **measured(flagged=[], noise_range=(0.0, 0.1))}
    return [one, two, {"set": "made-a", "seed": 0, "tool": "cleanlab", **measured(flagged=[3, 7])}]


def test_means_ignore_undefined_measures():
    volmin, cleanlab = record.means(rows())
    assert (volmin["precision"], volmin["recall"]) == (1, 0.25)
    assert (volmin["hits"], volmin["stated"], volmin["runs"]) == (1, 2, 2)
    assert (cleanlab["f1"], cleanlab["stated"], cleanlab["low"]) == (1, 0, None)


def test_summary_averages_over_sets_and_counts_hits_over_runs():
    volmin, cleanlab = record.summaries(rows())
    # Ranked by falling row number, row 7 is first and row 3 is fifth.
    assert volmin.startswith("volmin: mean AUROC 0.750, AP 0.700")
    assert "F1 0.333 over 1 set;" in volmin
    assert "in 1 of 2 runs, mean width 0.150" in volmin
    assert cleanlab.endswith("F1 1.000 over 1 set.")


def test_summary_of_clean_labels_has_no_means():
    clean = {"set": "made-b", "seed": 0, "tool": "cleanlab", **measures.measures(finding([]), CLEAN, CLEAN)}
    assert record.summaries([clean]) == []


def test_markdown_has_a_line_for_each_set_and_tool():
    text = record.markdown({"date": "2026-01-01", "versions": {"volmin": "1", "cleanlab": "2"}, "rows": rows()})
    lines = [line.split(" | ") for line in text.splitlines() if line.startswith("|")]
    assert [line[1] for line in lines if len(line) > 1] == ["tool", "volmin", "cleanlab"]
    assert "1 of 2" in lines[-2]


def test_sample_keeps_rows_together():
    x = np.arange(100.0)[:, None]
    labels = sets.LabelSet(np.arange(100), np.arange(100) + 1, inputs=x, features=2 * x).sample(10)
    assert len(labels.given) == 10
    assert (labels.clean == labels.given + 1).all()
    assert (labels.inputs[:, 0] == labels.given).all()
    assert (labels.features == 2 * labels.inputs).all()


def test_simulated_noise_has_the_intended_rate(tmp_path):
    for name, rate in (("digits-asymmetric", 0.3), ("digits-clean", 0), ("weak-judge", 0.1), ("overlapping", 0.03)):
        labels = sets.SETS[f"made-{name}"](tmp_path)
        deviation = np.sqrt(rate * (1 - rate) / len(labels.given))
        assert np.mean(labels.given != labels.clean) == pytest.approx(rate, abs=3 * deviation)
        assert labels.features is not None
        assert len(labels.features) == len(labels.given)


def test_missing_files_are_skipped(tmp_path, monkeypatch, capsys):
    names = [name for name in sets.SETS if not name.startswith("made-")]
    monkeypatch.setattr(sys, "argv", ["real_labels", "--data-dir", str(tmp_path), "--sets", *names])
    program.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(names)
    assert all("not found, skipped" in line for line in lines)


def test_record_keeps_the_sets_that_were_not_run(tmp_path):
    path = tmp_path / "record.json"
    first, _, _ = rows()
    program.write(path, [{**first, "set": "made-wine"}, {**first, "set": "made-weak-judge"}])
    program.write(path, [{**first, "set": "made-wine", "seconds": 7.0}])
    kept = program.read_json(path)["rows"]
    assert [(row["set"], row["seconds"]) for row in kept] == [("made-weak-judge", 0.5), ("made-wine", 7.0)]


def test_readme_quotes_the_record():
    root = Path(__file__).parents[2]
    rows = record.by_kind(program.read_json(root / "results" / "real-labels.json")["rows"])[record.KINDS["posteriors-"]]
    text = " ".join((root / "README.md").read_text(encoding="utf-8").split())
    ours, theirs = ([row for row in rows if row["tool"] == tool] for tool in ("volmin", "cleanlab"))
    means = [np.mean([row["f1"] for row in found]) for found in (ours, theirs)]
    assert len(ours) == 6
    assert all(row["hit"] for row in ours)
    width = np.mean([row["high"] - row["low"] for row in ours])
    assert f"mean width of {width:.2f}" in text
    assert f"mean F1 of {means[0]:.2f}, cleanlab's {means[1]:.2f} on the same" in text


def test_decisions_are_counted_and_shown():
    generator = np.random.default_rng(0)
    clean = generator.integers(0, 3, 600)
    probs = np.where(np.arange(3) == clean[:, None], 0.8, 0.1)
    given = (generator.random((600, 1)) < probs.cumsum(axis=1)).argmax(axis=1)
    found = coverage(volmin.audit(given, probs=probs, random_state=0), clean)
    assert found["random"]["coverage"] >= 0.9
    assert [one["decisions"] for one in found["suspicious"]] == [50, 100]
    rows = [{"set": "made-a", "tool": "volmin", "decisions": found}]
    (cells,) = [line.split(" | ") for line in record.decision_table(rows).splitlines()[2:]]
    assert f"{found['random']['coverage']:.0%}" in cells
