import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

import volmin
from volmin import noise
from volmin.auditing.check import update_transition
from volmin.auditing.inference import with_noise_rates_of
from volmin.exceptions import ColumnWarning


def precision_and_recall(audit, wrong, fdr=0.1):
    flagged = audit.issues(fdr)
    return wrong[flagged].mean(), wrong[flagged].sum() / wrong.sum()


def blobs(counts, seed=0, spread=0.4):
    """Well separated classes on a circle: features and labels."""
    generator = np.random.default_rng(seed)
    labels = np.repeat(np.arange(len(counts)), counts)
    angle = 2 * np.pi * labels / len(counts)
    centres = 3 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return (centres + spread * generator.normal(size=centres.shape)).astype(np.float32), labels


@pytest.mark.slow
def test_audit_of_features_finds_noise_rate_and_wrong_labels(mislabelled):
    audit = volmin.audit(mislabelled.labels, features=mislabelled.x, random_state=0)
    precision, recall = precision_and_recall(audit, mislabelled.wrong)
    assert abs(audit.noise_rate - mislabelled.wrong.mean()) <= 0.03
    assert volmin.transition_error(mislabelled.T, audit.transition) <= 0.15
    assert precision >= 0.9
    assert recall >= 0.9
    assert len(audit.histories) == 5
    # The corrected labels are closer to the truth than the given ones.
    corrected = audit.labels.copy()
    corrected[audit.issues()] = audit.suggested[audit.issues()]
    assert (corrected == mislabelled.clean).mean() > 0.94 > (audit.labels == mislabelled.clean).mean()


def test_audit_of_probabilities_finds_noise_rate_and_wrong_labels(audited, mislabelled):
    precision, recall = precision_and_recall(audited, mislabelled.wrong)
    assert abs(audited.noise_rate - mislabelled.wrong.mean()) <= 0.03
    assert volmin.transition_error(mislabelled.T, audited.transition) <= 0.15
    assert precision >= 0.85
    assert recall >= 0.85
    assert not audited.histories


def test_exact_posteriors_give_the_true_label_qualities(exact):
    h, T, clean, labels = exact
    audit = volmin.audit(labels, probs=h @ T.T, random_state=0)
    assert np.abs(audit.transition - T).max() < 0.05
    assert np.abs(audit.quality - volmin.label_quality(labels, h, T)).mean() < 0.03
    assert abs(audit.noise_rate - (labels != clean).mean()) < 0.02
    assert np.abs(audit.class_priors - np.bincount(clean) / len(clean)).max() < 0.02
    # Pair-like noise has a direction: labels 1 and 2 exchange unequally.
    assert audit.transition[2, 1] > 0.2 > audit.transition[1, 2]


def test_fields_of_an_audit_are_consistent(audited):
    assert audited.noise_rate == pytest.approx((1 - audited.quality).mean())
    assert np.allclose(audited.transition.sum(axis=0), 1)
    assert audited.joint.sum() == pytest.approx(1)
    assert audited.class_priors.sum() == pytest.approx(1)
    flagged = audited.issues(0.1)
    assert (np.diff(audited.quality[flagged]) >= 0).all()
    assert audited.quality[flagged].mean() <= 0.1
    assert (audited.suggested[flagged] != audited.labels[flagged]).all()
    doubtful = (audited.suggested != audited.labels).sum()
    assert 0 < len(audited.issues(0.001)) < len(flagged) <= len(audited.issues(1)) == doubtful
    assert audited.intervals.noise_rate.low < audited.noise_rate < audited.intervals.noise_rate.high
    assert audited.bracket.shape == (10, 2)
    given, true, share = audited.confusions(1)[0]
    assert audited.joint[given, true] == share == (audited.joint - np.diag(np.diag(audited.joint))).max()


