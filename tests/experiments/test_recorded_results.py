"""The records in the repository are complete and agree with the text that quotes them."""

from pathlib import Path
from statistics import mean, stdev

import pytest
from benchmarks.real_labels.record import means

from volmin.experiments import tables
from volmin.experiments.paper import STUDIES
from volmin.experiments.records import read_records
from volmin.io.atomic import read_json

ROOT = Path(__file__).parents[2]


def test_every_record_is_a_complete_finished_run():
    records = read_records(ROOT / "results")
    assert records
    for record in records:
        assert {"dataset", "noise", "method", "seed", "preset", "recipe", "options"} <= record.spec.keys()
        assert 0 < record.result["accuracy"] <= 1
        assert record.result["seconds"] > 0
        assert {"volmin", "torch", "python"} <= record.result["versions"].keys()


def test_every_record_belongs_to_a_table():
    """Otherwise it would silently be missing from the page of results."""
    records = read_records(ROOT / "results")
    studies = tables.studies_of(records)
    for record in records:
        assert any(tables.settings(study, [record]) for study in studies), record.spec


def test_readme_quotes_the_recorded_figures():
    def found(method, figure, dataset="mnist", preset="fast"):
        return [
            record.result[figure]
            for record in read_records(ROOT / "results" / f"{dataset}-{preset}.jsonl")
            if (record.spec["dataset"], record.spec["noise"], record.spec["method"]) == (dataset, "pair:0.45", method)
        ]

    text = " ".join((ROOT / "README.md").read_text().split())
    for method, name in (("volminnet", "VolMinNet"), ("cross_entropy", "plain cross-entropy")):
        accuracies = found(method, "accuracy")
        assert len(accuracies) == 5
        assert f"{name} {100 * mean(accuracies):.2f} ± {100 * stdev(accuracies):.2f} %" in text
    assert f"with an error of {mean(found('volminnet', 'transition_error')):.3f}" in text
    figures = ("accuracy", "seconds", "transition_error")
    (accuracy,), (seconds,), (error,) = (found("volminnet", figure, "cifar10") for figure in figures)
    bfloat16 = "`--preset fast --precision bf16-mixed`"
    assert f"one seed, {seconds / 60:.0f} minutes of one thread ({bfloat16}): {100 * accuracy:.2f} %" in text
    assert f"T error {error:.3f} (" in text


def test_readme_quotes_the_benchmark_of_real_labels():
    rows = means(read_json(ROOT / "results" / "real-labels.json")["rows"])
    simulated = ("made-", "fashion-", "posteriors-cifar10-synthetic")
    real = [row for row in rows if not row["set"].startswith(simulated)]
    ours, theirs = (
        {row["set"]: row["average_precision"] for row in real if row["tool"] == tool and row["auroc"] is not None}
        for tool in ("volmin", "cleanlab")
    )
    assert ours.keys() == theirs.keys()
    better = sum(ours[name] > theirs[name] for name in ours)
    text = " ".join((ROOT / "README.md").read_text().split())
    assert (
        f"On {len(ours)} sets of labels by people and rules, the ranking of suspicious labels has a mean average"
        f" precision of {mean(ours.values()):.3f}, cleanlab's on the same probabilities {mean(theirs.values()):.3f}"
        f" (better in {better} of {len(ours)})"
    ) in text
    given = [row for row in rows if row["set"].startswith("posteriors-")]
    ours = [row for row in given if row["tool"] == "volmin"]
    hits, width = sum(row["hits"] for row in ours), mean(row["high"] - row["low"] for row in ours)
    f1, theirs = (mean(row["f1"] for row in given if row["tool"] == tool) for tool in ("volmin", "cleanlab"))
    assert (
        f"(two networks, {len(ours)} sets), the stated ranges contain the true noise rate in {hits} of {len(ours)}"
        f", with a mean width of {width:.2f}, and the flags have a mean F1 of {f1:.2f}, cleanlab's {theirs:.2f} on"
    ) in text


def test_results_page_quotes_the_cells_of_cifar():
    recorded = {
        record.spec["noise"]: record
        for record in read_records(ROOT / "results" / "cifar10-fast.jsonl")
        if (record.spec["method"], record.spec["seed"]) == ("volminnet", 1)
    }
    noises = ("sym:0.2", "sym:0.5", "pair:0.2", "pair:0.45")
    paper = STUDIES["table1"].published
    above = [100 * (recorded[noise].result["accuracy"] - paper["cifar10", noise, "volminnet"].mean) for noise in noises]
    text = " ".join((ROOT / "docs" / "results.md").read_text().split())
    assert "(by {:.2f}, {:.2f}, {:.2f} and {:.2f} points)".format(*above) in text
    fifty, twenty = ((recorded[noise].result, recorded[noise].curves["transition_error"]) for noise in noises[1::-1])
    for sentence in (
        f"error of {min(fifty[1][2:]):.3f} in its third epoch and of {fifty[1][-1]:.3f} at the end",
        f"takes the error to {fifty[0]['transition_error']:.3f}, and from {twenty[1][-1]:.3f} to "
        f"{twenty[0]['transition_error']:.3f} on sym:0.2",
        "{:.3f} and {:.3f}".format(*(recorded[noise].result["transition_error"] for noise in noises[2:])),
    ):
        assert sentence in text


@pytest.mark.parametrize("noise", ["pair:0.45", "sym:0.5"])
def test_results_page_quotes_the_order_of_methods_on_cifar(noise):
    paper, results = STUDIES["table1"].published, {}
    for record in read_records(ROOT / "results" / "cifar10-fast.jsonl"):
        if (record.spec["noise"], record.spec["seed"]) == (noise, 1):
            results[record.spec["method"]] = record.result
    text = " ".join((ROOT / "docs" / "results.md").read_text().split())
    order = text[text.index(f"**The order at {noise} on CIFAR-10**") :]
    places = []
    for method in sorted(results, key=lambda method: -results[method]["accuracy"]):
        name = {"volminnet": "VolMinNet", "dmi": "DMI", "t_revision": "T-Revision", "dual_t": "Dual T"}.get(
            method, method.replace("_", "-").replace("forward", "Forward")
        )
        places.append(order.index(f"{name} {results[method]['accuracy']:.2%}".replace("%", " %")))
        if published := paper.get(("cifar10", noise, method)):
            assert f"{100 * published.mean:.2f} %" in order
    assert places == sorted(places)
    assert f"{results['forward']['transition_error']:.3f}" in order
