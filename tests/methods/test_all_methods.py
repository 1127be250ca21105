"""What holds for every method: add a file to ``volmin/methods`` and it is tested here."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import volmin
from volmin import methods, networks, noise
from volmin.data import Batch, TensorLoader
from volmin.experiments import run, spec
from volmin.training import clean_probs
from volmin.training.epoch import parameters_of

C = 4
RECIPE = volmin.Recipe(epochs=20, batch_size=50, lr=0.05)
VARIANTS = [
    *((name, {}) for name in methods.names()),
    ("co_teaching", {"noise_rate": 0.3, "ramp": 0.5}),
    ("decoupling", {"least": 0.1}),
    ("forward", {"T": noise.pair(C, 0.3).tolist()}),
    ("forward", {"estimator": "max"}),
    ("gce", {"truncate": 0.4}),
    ("mentornet", {"curriculum": "predefined"}),
    ("s_adaptation", {"model": "complex", "beta": 0.1}),
    ("tv", {"dirichlet": True, "concentration": 1.0}),
]
every_method = pytest.mark.parametrize("name", methods.names())
every_variant = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{name}-{json.dumps(options)[:30]}" for name, options in VARIANTS]
)
ignore_poor_estimates = pytest.mark.filterwarnings("ignore::volmin.transition.DegenerateTransitionWarning")


@cache
def blobs(count=800, num_classes=C, seed=0):
    """Blobs around the corners of a simplex: inputs, labels with 30 % pair noise, clean labels."""
    generator = np.random.default_rng(seed)
    clean = np.arange(count) % num_classes
    x = 3 * np.eye(num_classes)[clean] + 0.5 * generator.normal(size=(count, num_classes))
    noisy = noise.corrupt(clean, noise.pair(num_classes, 0.3), seed)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(noisy), torch.tensor(clean)


def loaders(**changes):
    x, y, _ = blobs(**changes)
    return TensorLoader(x[200:], y[200:], RECIPE.batch_size), TensorLoader(x[:200], y[:200], 200)


def build(name, num_classes=C, seed=0, **options):
    torch.manual_seed(seed)
    return methods.get(name)(networks.mlp(num_classes, num_classes, (16,)), num_classes, **options)


@cache
def trained(name, options="{}"):
    method = build(name, **json.loads(options))
    # Accuracy hardly sees T, and the loss says little of a method that does not fit the noisy labels.
    selection = "loss" if method.estimates_transition else "accuracy"
    volmin.fit(method, *loaders(), replace(RECIPE, selection=selection))
    return method


@every_variant
def test_it_learns_clean_labels_from_noisy_ones(name, options):
    """A memoriser of the training labels would be right on 70 %, and would answer T = I."""
    method = trained(name, json.dumps(options))
    x, _, clean = blobs(seed=1)
    probs = clean_probs(method, x.split(200))
    assert (probs.argmax(1) == clean).double().mean() > 0.9
    T = method.transition()
    assert (T is not None) == method.estimates_transition
    if T is not None:
        assert T.dtype == torch.float32
        assert torch.allclose(T.sum(0), torch.ones(C), atol=1e-3 if name == "t_revision" else 1e-5)
        wrong = T.detach().clone().fill_diagonal_(-1)
        assert wrong.argmax(0).tolist() == [1, 2, 3, 0]
        if name != "linear_noise_layer":  # it moves the noise slowly out of the network
            assert volmin.transition_error(noise.pair(C, 0.3), T) < 0.4


class KilledError(Exception):
    pass


def stop_after(epochs):
    def on_epoch(history):
        if len(history) == epochs:
            raise KilledError

    return on_epoch


@ignore_poor_estimates
@every_variant
def test_a_killed_run_ends_in_the_same_bits(name, options, tmp_path):
    recipe = volmin.Recipe(epochs=4, batch_size=50, lr=0.05)
    train, val = loaders(count=400)
    whole = build(name, **options)
    history = volmin.fit(whole, train, val, recipe)
    first = sum(record["phase"] == history[0]["phase"] for record in history)
    for number, epochs in enumerate({1, first, len(history) - 1}):
        checkpoint = tmp_path / f"{number}.ckpt"
        with pytest.raises(KilledError):
            volmin.fit(build(name, **options), train, val, recipe, checkpoint, on_epoch=stop_after(epochs))
        resumed = build(name, seed=9, **options)  # another random start: all that counts is in the checkpoint
        again = volmin.fit(resumed, train, val, recipe, checkpoint)
        assert [r["train_loss"] for r in again] == [r["train_loss"] for r in history]
        expected, found = whole.state_dict(), resumed.state_dict()
        assert list(expected) == list(found)
        assert all(torch.equal(expected[key], found[key]) for key in expected)


@every_variant
def test_options_survive_json_and_others_are_refused(name, options):
    kind = methods.get(name)
    every_option = methods.option_defaults(kind) | options
    assert json.loads(json.dumps(every_option)) == every_option
    build(name, **json.loads(json.dumps(every_option)))
    with pytest.raises(ValueError, match="no option 'nonsense'"):
        methods.check_options(kind, {"nonsense": 1})


@every_method
def test_its_recipe_and_description_are_complete(name):
    kind = methods.get(name)
    volmin.Recipe(**kind.recipe_changes)
    assert getattr(methods, kind.__name__) is kind
    assert getattr(methods, kind.__name__) is kind
    assert kind.needs
    assert (kind.__doc__ or "").split("\n")[0].endswith(".")


@every_variant
@pytest.mark.parametrize("num_classes", [2, C, 100])
@pytest.mark.parametrize("labels", ["one example", "one class"])
def test_every_loss_takes_any_batch(name, options, num_classes, labels):
    if "T" in options:
        options = {"T": noise.pair(num_classes, 0.3).tolist()}
    method = build(name, num_classes, **options)
    if name == "gce":
        method.kept = torch.ones(8)
    count = 1 if labels == "one example" else 8
    x = torch.randn(count, num_classes, generator=torch.Generator().manual_seed(0))
    batch = Batch(x, torch.ones(count, dtype=torch.long), torch.arange(count))
    for phase in method.phases(RECIPE):
        for epoch in {0, phase.epochs - 1}:
            parameters = parameters_of(phase.optimizers())
            loss = phase.loss(batch, epoch)
            assert loss.shape == ()
            gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
            assert all(g.isfinite().all() for g in gradients if g is not None)


@ignore_poor_estimates
@every_method
def test_two_classes_from_a_plain_data_loader_without_validation(name):
    x, y, clean = blobs(400, 2)
    method = build(name, 2)
    data = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    history = volmin.fit(method, data, recipe=volmin.Recipe(epochs=8, lr=0.05))
    assert "val_loss" not in history[-1]
    if name != "co_teaching_plus":  # where two classes are left to disagree on, a few epochs are luck
        assert (method(x).argmax(1) == clean).double().mean() > 0.9


@ignore_poor_estimates
@pytest.mark.parametrize("name", [name for name in methods.names() if name != "hoc"])  # a million triples
def test_a_hundred_classes(name):
    train, val = loaders(count=1200, num_classes=100)
    method = build(name, 100)
    volmin.fit(method, train, val, volmin.Recipe(epochs=1, batch_size=200))
    if (T := method.transition()) is not None:
        assert torch.allclose(T.sum(0), torch.ones(100), atol=1e-2 if name == "t_revision" else 1e-4)


@ignore_poor_estimates
@every_method
def test_a_run_folder(name, digits, tmp_path):
    chosen = spec.resolve("digits", "pair:0.2", name, epochs=2)
    result = run.run(run.set_up(chosen, dataset=digits), tmp_path)
    folder = chosen.folder(tmp_path)
    assert run.read_result(folder) == result
    assert (folder / "transition.npy").exists() == methods.get(name).estimates_transition
    assert result["selection"] == chosen.recipe.selection


@ignore_poor_estimates
@every_method
def test_the_scikit_learn_door(name):
    x, y, clean = (part.numpy() for part in blobs(300))
    classifier = volmin.NoisyLabelClassifier(name, epochs=10, batch_size=30, random_state=0, device="cpu")
    assert classifier.fit(x, y).score(x, clean) > 0.85
