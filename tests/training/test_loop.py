import io
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import volmin
from volmin import Recipe, fit, methods, networks, noise
from volmin.data import Batch, TensorLoader
from volmin.exceptions import TrainingDivergedError
from volmin.io.sealed import read_sealed_bytes, write_sealed_bytes
from volmin.losses import forward_nll
from volmin.methods import CrossEntropy, Method, VolMinNet
from volmin.networks import last_linear
from volmin.training import Phase, Selection, clean_probs, noisy_scores, selected
from volmin.training.recipe import one_cycle, steps
from volmin.transition import DegenerateTransitionWarning, DominantTransition, degeneracy, log_volume

IDENTIFIABLE = torch.tensor([[0.7, 0.2, 0.05], [0.2, 0.7, 0.25], [0.1, 0.1, 0.7]], dtype=torch.double)


def blobs(count=600, num_classes=3, rate=0.3, seed=0):
    """Well separated Gaussian blobs with pair noise: inputs, noisy labels, clean labels."""
    generator = np.random.default_rng(seed)
    clean = np.arange(count) % num_classes
    angle = 2 * np.pi * clean / num_classes
    x = 3 * np.stack([np.cos(angle), np.sin(angle)], 1) + 0.5 * generator.normal(size=(count, 2))
    noisy = noise.corrupt(clean, noise.pair(num_classes, rate), seed)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(noisy), torch.tensor(clean)


