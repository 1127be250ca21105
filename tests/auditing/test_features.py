import numpy as np

import volmin
from volmin.auditing import features


def test_groups_of_rows_are_apart_on_the_map():
    generator = np.random.default_rng(0)
    group = np.arange(3000) % 2
    x = generator.normal(size=(3000, 30))
    x[:, 0] += 10 * group
    every = np.arange(3000)
    rows, points = features.principal_positions(x, every, random_state=0)
    assert len(rows) == len(np.unique(rows)) == features.MOST_EMBEDDED
    first, second = points[group[rows] == 0], points[group[rows] == 1]
    assert np.abs(first.mean(0) - second.mean(0))[0] > 5 * max(first.std(0)[0], second.std(0)[0])
    assert np.array_equal(features.principal_positions(x, every, random_state=0)[1], points)
    few, around = features.principal_positions(x, every[group == 1][:50], random_state=0)
    assert few.tolist() == every[group == 1][:50].tolist()
    assert np.abs(around.mean(axis=0)).max() < 1e-2


def test_constant_and_single_features_have_a_map():
    rows, points = features.principal_positions(np.ones((10, 3)), np.arange(10), random_state=0)
    assert points.shape == (10, 2)
    assert not points.any()
    assert features.principal_positions(np.arange(10.0)[:, None], np.arange(10), random_state=0)[1].shape == (10, 2)
    assert rows.tolist() == list(range(10))


def test_map_is_saved_and_shown(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.repeat(["a", "b"], 60)
    x = generator.normal(size=(120, 2)) + 6 * (labels == "b")[:, None]
    found = volmin.audit(labels, features=x, model="logistic", folds=2, random_state=0)
    assert found.embedding is not None
    found.save(tmp_path)
    again = volmin.Audit.load(tmp_path)
    assert again.embedding is not None
    assert np.array_equal(again.embedding[1], found.embedding[1])
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.count("<circle class=") - 4 == 120  # four are the key