@pytest.mark.slow
def test_same_random_state_gives_the_same_audit():
    x, y = blobs([60, 60, 60], spread=2)
    model = volmin.NoisyLabelClassifier(epochs=2)
    first, again = (volmin.audit(y, features=x, model=model, random_state=3) for _ in range(2))
    assert np.array_equal(first.quality, again.quality)
    assert np.array_equal(first.transition, again.transition)
    seeds = {volmin.audit(y, features=x, model="logistic").provenance["seed"] for _ in range(2)}
    assert len(seeds) == 2


TEXT, FRACTIONS, TUPLES, MIXED = ["c", "a", "b"], [2.5, 0.5, 1.5], [(2, "x"), (0, "y"), (1, "z")], ["1", 1, 2.0]


@pytest.mark.parametrize(
    ("container", "names"),
    [
        *((list, names) for names in (TEXT, FRACTIONS, TUPLES, MIXED)),
        *((pd.Series, names) for names in (TEXT, FRACTIONS, TUPLES, MIXED)),
        *((pl.Series, names) for names in (TEXT, FRACTIONS)),
        *((np.array, names) for names in (TEXT, FRACTIONS)),
    ],
)
def test_labels_keep_their_type(exact, container, names):
    h, T, _, codes = exact
    labels = [names[code] for code in codes]
    audit = volmin.audit(container(labels), probs=(h @ T.T)[:, _sorted_order(names)], random_state=0)
    assert audit.classes.tolist() == [names[code] for code in _sorted_order(names)]
    assert audit.labels.tolist() == labels
    suggested = audit.suggested.tolist()
    assert all(suggested[row] != labels[row] for row in audit.issues())
    assert set(suggested) == set(names)


def _sorted_order(names):
    try:
        return sorted(range(len(names)), key=lambda code: names[code])
    except TypeError:
        return sorted(range(len(names)), key=lambda code: (type(names[code]).__name__, str(names[code])))


def test_tensors_and_classes_without_labels_are_accepted(exact):
    h, T, _, labels = exact
    wider = np.zeros((4, 4))
    wider[:3, :3], wider[3, 3] = T, 1
    probs = np.concatenate([0.999 * h @ T.T, np.full((len(h), 1), 0.001)], axis=1)
    audit = volmin.audit(torch.as_tensor(labels), probs=torch.as_tensor(probs), random_state=0)
    assert audit.classes.tolist() == [0, 1, 2, 3]
    assert audit.rare == (3,)
    named = volmin.audit(np.array(["a", "b", "c"])[labels], probs=probs, classes=["a", "b", "c", "d"], random_state=0)
    assert np.allclose(named.transition, audit.transition)


@pytest.mark.parametrize(
    "model",
    [
        "logistic",
        pytest.param("forest", marks=pytest.mark.slow),
        "boosting",
        DecisionTreeClassifier(min_samples_leaf=20),
    ],
)
def test_any_classifier_finds_wrong_labels(model):
    x, clean = blobs([150, 150, 150])
    labels = noise.corrupt(clean, noise.pair(3, 0.3), seed=0)
    audit = volmin.audit(labels, features=x, model=model, random_state=0)
    precision, recall = precision_and_recall(audit, labels != clean)
    assert precision > 0.9
    assert recall > 0.9
    assert audit.provenance["model"] == (model if isinstance(model, str) else "DecisionTreeClassifier")


def test_labels_are_predicted_out_of_fold():
    # A forest of full depth reproduces its training labels, so that in sample it finds no wrong ones.
    x, clean = blobs([150, 150, 150])
    labels = noise.corrupt(clean, noise.pair(3, 0.3), seed=0)
    forest = RandomForestClassifier(15, bootstrap=False, random_state=0)
    with pytest.warns(UserWarning, match="trained on these labels"):
        seen = volmin.audit(labels, probs=forest.fit(x, labels).predict_proba(x), random_state=0)
    unseen = volmin.audit(labels, features=x, model=forest, random_state=0)
    assert len(seen.issues()) < 10
    assert precision_and_recall(unseen, labels != clean)[1] > 0.8
    # A copy of a row in another fold must not reveal its label.
    doubled = volmin.audit(np.tile(labels, 2), features=np.tile(x, (2, 1)), model=forest, random_state=0)
    assert precision_and_recall(doubled, np.tile(labels != clean, 2))[1] > 0.8