def build(method: Any = VolMinNet, num_classes: int = 3, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return method(networks.mlp(2, num_classes, (16,)), num_classes, **options)


def loaders(batch_size=64, **changes):
    x, y, _ = blobs(**changes)
    return TensorLoader(x[100:], y[100:], batch_size), TensorLoader(x[:100], y[:100], 100)


class InterruptError(Exception):
    pass


def bits(method):
    return {name: value.numpy().tobytes() for name, value in method.state_dict().items()}


@pytest.mark.parametrize("shared_level", [False, True])
def test_T_is_recovered_from_exact_posteriors_without_anchor_points(shared_level):
    """Six scattered posteriors, none an anchor; free h, exact noisy posteriors, the paper's objective."""
    eye = torch.eye(3, dtype=torch.double)
    scattered = torch.stack([0.8 * eye[i] + 0.2 * eye[j] for i in range(3) for j in range(3) if i != j])
    q = scattered @ IDENTIFIABLE.T

    def recover(lam):
        T = DominantTransition(3, 0.0, shared_level=shared_level).double()
        logits = torch.zeros(6, 3, dtype=torch.double, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [logits, *T.parameters()],
            max_iter=8000,
            max_eval=20000,
            history_size=50,
            tolerance_grad=1e-12,
            tolerance_change=1e-16,
            line_search_fn="strong_wolfe",
        )

        def loss():
            optimizer.zero_grad()
            value = -(q * (logits.softmax(1) @ T().T).log()).sum(1).mean() + lam * log_volume(T())
            value.backward()
            return value

        optimizer.step(loss)
        return volmin.transition_error(IDENTIFIABLE, T())

    assert recover(1e-4) < 1e-3
    assert recover(0) > 0.02, "without the volume T is not determined"


def test_volminnet_finds_T_and_beats_cross_entropy(noisy_digits, digits):
    split, T = noisy_digits
    test = TensorLoader(digits.test.x, digits.test.y, 360)
    recipe, accuracy, transitions = Recipe(epochs=100, lr=0.05, weight_decay=1e-3), {}, {}
    for kind in (VolMinNet, CrossEntropy):
        torch.manual_seed(1)
        method = kind(networks.mlp(64, 10), 10)
        fit(method, TensorLoader(split.train.x, split.train.y), TensorLoader(split.validation.x, split.validation.y),
            recipe, seed=1)  # fmt: skip
        accuracy[kind] = (clean_probs(method, [test.x]).argmax(1) == test.y).float().mean().item()
        transitions[kind] = method.transition()
    found = transitions[VolMinNet].detach().numpy()
    assert volmin.transition_error(T, found) < 0.2
    assert (np.argsort(found, axis=0)[-2] == (np.arange(10) + 1) % 10).all(), "noise goes to the next class"
    assert accuracy[VolMinNet] > accuracy[CrossEntropy] + 0.15


def test_noisy_validation_selects_the_weights():
    train, val = loaders()
    rules: dict[Selection, str] = {"loss": "val_loss", "accuracy": "val_accuracy"}
    for rule, key in rules.items():
        method = build(lam=0.0)
        history = fit(method, train, val, Recipe(epochs=12, lr=0.5, selection=rule))
        values = [record[key] for record in history]
        best = min(values) if rule == "loss" else max(values)
        assert selected(history, rule)[key] == best
        assert noisy_scores(method, val)[key] == pytest.approx(best, abs=1e-6)


def test_validation_loss_is_of_the_noisy_posterior_without_the_volume():
    _, val = loaders()
    method = build(lam=100.0)
    x, y = val.x, val.y
    with torch.no_grad():
        expected = -(method(x).softmax(1) @ method.transition().T).log()[torch.arange(len(y)), y].mean()
    assert noisy_scores(method, val)["val_loss"] == pytest.approx(expected.item(), abs=1e-5)
    smaller = TensorLoader(x, y, 7)
    assert noisy_scores(method, smaller)["val_loss"] == pytest.approx(expected.item(), abs=1e-5)


def test_warm_up_recovers_heavy_pair_noise():
    x, y, clean = blobs(1500, num_classes=4, rate=0.45)
    method = build(num_classes=4, warm_up=0.5)
    history = fit(method, TensorLoader(x[300:], y[300:], 32), TensorLoader(x[:300], y[:300]), Recipe(epochs=12))
    assert [r["phase"] for r in history] == ["warm-up"] * 6 + ["train"] * 12
    assert volmin.transition_error(noise.pair(4, 0.45), method.transition()) < 0.15
    assert (method(x).argmax(1) == clean).float().mean() > 0.95
    with pytest.raises(ValueError, match="warm_up must be a share"):
        build(warm_up=2)


def test_last_epoch_is_kept_without_validation_data():
    train, _ = loaders()
    method = build()
    seen = []
    history = fit(method, train, recipe=Recipe(epochs=3), on_epoch=lambda h: seen.append(bits(method)))
    assert bits(method) == seen[-1] != seen[0]
    assert selected(history, "loss")["epoch"] == 3


@pytest.mark.parametrize("stop", [1, 3, 4, 5, 6])
def test_interrupted_training_resumes_to_the_same_bits(tmp_path, stop):
    """Two phases with different optimisers, dropout and a schedule, interrupted in and at the ends of both."""

    class TwoPhases(VolMinNet):
        def phases(self, recipe):
            warm = Phase(
                "warm-up", 3, self.cross_entropy, lambda: [recipe.network_optimizer(self.net, optimizer="adam")]
            )
            main = Phase("main", 3, self.loss, super().phases(recipe)[0].optimizers, steps([1, 2]), self.shift)
            return [warm, main]

        def shift(self, batches):
            seen = torch.cat([batch.index for batch in batches])
            assert torch.equal(seen, torch.arange(len(seen))), "prepare sees all rows in order"
            self.T.w.add_(0.1 * torch.randn(()))

    def train(on_epoch=None, checkpoint=None):
        torch.manual_seed(3)
        method = TwoPhases(nn.Sequential(networks.mlp(2, 8), nn.Dropout(0.2), nn.Linear(8, 3)), 3)
        history = fit(method, *loaders(), Recipe(epochs=1), checkpoint, seed=5, on_epoch=on_epoch)
        return method, [{k: v for k, v in record.items() if k != "seconds"} for record in history]

    def interrupt(history):
        if len(history) == stop:
            raise InterruptError

    whole, whole_history = train()
    with pytest.raises(InterruptError):
        train(interrupt, tmp_path / "c.ckpt")
    resumed, resumed_history = train(checkpoint=tmp_path / "c.ckpt")
    assert bits(resumed) == bits(whole)
    assert resumed_history == whole_history
    finished, _ = train(lambda history: pytest.fail("nothing is left to train"), tmp_path / "c.ckpt")
    assert bits(finished) == bits(whole)


def test_checkpoint_of_another_run_or_damaged_is_rejected(tmp_path):
    path = tmp_path / "c.ckpt"
    fit(build(), *loaders(), Recipe(epochs=1), path)
    with pytest.raises(ValueError, match=r"another run \(seed: 0 there, 1 here\)"):
        fit(build(), *loaders(), Recipe(epochs=1), path, seed=1)
    with pytest.raises(ValueError, match="another run"):
        fit(build(), *loaders(), Recipe(epochs=1, lr=0.02), path)
    with pytest.raises(ValueError, match=r"another run \(precision: 32 there, bf16-mixed here\)"):
        fit(build(), *loaders(), Recipe(epochs=1), path, precision="bf16-mixed")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="damaged"):
        fit(build(), *loaders(), Recipe(epochs=1), path)


