"""Requirements on every method; a new method in ``volmin/methods`` is tested without changes here."""

import inspect
import io
import json
import pkgutil
import random
from dataclasses import replace
from functools import cache
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.optim import Optimizer
from torch.utils.data import DataLoader, TensorDataset

import volmin
from volmin import methods, networks, noise
from volmin.data import Batch, TensorLoader
from volmin.exceptions import InputError
from volmin.experiments import run, spec
from volmin.methods import GCE, Method
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
    ("volminnet", {"warm_up": 0.5, "shared_level": True}),
    ("volminnet", {"recalibrate": True}),
]
every_method = pytest.mark.parametrize("name", methods.names())
every_variant = pytest.mark.parametrize(
    ("name", "options"), VARIANTS, ids=[f"{name}-{json.dumps(options)[:30]}" for name, options in VARIANTS]
)
ignore_poor_estimates = pytest.mark.filterwarnings("ignore::volmin.exceptions.DegenerateTransitionWarning")


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
    # Accuracy hardly depends on T, and the loss is not informative for methods that do not fit the noisy labels.
    selection = "loss" if method.estimates_transition else "accuracy"
    volmin.fit(method, *loaders(), replace(RECIPE, selection=selection))
    return method


@every_variant
def test_clean_labels_are_learned_from_noisy_ones(name, options):
    """Memorising the training labels would give 70 % accuracy and T = I."""
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
        if name != "linear_noise_layer":  # the noise moves slowly from the network into Q
            assert volmin.transition_error(noise.pair(C, 0.3), T) < 0.4


class InterruptionError(Exception):
    pass


def stop_after(epochs):
    def on_epoch(history):
        if len(history) == epochs:
            raise InterruptionError

    return on_epoch


@ignore_poor_estimates
@every_variant
def test_interrupted_training_resumes_to_the_same_bits(name, options, tmp_path):
    recipe = volmin.Recipe(epochs=4, batch_size=50, lr=0.05)
    train, val = loaders(count=400)
    whole = build(name, **options)
    history = volmin.fit(whole, train, val, recipe)
    first = sum(record["phase"] == history[0]["phase"] for record in history)
    for number, epochs in enumerate({1, first, len(history) - 1}):
        checkpoint = tmp_path / f"{number}.ckpt"
        with pytest.raises(InterruptionError):
            volmin.fit(build(name, **options), train, val, recipe, checkpoint, on_epoch=stop_after(epochs))
        resumed = build(name, seed=9, **options)  # other random weights: the checkpoint replaces them
        again = volmin.fit(resumed, train, val, recipe, checkpoint)
        assert [r["train_loss"] for r in again] == [r["train_loss"] for r in history]
        expected, found = whole.state_dict(), resumed.state_dict()
        assert list(expected) == list(found)
        assert all(torch.equal(expected[key], found[key]) for key in expected)


@every_variant
def test_options_round_trip_through_json_and_unknown_ones_are_rejected(name, options):
    kind = methods.get(name)
    every_option = methods.option_defaults(kind) | options
    assert json.loads(json.dumps(every_option)) == every_option
    build(name, **json.loads(json.dumps(every_option)))
    with pytest.raises(ValueError, match="no option 'nonsense'"):
        methods.check_options(kind, {"nonsense": 1})


@every_method
def test_recipe_and_description_are_complete(name):
    kind = methods.get(name)
    volmin.Recipe(**kind.recipe_changes)
    assert kind.needs
    description = inspect.getdoc(kind) or ""
    assert description.split("\n")[0].endswith(".")
    for argument in ("net", "num_classes", *methods.option_defaults(kind)):
        assert f"\n    {argument}: " in description


def test_exported_classes_are_those_of_the_files():
    """One class per file, of the same name but for case and underscores."""
    files = {module.name for module in pkgutil.iter_modules(methods.__path__)}
    files = {name for name in files - {"base", "options"} if not name.startswith("_")}
    assert set(methods.names()) == files
    for name in files:
        module = import_module(f"volmin.methods.{name}")
        defined = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
        assert defined == [methods.get(name)]
        assert defined[0].__name__.lower() == name.replace("_", "")
    exported = {value for value in (getattr(methods, name) for name in methods.__all__) if isinstance(value, type)}
    assert exported == {Method, *(methods.get(name) for name in files)}


@every_variant
def test_describing_phases_changes_nothing(name, options, monkeypatch):
    """No optimiser is built, no random number is drawn, and the method stays the same."""
    method = build(name, **options)

    def state():
        buffer = io.BytesIO()
        torch.save((method, torch.get_rng_state(), np.random.get_state(), random.getstate()), buffer)
        return buffer.getvalue()

    def refuse(*_, **__):
        raise AssertionError("phases() built an optimiser")

    monkeypatch.setattr(Optimizer, "__init__", refuse)
    before = state()
    first, second = ([(phase.name, phase.epochs) for phase in method.phases(RECIPE)] for _ in range(2))
    assert first == second
    assert state() == before


@pytest.mark.parametrize(
    "name", ["nonsense", ":GCE", ".gce:GCE", "nowhere:GCE", "volmin.methods.gce:Nothing", "json:dumps"]
)
def test_unknown_method_is_rejected(name):
    with pytest.raises(InputError, match=name):
        methods.get(name)


@every_variant
@pytest.mark.parametrize("num_classes", [2, C, 100])
@pytest.mark.parametrize("labels", ["one example", "one class"])
def test_losses_and_gradients_are_finite_on_degenerate_batches(name, options, num_classes, labels):
    if "T" in options:
        options = {"T": noise.pair(num_classes, 0.3).tolist()}
    method = build(name, num_classes, **options)
    if isinstance(method, GCE):
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
def test_two_classes_with_a_data_loader_and_no_validation_data(name):
    x, y, clean = blobs(400, 2)
    method = build(name, 2)
    data = DataLoader(TensorDataset(x, y), batch_size=50, shuffle=True)
    history = volmin.fit(method, data, recipe=volmin.Recipe(epochs=8, lr=0.05))
    assert "val_loss" not in history[-1]
    if name != "co_teaching_plus":  # too few disagreements between two classes for a few epochs
        assert (method(x).argmax(1) == clean).double().mean() > 0.9


@ignore_poor_estimates
@pytest.mark.parametrize("name", [name for name in methods.names() if name != "hoc"])  # HOC counts a million triples
def test_a_hundred_classes(name):
    train, val = loaders(count=1200, num_classes=100)
    method = build(name, 100)
    volmin.fit(method, train, val, volmin.Recipe(epochs=1, batch_size=200))
    if (T := method.transition()) is not None:
        assert torch.allclose(T.sum(0), torch.ones(100), atol=1e-2 if name == "t_revision" else 1e-4)


@ignore_poor_estimates
@every_method
def test_run_folder_holds_result_and_transition(name, digits, tmp_path):
    chosen = spec.resolve("digits", "pair:0.2", name, epochs=2)
    result = run.run(run.set_up(chosen, dataset=digits), tmp_path)
    folder = chosen.folder(tmp_path)
    assert run.read_result(folder) == result
    assert (folder / "transition.npy").exists() == methods.get(name).estimates_transition
    assert result["selection"] == chosen.recipe.selection


@ignore_poor_estimates
@every_method
def test_estimator_learns_clean_labels(name):
    x, y, clean = (part.numpy() for part in blobs(300))
    classifier = volmin.NoisyLabelClassifier(name, epochs=10, batch_size=30, random_state=0, device="cpu")
    assert classifier.fit(x, y).score(x, clean) > 0.85