def test_rare_classes_are_not_audited_and_reported():
    x, labels = blobs([200, 200, 200, 2])
    with pytest.warns(UserWarning, match=r"1 of 4 classes have fewer than 5 rows and are not audited \(3\)"):
        audit = volmin.audit(labels, features=x, model="logistic", random_state=0)
    assert audit.rare == (3,)
    assert (audit.quality[-2:] == 1).all()
    assert audit.transition[:, 3].tolist() == [0, 0, 0, 1]
    assert audit.intervals is not None
    assert audit.intervals.class_noise_rates.high[3] == 1
    assert "too few rows" in audit.summary()


def test_many_classes_are_counted_and_saved(tmp_path):
    generator = np.random.default_rng(0)
    clean = np.repeat(np.arange(300), 10)
    labels = np.where(generator.random(3000) < 0.1, (clean + 1) % 300, clean)
    probs = np.full((3000, 300), 0.1 / 298)
    probs[np.arange(3000), clean], probs[np.arange(3000), (clean + 1) % 300] = 0.81, 0.09
    audit = volmin.audit(labels, probs=probs, random_state=0)
    precision, recall = precision_and_recall(audit, labels != clean)
    assert precision > 0.9
    assert recall > 0.9
    assert abs(audit.noise_rate - (labels != clean).mean()) < 0.02
    assert audit.scatter is None
    assert audit.intervals is None
    assert "not examined" in audit.summary()
    audit.save(tmp_path)
    assert volmin.Audit.load(tmp_path).summary() == audit.summary()
    assert (tmp_path / "report.html").stat().st_size < 1_000_000


def test_tables_with_text_missing_values_and_constants():
    x, clean = blobs([150, 150, 150])
    labels = noise.corrupt(clean, noise.pair(3, 0.2), seed=0)
    first = x[:, 0].astype(object)
    first[::17] = None
    frame = pl.DataFrame({"a": list(first), "b": x[:, 1], "constant": 1, "town": np.array(["x, y", "z\n", "ü"])[clean]})
    for table in (frame, pd.DataFrame(frame.to_dict(as_series=False)), frame.to_dict(as_series=False)):
        with pytest.warns(ColumnWarning, match=r"left out of the features: 'constant' \(constant\)"):
            audit = volmin.audit(labels, features=table, model="logistic", random_state=0)
        assert precision_and_recall(audit, labels != clean)[0] > 0.9
        assert [use["kind"] for use in audit.provenance["columns"]] == ["number", "number", "left out", "category"]
    with_gaps = x.copy()
    with_gaps[::17, 0] = np.nan
    assert (
        precision_and_recall(
            volmin.audit(labels, features=with_gaps, model="logistic", random_state=0), labels != clean
        )[0]
        > 0.9
    )


def test_frame_has_one_line_per_label(audited):
    frame = audited.frame()
    assert frame.columns == ["row", "given", "suggested", "probability_wrong", "flagged"]
    assert frame["row"].to_list() == list(range(1797))
    assert frame["given"].to_list() == audited.labels.tolist()
    assert frame["suggested"].to_list() == audited.suggested.tolist()
    assert np.array_equal(frame["probability_wrong"].to_numpy(), 1 - audited.quality)
    assert frame["row"].filter(frame["flagged"]).to_list() == sorted(audited.issues())
    assert audited.frame(fdr=0.001)["flagged"].sum() == len(audited.issues(0.001))