@pytest.mark.parametrize("part", ["weights", "optimizers", "best_weights"])
def test_incomplete_checkpoint_with_valid_checksum_is_rejected(tmp_path, part):
    def kill(history):
        raise InterruptError

    path, recipe = tmp_path / "c.ckpt", Recipe(epochs=2)
    with pytest.raises(InterruptError):
        fit(build(), *loaders(), recipe, path, on_epoch=kill)
    state = torch.load(io.BytesIO(read_sealed_bytes(path)), weights_only=True)
    inner = {"weights": state["weights"], "optimizers": state["optimizers"][0]} | state["progress"]
    (inner[part]["loss"] if part == "best_weights" else inner[part]).popitem()
    content = io.BytesIO()
    torch.save(state, content)
    write_sealed_bytes(path, content.getvalue())
    with pytest.raises(ValueError, match=r"c.ckpt is damaged \(\w+\): delete it to start again"):
        fit(build(), *loaders(), recipe, path)


def test_checkpoint_cannot_execute_code(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the checkpoint ran code",))

    content = io.BytesIO()
    torch.save({"identity": Bomb()}, content)
    write_sealed_bytes(tmp_path / "c.ckpt", content.getvalue())
    with pytest.raises(ValueError, match=r"damaged \(UnpicklingError\)"):
        fit(build(), *loaders(), Recipe(epochs=1), tmp_path / "c.ckpt")


def test_phase_trains_only_the_parameters_of_its_optimisers():
    class HeadOnly(CrossEntropy):
        def phases(self, recipe):
            return [Phase("head", 2, self.cross_entropy, lambda: [SGD(last_linear(self.net).parameters(), lr=0.1)])]

    method = build(HeadOnly)
    method.net[-1].bias.requires_grad_(False)
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    fit(method, *loaders(), Recipe())
    changed = {name for name, p in method.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"net.3.weight", "net.3.bias"}
    assert not method.net[-1].bias.requires_grad
    assert method.net[1].weight.requires_grad


def test_random_state_and_inputs_of_the_caller_are_unchanged():
    train, val = loaders()
    torch.manual_seed(9)
    before = torch.get_rng_state()
    x = train.x.clone()
    fit(build(seed=9), train, val, Recipe(epochs=1))
    torch.manual_seed(9)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(train.x, x)


def test_user_network_and_data_loader():
    x, y, clean = blobs()
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 3))
    method = VolMinNet(net, 3)
    data = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
    fit(method, data, DataLoader(TensorDataset(x[:90], y[:90]), batch_size=90), recipe=Recipe(epochs=30, lr=0.05))
    assert (method(x).argmax(1) == clean).float().mean() > 0.95
    T = method.transition().detach()
    assert [T[(j + 1) % 3, j] > T[(j - 1) % 3, j] for j in range(3)] == [True] * 3


def test_pieces_work_in_a_user_loop():
    x, y, clean = blobs(2000, num_classes=4)
    torch.manual_seed(0)
    net, T = networks.mlp(2, 4), volmin.DominantTransition(4)
    optimizers = [SGD(net.parameters(), lr=0.1, momentum=0.9), torch.optim.Adam(T.parameters(), lr=0.02)]
    for _ in range(300):
        loss = forward_nll(net(x), T(), y) + 1e-4 * volmin.log_volume(T())
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
    assert volmin.transition_error(noise.pair(4, 0.3), T()) < 0.1
    assert (net(x).argmax(1) == clean).float().mean() > 0.95


def test_two_classes():
    generator = np.random.default_rng(0)
    clean = np.arange(800) % 2
    x = torch.tensor(generator.normal(size=(800, 2)) + 4 * clean[:, None], dtype=torch.float32)
    T = np.array([[0.9, 0.3], [0.1, 0.7]])
    y = torch.tensor(noise.corrupt(clean, T, 0))
    method = build(num_classes=2)
    fit(method, TensorLoader(x, y, 64), recipe=Recipe(epochs=40, lr=0.05))
    assert volmin.transition_error(T, method.transition()) < 0.12
    assert (method(x).argmax(1).numpy() == clean).mean() > 0.97


@pytest.mark.parametrize("method", [VolMinNet, CrossEntropy])
def test_batch_of_one_row_or_one_class(method):
    x, y, _ = blobs(30)
    order = y.argsort()
    for batch_size in (1, 5):
        history = fit(build(method), TensorLoader(x[order], y[order], batch_size), recipe=Recipe(epochs=1, lr=0.01))
        assert math.isfinite(history[0]["train_loss"])


