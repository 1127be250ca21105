"""Methods that learn from several annotators, on (N, M) answers with gaps."""

import numpy as np
import pytest
import torch

import volmin
from volmin import methods, networks, noise
from volmin.data import Batch, TensorLoader
from volmin.exceptions import InputError
from volmin.methods import DawidSkene, VolMinNet
from volmin.methods.majority_vote import votes

C, M = 3, 4
T = np.stack([noise.pair(C, 0.3), noise.pair(C, 0.4).T, noise.symmetric(C, 0.3), np.eye(C)[[0, 0, 0]].T])
ABLE = [name for name in methods.names() if "annotators" in methods.option_defaults(methods.get(name))]


@pytest.fixture(scope="module")
def crowd():
    """Blobs with two answers each; the last annotator always answers 0."""
    generator = np.random.default_rng(0)
    clean = np.arange(1200) % C
    x = 2.5 * np.eye(C)[clean] + 0.7 * generator.normal(size=(len(clean), C))
    Y = np.full((len(clean), M), -1)
    for m in range(M):
        Y[:, m] = [generator.choice(C, p=T[m, :, k]) for k in clean]
    Y[np.arange(len(clean))[:, None], generator.random(Y.shape).argsort(axis=1)[:, 2:]] = -1
    return x.astype(np.float32), Y, clean


def test_methods_for_several_annotators_are_known():
    assert {"volminnet", "crowd_layer", "dawid_skene", "majority_vote"} <= set(ABLE)


@pytest.mark.parametrize("name", ABLE)
def test_clean_labels_are_learned(name, crowd):
    x, Y, clean = crowd
    classifier = volmin.NoisyLabelClassifier(name, epochs=15, random_state=0, device="cpu").fit(x, Y)
    # Half of the answers of a pair that includes the last annotator are 0, which only misleads the majority vote.
    assert classifier.score(x, clean) > (0.75 if name == "majority_vote" else 0.88)


@pytest.mark.parametrize("volume", ["matrices", "posteriors"])
def test_volminnet_finds_each_matrix(crowd, volume):
    x, Y, _ = crowd
    classifier = volmin.NoisyLabelClassifier(epochs=30, random_state=0, device="cpu", options={"volume": volume})
    found = classifier.fit(x, Y).transition_matrices_
    assert found is not None
    assert found.shape == (M, C, C)
    assert np.abs(found - T).mean() < 0.08
    assert found[3, 0].min() > 0.8  # the annotator who always answers 0


def test_one_annotator_gives_the_parameters_and_losses_of_volminnet():
    torch.manual_seed(0)
    method = VolMinNet(networks.mlp(C, C, (8,)), C, annotators=1)
    assert {name for name, _ in method.named_parameters() if not name.startswith("net")} == {"T.w"}
    assert [phase.loss for phase in method.phases(volmin.Recipe())] == [method.loss]
    assert torch.equal(method.transitions()[0], method.transition())


def test_training_with_answers_resumes_to_the_same_bits(crowd, tmp_path):
    x, Y, _ = crowd

    def build():
        torch.manual_seed(0)
        return VolMinNet(networks.mlp(C, C, (8,)), C, annotators=M)

    loader = TensorLoader(x, torch.tensor(Y), 100)
    recipe = volmin.Recipe(epochs=3, lr=0.05)
    whole, parts = build(), build()
    volmin.fit(whole, loader, loader, recipe)

    def stop(history):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        volmin.fit(parts, loader, loader, recipe, tmp_path / "c", on_epoch=stop)
    resumed = build()
    volmin.fit(resumed, loader, loader, recipe, tmp_path / "c")
    expected, found = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(expected[key], found[key]) for key in expected)


def test_votes_split_ties_and_ignore_missing_answers():
    y = torch.tensor([[0, 0, 1], [0, 1, -1], [-1, -1, -1]])
    assert torch.allclose(votes(y, 2), torch.tensor([[1, 0], [0.5, 0.5], [0.5, 0.5]]))


def test_dawid_skene_targets_are_bayes_rule(crowd):
    _, Y, clean = crowd
    method = DawidSkene(networks.mlp(C, C), C, annotators=M)
    y = torch.tensor(Y)
    method.estimate([Batch(torch.zeros(len(Y), C), y)])
    q = method.targets(y)
    prior, matrices = method.log_prior.exp(), method.transitions()
    row = Y[0]
    expected = prior.clone()
    for m in np.flatnonzero(row >= 0):
        expected = expected * matrices[m, row[m]]
    assert torch.allclose(q[0], expected / expected.sum(), atol=1e-5)
    voted = votes(y, C).numpy().argmax(axis=1)
    assert (q.argmax(1).numpy() == clean).mean() > (voted == clean).mean()


def test_labels_of_any_type_with_gaps(crowd):
    x, Y, clean = crowd
    names = np.array(["a", "b", "c"], dtype=object)
    text = names[Y]
    text[Y < 0] = None
    text[5] = None  # a row without any label is left out
    classifier = volmin.NoisyLabelClassifier("majority_vote", epochs=5, random_state=0, device="cpu").fit(x, text)
    assert classifier.classes_.tolist() == ["a", "b", "c"]
    assert classifier.score(x, names[clean].astype(str)) > 0.8


def test_other_methods_reject_several_annotators(crowd):
    x, Y, _ = crowd
    with pytest.raises(InputError, match=r"labels of 4 annotators, which gce cannot learn from.*volminnet"):
        volmin.NoisyLabelClassifier("gce").fit(x, Y)
    with pytest.raises(InputError, match="X has 10 rows"):
        volmin.NoisyLabelClassifier().fit(x[:10], Y)


def test_bad_options():
    with pytest.raises(InputError, match="warm_up and recalibrate are for a single T"):
        VolMinNet(networks.mlp(C, C), C, annotators=2, warm_up=0.5)
    with pytest.raises(InputError, match="volume must be"):
        VolMinNet(networks.mlp(C, C), C, volume="nonsense")  # pyright: ignore[reportArgumentType]