@pytest.mark.parametrize(("names", "expected"), [(["a", "b", "c"], "a"), ([(0,), (1,), (2,)], "(0,)")])
def test_frame_converts_objects_to_text(exact, names, expected):
    h, T, _, codes = exact
    frame = volmin.audit([names[code] for code in codes], probs=h @ T.T, random_state=0).frame()
    assert frame["given"].to_list()[int(np.flatnonzero(codes == 0)[0])] == expected


def test_progress_is_reported_per_fold(capsys):
    x, labels = blobs([500, 500])
    calls = []
    volmin.audit(
        labels, features=x, model="logistic", folds=3, random_state=0, progress=lambda *call: calls.append(call)
    )
    announced = [(title, 0, 1) for title in ("weighting models", "estimating the noise")]
    assert calls == [*(("cross-fitting", done, 3) for done in range(4)), *announced]
    assert capsys.readouterr().err == ""
    volmin.audit(labels, features=x, model="logistic", folds=3, random_state=0, verbose=True)
    assert capsys.readouterr().err == "cross-fitting  3/3  0 s left\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "either features or probs"),
        ({"features": np.zeros((10, 2)), "probs": np.full((10, 2), 0.5)}, "either features or probs"),
        ({"probs": np.full((10, 2), 0.5), "model": "forest"}, "has no effect with probs"),
        ({"features": np.zeros((9, 2))}, "9 rows, but there are 10 labels"),
        ({"probs": np.full((10, 3), 1 / 3)}, "3 columns, but there are 2 classes"),
        (
            {"features": np.zeros((10, 2)), "model": "oracle"},
            "Choose one of: auto, network, logistic, forest",
        ),
        ({"features": np.zeros((10, 2)), "model": RidgeClassifier()}, "CalibratedClassifierCV"),
        ({"features": np.array([["x"] * 2] * 10)}, "give a table for text"),
        ({"features": np.zeros((10, 2)), "folds": 1}, "at least 2"),
        ({"probs": np.zeros((10, 2))}, "must sum to one"),
        ({"probs": np.full((10, 2), 0.5), "level": 1.0}, "level must lie between 0 and 1"),
        ({"features": np.zeros((10, 2)), "threads": 0}, "threads must be at least 1"),
    ],
)
def test_invalid_arguments_are_rejected(arguments, message):
    with pytest.raises(ValueError, match=message):
        volmin.audit(["a"] * 5 + ["b"] * 5, **arguments)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([], "labels is empty"),
        ([{"a"}, {"b"}], "hashable"),
        (np.zeros((3, 2, 2)), r"have shape \(3, 2, 2\)"),
        (list("abcdefgh"), "merge rare classes. Are these labels classes at all"),
        (["a"] * 50, "At least 2 classes need 5 rows or more, but 1 of 1 classes"),
    ],
)
def test_invalid_labels_are_rejected(labels, message):
    with pytest.raises(ValueError, match=message):
        volmin.audit(labels, features=np.zeros((len(labels), 2)))


def test_number_of_rows_is_reported_before_rare_classes():
    with pytest.raises(ValueError, match="probs has 30 rows, but there are 3 labels"):
        volmin.audit([0, 1, 1], probs=np.full((30, 2), 0.5))


def test_warnings_name_the_line_of_the_caller():
    x, labels = blobs([40, 40, 2])
    table = pl.DataFrame({"x": x[:, 0], "y": x[:, 1], "same": ["a"] * len(x)})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        volmin.audit(labels, features=table, model="logistic", random_state=0)
    texts = [str(warning.message) for warning in caught if warning.filename == __file__]
    assert any(text.startswith("Columns left out") for text in texts)
    assert any("fewer than 5 rows" in text for text in texts)


def test_findings_and_judges_are_lists_also_when_loaded(audited, tmp_path):
    audited.save(tmp_path)
    for found in (audited, volmin.Audit.load(tmp_path)):
        assert isinstance(found.findings, list)
        assert isinstance(found.judges, list)