def test_zero_and_heavy_volume_weights():
    train, val = loaders()
    fit(build(lam=0.0), train, val, Recipe(epochs=5))
    heavy, epochs = build(lam=3.0), []
    with pytest.warns(DegenerateTransitionWarning, match="lower lam") as told:
        fit(
            heavy,
            train,
            val,
            Recipe(epochs=60, transition_lr=0.05, selection="last"),
            on_epoch=lambda history: epochs.append((len(told), degeneracy(heavy.transition().detach()) is None)),
        )
    # Once in the epoch in which T collapses, and once at the end of training.
    assert [bool(warned) for warned, _ in epochs] == [not sound for _, sound in epochs]
    collapse = 1 + epochs.index((1, False))
    assert 1 < collapse < 60
    assert f"became nearly singular in epoch {collapse} (train)" in str(told[0].message)
    assert len(told) == 2
    assert torch.isfinite(heavy.transition()).all()
    fit(build(lam=0.1), train, val, Recipe(epochs=10))
    with pytest.raises(ValueError, match="lam must be at least 0"):
        build(lam=-1e-4)


def test_diverging_loss_raises_and_keeps_the_last_finite_epoch(tmp_path):
    class Explodes(CrossEntropy):
        def cross_entropy(self, batch, epoch):
            return super().cross_entropy(batch, epoch) * (math.nan if epoch == 2 else 1)

    with pytest.raises(TrainingDivergedError, match="epoch 3 .*Lower the learning rate"):
        fit(build(Explodes), *loaders(), Recipe(epochs=4), tmp_path / "c.ckpt")
    state = torch.load(io.BytesIO(read_sealed_bytes(tmp_path / "c.ckpt")), weights_only=True)
    assert state["progress"]["epoch"] == 2
    assert all(torch.isfinite(value).all() for value in state["weights"].values())


@pytest.mark.parametrize("in_memory", [True, False])
def test_labels_out_of_range_are_rejected(in_memory):
    x, y, _ = blobs()

    def loader(labels):
        return TensorLoader(x, labels) if in_memory else DataLoader(TensorDataset(x, labels), batch_size=64)

    for labels, message in ((y + 1, "0..2, but span"), (y - 1, "0..2, but span -1"), (y.float(), "whole numbers")):
        with pytest.raises(ValueError, match=message):
            fit(build(), loader(labels), recipe=Recipe(epochs=1))


@pytest.mark.parametrize(
    ("outputs", "change", "message"),
    [
        (3, torch.Tensor.half, r"does not take rows x of shape \(2,\) and type torch.float16: mat1"),
        (3, torch.Tensor.long, "type torch.int64"),
        (3, lambda x: x[:, :1], r"rows x of shape \(1,\)"),
        (2, lambda x: x, r"must give 3 logits for each row, one for each class, but gives \(2, 2\) for 2 rows"),
    ],
)
def test_unsuitable_network_is_rejected_before_training(outputs, change, message):
    x, y, _ = blobs()
    method = CrossEntropy(nn.Linear(2, outputs), 3)
    with pytest.raises(ValueError, match=message):
        fit(method, TensorLoader(change(x), y), recipe=Recipe(epochs=1))


def test_running_out_of_memory_is_not_reported_as_an_unsuitable_network():
    class Huge(nn.Linear):
        def forward(self, input):
            raise torch.OutOfMemoryError

    x, y, _ = blobs()
    with pytest.raises(torch.OutOfMemoryError):
        fit(CrossEntropy(Huge(2, 3), 3), TensorLoader(x, y), recipe=Recipe(epochs=1))


def test_nan_inputs_stop_training():
    x, y, _ = blobs()
    x[3, 1] = math.nan
    with pytest.raises(TrainingDivergedError, match="check the inputs"):
        fit(build(), TensorLoader(x, y), recipe=Recipe(epochs=2))


def test_learning_rates_follow_the_schedule():
    factor = steps([30, 60])
    assert [factor(e) for e in (0, 29.9, 30, 60)] == pytest.approx([1, 1, 0.1, 0.01])
    cycle = one_cycle(10)
    assert max(cycle(e / 10) for e in range(100)) == pytest.approx(1, abs=0.01)
    assert cycle(0) < 0.01
    assert cycle(10) == 0
    rates = []

    class Watch(CrossEntropy):
        def phases(self, recipe):
            return [Phase("train", 4, self.watch, lambda: [self.build(recipe)], recipe.learning_rate_schedule())]

        def build(self, recipe):
            self.optimizer = recipe.network_optimizer(self.net)
            return self.optimizer

        def watch(self, batch, epoch):
            rates.append((epoch, self.optimizer.param_groups[0]["lr"]))
            return self.cross_entropy(batch, epoch)

    fit(build(Watch), *loaders(), Recipe(epochs=4, lr=0.1, milestones=(1, 3)))
    assert dict(rates) == pytest.approx({0: 0.1, 1: 0.01, 2: 0.01, 3: 0.001})


