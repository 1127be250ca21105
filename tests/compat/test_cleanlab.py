"""The functions give what the installed cleanlab gives, on its own kind of examples and on generated ones."""

import inspect
import warnings

import cleanlab.filter
import cleanlab.rank
import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from volmin import noise
from volmin.compat.cleanlab import FILTERS, PRUNING, SCORES, find_label_issues, get_label_quality_scores
from volmin.exceptions import InputError


def posteriors(seed, rows=400, num_classes=4, rate=0.3):
    """Labels with pair noise, and random posteriors that mostly agree with the truth."""
    generator = np.random.default_rng(seed)
    truth = generator.integers(num_classes, size=rows)
    labels = noise.corrupt(truth, noise.pair(num_classes, rate), seed=seed)
    probs = generator.dirichlet(np.full(num_classes, 0.4), rows) + 1.2 * np.eye(num_classes)[truth]
    return labels, probs / probs.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("ours", [find_label_issues, get_label_quality_scores])
def test_signatures_are_cleanlabs(ours):
    theirs = {"find_label_issues": cleanlab.filter, "get_label_quality_scores": cleanlab.rank}[ours.__name__]
    expected = inspect.signature(getattr(theirs, ours.__name__)).parameters
    found = inspect.signature(ours).parameters
    assert [(name, p.kind, p.default) for name, p in found.items()] == [
        (name, p.kind, p.default) for name, p in expected.items()
    ]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("filter_by", FILTERS)
def test_filters_find_the_same_labels(filter_by, seed):
    labels, probs = posteriors(seed, num_classes=2 + seed)
    expected = cleanlab.filter.find_label_issues(labels, probs, filter_by=filter_by, n_jobs=1)
    found = find_label_issues(labels, probs, filter_by=filter_by)
    assert expected.any()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("filter_by", PRUNING)
@pytest.mark.parametrize(
    "options", [{"frac_noise": 0.5}, {"min_examples_per_class": 40}, {"num_to_remove_per_class": [3, 0, 20, 7]}]
)
def test_options_of_pruning(filter_by, options):
    labels, probs = posteriors(5)
    expected = cleanlab.filter.find_label_issues(labels, probs, filter_by=filter_by, n_jobs=1, **options)
    np.testing.assert_array_equal(find_label_issues(labels, probs, filter_by=filter_by, **options), expected)


def test_joint_of_the_user():
    labels, probs = posteriors(6)
    joint = np.array([[50, 30, 0, 0], [0, 70, 10, 0], [0, 0, 80, 5], [20, 0, 0, 60]])
    expected = cleanlab.filter.find_label_issues(labels, probs, confident_joint=joint, n_jobs=1)
    np.testing.assert_array_equal(find_label_issues(labels, probs, confident_joint=joint), expected)


@pytest.mark.parametrize("method", SCORES)
@pytest.mark.parametrize("adjust", [False, True])
def test_scores_and_order(method, adjust):
    labels, probs = posteriors(7)
    if adjust and method == "confidence_weighted_entropy":
        with pytest.raises(InputError, match="adjust_pred_probs"):
            get_label_quality_scores(labels, probs, method=method, adjust_pred_probs=True)
        return
    expected = cleanlab.rank.get_label_quality_scores(labels, probs, method=method, adjust_pred_probs=adjust)
    found = get_label_quality_scores(labels, probs, method=method, adjust_pred_probs=adjust)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    ranked = {"return_indices_ranked_by": method, "rank_by_kwargs": {"adjust_pred_probs": adjust}}
    np.testing.assert_array_equal(
        find_label_issues(labels, probs, **ranked), cleanlab.filter.find_label_issues(labels, probs, n_jobs=1, **ranked)
    )


def test_classes_without_labels_and_plain_lists():
    labels, probs = posteriors(8)
    labels = np.where(labels == 2, 1, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = cleanlab.filter.find_label_issues(labels, probs, n_jobs=1)
        found = find_label_issues(labels.tolist(), probs.tolist())
    np.testing.assert_array_equal(found, expected)


def test_workflow_of_the_tutorial_with_the_import_changed():
    # Cross-validated probabilities of a classifier, then the rows of the issues in order: cleanlab's first steps.
    x, y = load_digits(return_X_y=True)
    labels = noise.corrupt(y, noise.pair(10, 0.2), seed=0)
    pred_probs = cross_val_predict(LogisticRegression(C=0.01), x / 16, labels, cv=3, method="predict_proba")
    assert isinstance(pred_probs, np.ndarray)
    ranked = find_label_issues(labels=labels, pred_probs=pred_probs, return_indices_ranked_by="self_confidence")
    theirs = cleanlab.filter.find_label_issues(
        labels=labels, pred_probs=pred_probs, return_indices_ranked_by="self_confidence", n_jobs=1
    )
    np.testing.assert_array_equal(ranked, theirs)
    assert (labels != y)[ranked].mean() > 0.8
    blobs, truth = (np.asarray(part) for part in make_blobs(300, centers=[[0, 0], [4, 4]], random_state=0)[:2])
    given = np.where(np.arange(300) < 30, 1 - truth, truth)
    probs = cross_val_predict(LogisticRegression(), blobs, given, method="predict_proba")
    assert set(np.flatnonzero(find_label_issues(given, probs))) >= set(range(25))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"multi_label": True}, "multi_label=True is not supported"),
        ({"filter_by": "best"}, "filter_by must be one of"),
        ({"return_indices_ranked_by": "best"}, "return_indices_ranked_by must be"),
        ({"filter_by": "predicted_neq_given", "num_to_remove_per_class": [1, 1, 1, 1]}, "num_to_remove_per_class"),
        ({"confident_joint": np.eye(3)}, "shape"),
        ({"num_to_remove_per_class": [1]}, "4 numbers"),
    ],
)
def test_unsupported_arguments_are_refused(arguments, message):
    labels, probs = posteriors(9)
    with pytest.raises(InputError, match=message):
        find_label_issues(labels, probs, **arguments)


def test_logits_and_misfitting_labels_are_refused():
    labels, probs = posteriors(9)
    with pytest.raises(InputError, match="between 0 and 1"):
        find_label_issues(labels, 3 * probs)
    with pytest.raises(InputError, match="labels"):
        get_label_quality_scores(labels[:5], probs)
    with pytest.raises(InputError, match="shape"):
        get_label_quality_scores(labels, probs[:, 0])
    with pytest.raises(InputError, match="method must be"):
        get_label_quality_scores(labels, probs, method="best")
    with pytest.warns(UserWarning, match="no effect"):
        find_label_issues(labels, probs, filter_by="predicted_neq_given", frac_noise=0.5)
