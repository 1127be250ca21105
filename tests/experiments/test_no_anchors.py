from dataclasses import replace

import numpy as np
import pytest
import torch

from volmin.data import Part, without_anchors
from volmin.experiments import no_anchors as anchors
from volmin.experiments import run, spec


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(anchors, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A preset of few epochs in place of digits' own."""
    whole = anchors.presets.find("digits", "fast")
    brief = replace(whole, recipe=replace(whole.recipe, epochs=12))
    monkeypatch.setitem(anchors.presets.PRESETS["digits"], "fast", brief)


def test_the_surest_of_each_class_are_left_out():
    y = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    part = Part(torch.arange(10), y)
    scores = np.array([0, 9, 1, 8, 2, 7, 3, 6, 4, 5.0])
    kept = without_anchors(part, scores, 0.4)
    assert kept.x.tolist() == [0, 2, 4, 5, 7, 9]
    assert kept.y.tolist() == [0, 0, 0, 1, 1, 1]


def test_sizes_are_the_papers():
    """Class sizes of MNIST are no multiples of ten, yet 24,000 images go."""
    sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    part = Part(torch.arange(60_000), np.repeat(np.arange(10), sizes))
    kept = without_anchors(part, np.zeros(60_000), 0.4)
    assert len(kept) == 36_000
    assert np.abs(np.bincount(kept.y) - 0.6 * np.array(sizes)).max() < 1
    assert len(without_anchors(part, np.zeros(60_000), 0.1)) == 54_000


def test_log_odds_tell_apart_what_rounds_to_certainty():
    logits = torch.tensor([[60.0, 0, 0], [80.0, 0, 0], [0.0, 0, 1]])
    odds = anchors._log_odds(logits, torch.tensor([0, 0, 1]))
    assert odds[0] < odds[1]
    probs = logits.double().softmax(1)[2]
    assert odds[2].item() == pytest.approx(float(torch.log(probs[1] / (1 - probs[1]))))


def test_digits_without_anchors_lose_the_easy_ones(digits, cache):
    reduced = anchors.load_dataset("digits/NA")
    assert len(reduced.train) == round(0.6 * len(digits.train))
    assert len(reduced.test) == len(digits.test)
    (path,) = (cache / "clean-scores").iterdir()
    scores = np.load(path)
    accuracy = (scores > 0).mean()
    assert accuracy > 0.95, "the scores come from a network that has learned the clean labels"
    for label in range(10):
        of_class = scores[digits.train.y == label]
        limit = np.sort(of_class)[(reduced.train.y == label).sum() - 1]
        kept = digits.train.x[torch.from_numpy(digits.train.y == label)][torch.from_numpy(of_class <= limit)]
        assert torch.equal(kept, reduced.train.x[torch.from_numpy(reduced.train.y == label)])


def test_scores_are_computed_once_and_are_the_same_anywhere(digits, cache, monkeypatch):
    first = anchors.clean_scores(digits)
    (path,) = (cache / "clean-scores").iterdir()
    path.write_bytes(path.read_bytes()[:-8])
    assert np.array_equal(anchors.clean_scores(digits), first), "a damaged file is replaced"
    monkeypatch.setattr(anchors, "_train_and_score", lambda *args: pytest.fail("trained again"))
    assert np.array_equal(anchors.clean_scores(digits), first)
    with pytest.raises(pytest.fail.Exception):
        anchors.clean_scores(replace(digits, train=Part(digits.train.x, digits.train.y[::-1].copy())))


def test_a_run_without_anchors(digits, cache, tmp_path):
    chosen = spec.resolve("digits/NA", "pair:0.2", "cross_entropy", epochs=1)
    assert chosen.recipe == spec.resolve("digits", "pair:0.2", "cross_entropy", epochs=1).recipe
    experiment = run.set_up(chosen)
    kept = round(0.6 * len(digits.train))
    assert len(experiment.train.y) == int(0.9 * kept)
    assert len(experiment.validation.y) == kept - int(0.9 * kept)
    rows = {tuple(row) for row in torch.cat([experiment.train.x, experiment.validation.x]).tolist()}
    reduced = {tuple(row) for row in anchors.load_dataset("digits/NA").train.x.tolist()}
    assert rows == reduced, "validation comes from the reduced set too"
    run.run(experiment, tmp_path)
    folder = chosen.folder(tmp_path)
    assert folder.parent == tmp_path
    assert folder.name.startswith("digits-NA-pair0.2-cross_entropy-s1-")
    assert (folder / "result.json").exists()


def test_unknown_sets_are_refused():
    with pytest.raises(ValueError, match=r"Unknown data set 'clothing1m/NA'. Choose one of: digits/NA, mnist/NA"):
        anchors.load_dataset("clothing1m/NA")
    with pytest.raises(ValueError, match="Unknown data set 'imagenet/NA'"):
        spec.resolve("imagenet/NA", "pair:0.2", "cross_entropy")