def test_transition_parameters_have_no_weight_decay():
    recipe = Recipe(weight_decay=0.5)
    for kind in ("adam", "sgd"):
        optimizer = Recipe(weight_decay=0.5, transition_optimizer=kind).transition_optimizer_for(DominantTransition(3))
        assert optimizer.param_groups[0]["weight_decay"] == 0
    assert recipe.network_optimizer(nn.Linear(2, 2)).param_groups[0]["weight_decay"] == 0.5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number"),
        ({"batch_size": 1.5}, "batch_size must be a whole number"),
        ({"lr": -1}, "lr must be a number of at least 0"),
        ({"lr": math.nan}, "lr must be"),
        ({"selection": "test"}, "selection must be one of loss, accuracy, last"),
        ({"optimizer": "lion"}, "optimizer must be one of"),
    ],
)
def test_invalid_recipe_is_rejected(changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**changes)


def test_record_is_json():
    history = fit(build(), *loaders(), Recipe(epochs=1), measure=lambda: {"accuracy": 0.5})
    record = json.loads(json.dumps(history))[0]
    assert record.keys() == {"phase", "epoch", "train_loss", "val_loss", "val_accuracy", "accuracy", "seconds"}


def test_method_without_phases_is_abstract():
    with pytest.raises(NotImplementedError):
        Method(nn.Linear(2, 2), 2).phases(Recipe())
    assert Batch(torch.zeros(1), torch.zeros(1)).index is None


class Ordered(CrossEntropy):
    """Its authors keep the last epoch."""

    recipe_changes = {"selection": "last"}  # noqa: RUF012


@pytest.mark.parametrize(("given", "expected"), [(None, 6), ("loss", None)])
def test_rule_of_the_method_selects_unless_the_recipe_names_one(given, expected):
    train, val = loaders(rate=0.4)
    method, weights = build(Ordered), []
    recipe = Recipe(epochs=6, lr=2.0, selection=given)
    history = fit(method, train, val, recipe, on_epoch=lambda _: weights.append(bits(method)))
    best = expected or selected(history, "loss")["epoch"]
    assert bits(method) == weights[best - 1]


def test_default_recipe_is_that_of_the_authors():
    assert build(Ordered).default_recipe() == Recipe(selection="last")
    co_teaching = methods.get("co_teaching")(networks.mlp(2, 3), 3).default_recipe()
    assert (co_teaching.epochs, co_teaching.optimizer, co_teaching.selection) == (200, "adam", "last")


def test_optimizers_are_built_when_the_phase_starts():
    built = []

    class Counting(CrossEntropy):
        def phases(self, recipe):
            def optimizers():
                built.append(len(built))
                return [recipe.network_optimizer(self.net)]

            return [Phase(name, 1, self.cross_entropy, optimizers) for name in ("first", "second")]

    method = build(Counting)
    method.phases(Recipe())
    assert built == []
    fit(method, *loaders(), Recipe(), on_epoch=lambda history: built.append(-len(history)))
    assert built == [0, -1, 2, -2]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (
            {"x": torch.zeros(4, 2), "target": torch.zeros(4)},
            "entries x, target, but needs one of labels",
        ),
        ({"y": torch.zeros(4, dtype=torch.long)}, "dicts with the entries y, but needs .* pass split="),
        (torch.zeros(4, 2), "batches of the type Tensor, but must give"),
        ((torch.zeros(4, 2),), "but must give"),
    ],
)
def test_batches_of_another_structure_are_rejected(batch, message):
    with pytest.raises(volmin.VolminError, match=message):
        fit(build(), [batch], recipe=Recipe(epochs=1))


class Stream(IterableDataset):
    def __iter__(self):
        return iter([])


@pytest.mark.parametrize("loader", [iter([]), DataLoader(Stream())])
def test_loader_without_length_is_rejected(loader):
    with pytest.raises(volmin.VolminError, match="no length"):
        fit(build(), loader, recipe=Recipe(epochs=1))
