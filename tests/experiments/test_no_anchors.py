from dataclasses import replace

import numpy as np
import pytest
import torch

import volmin
from volmin.data import Part, without_anchors
from volmin.exceptions import InputError
from volmin.experiments import no_anchors, run, spec
from volmin.experiments.no_anchors import clean_scores, load_without_anchors


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(no_anchors, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A preset with few epochs instead of that of digits."""
    whole = no_anchors.presets.find("digits", "fast")
    brief = replace(whole, recipe=replace(whole.recipe, epochs=12))
    monkeypatch.setitem(no_anchors.presets.PRESETS["digits"], "fast", brief)


def test_most_certain_rows_of_each_class_are_removed():
    y = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1])
    part = Part(torch.arange(10), y)
    scores = np.array([0, 9, 1, 8, 2, 7, 3, 6, 4, 5.0])
    kept = without_anchors(part, scores, 0.4)
    assert kept.x.tolist() == [0, 2, 4, 5, 7, 9]
    assert kept.y.tolist() == [0, 0, 0, 1, 1, 1]


def test_sizes_are_those_of_the_paper():
    """Class sizes of MNIST are not multiples of ten, yet exactly 24,000 images are removed."""
    sizes = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    part = Part(torch.arange(60_000), np.repeat(np.arange(10), sizes))
    kept = without_anchors(part, np.zeros(60_000), 0.4)
    assert len(kept) == 36_000
    assert np.abs(np.bincount(kept.y) - 0.6 * np.array(sizes)).max() < 1
    assert len(without_anchors(part, np.zeros(60_000), 0.1)) == 54_000


def test_log_odds_distinguish_probabilities_that_round_to_one():
    logits = torch.tensor([[60.0, 0, 0], [80.0, 0, 0], [0.0, 0, 1]])
    odds = no_anchors._log_odds(logits, torch.tensor([0, 0, 1]))
    assert odds[0] < odds[1]
    probs = logits.double().softmax(1)[2]
    assert odds[2].item() == pytest.approx(float(torch.log(probs[1] / (1 - probs[1]))))


def test_digits_without_anchors_keep_the_least_certain_rows(digits, cache):
    reduced = load_without_anchors("digits")
    assert len(reduced.train) == round(0.6 * len(digits.train))
    assert len(reduced.test) == len(digits.test)
    (path,) = (cache / "clean-scores").iterdir()
    scores = np.load(path)
    accuracy = (scores > 0).mean()
    assert accuracy > 0.95, "the scores come from a network trained on the clean labels"
    for label in range(10):
        of_class = scores[digits.train.y == label]
        limit = np.sort(of_class)[(reduced.train.y == label).sum() - 1]
        kept = digits.train.x[torch.from_numpy(digits.train.y == label)][torch.from_numpy(of_class <= limit)]
        assert torch.equal(kept, reduced.train.x[torch.from_numpy(reduced.train.y == label)])


def test_scores_are_computed_once(digits, cache, monkeypatch):
    first = clean_scores(digits)
    (path,) = (cache / "clean-scores").iterdir()
    path.write_bytes(path.read_bytes()[:-8])
    assert np.array_equal(clean_scores(digits), first), "a damaged file is replaced"
    monkeypatch.setattr(no_anchors, "_train_and_score", lambda *args: pytest.fail("trained again"))
    assert np.array_equal(clean_scores(digits), first)
    with pytest.raises(pytest.fail.Exception):
        clean_scores(replace(digits, train=Part(digits.train.x, digits.train.y[::-1].copy())))


def test_run_without_anchors(digits, cache, tmp_path):
    chosen = spec.resolve("digits/NA", "pair:0.2", "cross_entropy", epochs=1)
    assert chosen.recipe == spec.resolve("digits", "pair:0.2", "cross_entropy", epochs=1).recipe
    experiment = run.set_up(chosen)
    kept = round(0.6 * len(digits.train))
    assert len(experiment.train.y) == int(0.9 * kept)
    assert len(experiment.validation.y) == kept - int(0.9 * kept)
    rows = {tuple(row) for row in torch.cat([experiment.train.x, experiment.validation.x]).tolist()}
    reduced = {tuple(row) for row in load_without_anchors("digits").train.x.tolist()}
    assert rows == reduced, "validation rows are also from the reduced set"
    run.run(experiment, tmp_path)
    folder = chosen.folder(tmp_path)
    assert folder.parent == tmp_path
    assert folder.name.startswith("digits-NA-pair0.2-cross_entropy-s1-")
    assert (folder / "result.json").exists()


def test_training_reports_progress(digits, cache):
    calls = []
    clean_scores(digits, progress=lambda *call: calls.append(call))
    assert calls == [("anchor points of digits", done, 12) for done in range(13)]


def test_scores_of_an_accelerated_network_are_kept_apart(digits, cache, monkeypatch):
    clean_scores(digits)
    monkeypatch.setattr(no_anchors, "choose", lambda network, wanted: wanted)
    monkeypatch.setattr(no_anchors, "_train_and_score", lambda *args: np.zeros(len(digits.train)))
    assert clean_scores(digits, accelerated=False).any()
    assert not clean_scores(digits, accelerated=True).any()


def test_load_dataset_never_trains():
    with pytest.raises(InputError, match="digits/NA .* volmin.experiments.no_anchors.load_without_anchors"):
        volmin.load_dataset("digits/NA")


def test_unknown_data_sets_are_refused():
    with pytest.raises(InputError, match=r"Unknown data set 'clothing1m/NA'. Choose one of: digits/NA, mnist/NA"):
        load_without_anchors("clothing1m")
    with pytest.raises(InputError, match="Unknown data set 'imagenet/NA'"):
        spec.resolve("imagenet/NA", "pair:0.2", "cross_entropy")