def test_check_compares_with_known_true_labels(audited, mislabelled):
    check = audited.check(mislabelled.clean)
    flagged = audited.issues()
    assert check.rows == 1797
    assert check.noise_rate == mislabelled.wrong.mean()
    assert check.precision == mislabelled.wrong[flagged].mean()
    assert check.recall == mislabelled.wrong[flagged].sum() / mislabelled.wrong.sum()
    some = [int(label) if row % 5 == 0 else None for row, label in enumerate(mislabelled.clean)]
    assert audited.check(some).rows == 360
    with pytest.raises(ValueError, match="holds no label"):
        audited.check([None] * 1797)
    with pytest.raises(ValueError, match="not one of the classes"):
        audited.check([11] * 1797)
    with pytest.raises(ValueError, match="1797 rows"):
        audited.check([1])


def test_update_transition_corrects_a_wrong_matrix_and_keeps_a_right_one():
    truth, wrong = noise.pair(4, 0.4), np.eye(4)
    generator = np.random.default_rng(0)
    counts = np.stack([generator.multinomial(200, column) for column in truth.T], axis=1).astype(np.float64)
    corrected, little = update_transition(wrong, counts)
    kept, much = update_transition(truth, counts)
    assert volmin.transition_error(truth, corrected) < 0.1
    assert volmin.transition_error(truth, kept) < volmin.transition_error(truth, counts / 200)
    assert little < 10 < much


def test_noise_rates_come_from_the_joint_and_proportions_from_T():
    T = np.array([[0.5, 0.1, 0.0], [0.3, 0.9, 0.0], [0.2, 0.0, 1.0]])
    joint = np.array([[0.4, 0.0, 0.0], [0.1, 0.3, 0.0], [0.0, 0.0, 0.2]])
    combined = with_noise_rates_of(joint, T)
    assert np.allclose(combined[:, 0], [0.8, 0.12, 0.08])
    assert np.allclose(combined[:, 1], [0.0, 1.0, 0.0])
    assert np.allclose(combined[:, 2], [0.0, 0.0, 1.0])


def test_unidentified_T_gives_bounds_instead_of_intervals():
    # Posteriors near the barycentre of the simplex do not determine T.
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.full(3, 60.0), 3000)
    labels = (generator.random((3000, 1)) > probs.cumsum(axis=1)[:, :-1]).sum(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", volmin.transition.DegenerateTransitionWarning)
        audit = volmin.audit(labels, probs=probs, random_state=0)
    assert not audit.identified
    assert audit.intervals is None
    assert np.array_equal(audit.noise_bounds, audit.bracket)
    assert "not identified" in audit.summary()
    assert "Between 0.0% and" in audit.summary()


@pytest.mark.parametrize(
    ("index", "holds", "expected"),
    [(3.0, True, "T is well identified"), (1.2, True, "T is barely identified"), (0.8, False, "T is not identified")],
)
def test_summary_states_identifiability(audited, index, holds, expected):
    scatter = replace(audited.scatter, index=index, quantile=index, holds=holds)
    summary = replace(audited, scatter=scatter).summary()
    assert f"{expected} (scatter index {index:.2f}, above 1 is needed)" in summary
    assert ("This check can reject T but never prove it." in summary) == (index == 3.0)
    assert ("labels drawn at random and checked by hand" in summary) == (index != 3.0)


@pytest.mark.slow
def test_given_classifier_instance_is_used(mislabelled):
    audit = volmin.audit(
        mislabelled.labels, features=mislabelled.x / 16, model=LogisticRegression(C=0.1), random_state=0
    )
    assert precision_and_recall(audit, mislabelled.wrong)[0] > 0.85


def test_summary_escapes_control_characters(exact):
    h, T, _, labels = exact
    names = np.array(["\x1b]0;evil\x07", "one", "two"])  # in sorted order, as the columns of probs
    shown = volmin.audit(names[labels], probs=h @ T.T).summary()
    assert "evil" in shown
    assert all(c.isprintable() or c == "\n" for c in shown)
