import json
import re
import shutil
import warnings
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from volmin import networks, noise, transition_error
from volmin.data import Dataset, Part, TensorLoader
from volmin.exceptions import DamagedFileError, InputError
from volmin.experiments import acceleration, presets, provenance, run, spec
from volmin.experiments.folder import read_result, tidy
from volmin.experiments.predictor import load_run
from volmin.experiments.records import read_records
from volmin.io.locks import only_process

FIELDS = {
    "accuracy", "transition_error", "selected_epoch", "selection", "last_accuracy", "last_transition_error",
    "noise_rate_estimate", "seconds", "seconds_per_epoch", "versions", "warnings", "accelerated",
}  # fmt: skip


def resolve(**changes):
    settings = {"dataset": "digits", "noise": "pair:0.35", "method": "volminnet", "seed": 1, "epochs": 4} | changes
    return spec.resolve(**settings)


def without_times(result):
    return {key: value for key, value in result.items() if not key.startswith("seconds")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, digits):
    out, experiment = tmp_path_factory.mktemp("trained"), run.set_up(resolve(), dataset=digits)
    return run.run(experiment, out), experiment.spec.folder(out), experiment


@pytest.fixture
def finished(trained, tmp_path):
    """A copy of the finished run, which a test may damage."""
    result, folder, experiment = trained
    copy = experiment.spec.folder(tmp_path)
    shutil.copytree(folder, copy)
    return result, copy, experiment


def test_recorded_commit_is_that_of_the_start(tmp_path, digits, monkeypatch):
    commits = ["at the start"]
    monkeypatch.setattr(provenance, "commit", lambda: commits[-1])
    experiment = run.set_up(resolve(epochs=1), dataset=digits)
    result = run.run(experiment, tmp_path, on_epoch=lambda history: commits.append("later"))
    assert result["versions"]["commit"] == "at the start"


def test_content_of_a_run_folder(finished):
    result, folder, experiment = finished
    assert folder.name.startswith("digits-pair0.35-volminnet-s1-")
    assert {path.name for path in folder.iterdir()} == {
        "spec.json", "metrics.jsonl", "result.json", "transition.npy", "model.safetensors", "encoder.json",
    }  # fmt: skip
    assert result.keys() >= FIELDS
    assert read_result(folder) == result
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    chosen = min(lines, key=lambda line: line["val_loss"])
    assert result["selected_epoch"] == chosen["epoch"]
    assert result["accuracy"] == chosen["accuracy"]
    T = np.load(folder / "transition.npy", allow_pickle=False)
    assert np.allclose(T.sum(0), 1, atol=1e-6)
    assert transition_error(noise.pair(10, 0.35), T) == pytest.approx(chosen["transition_error"], abs=1e-6)
    assert load_file(folder / "model.safetensors").keys() == experiment.method.state_dict().keys()
    assert json.loads((folder / "spec.json").read_text())["options"]["lam"] == 1e-4


def test_result_holds_the_error_of_a_transition_that_is_changed_after_the_last_epoch(tmp_path, digits):
    experiment = run.set_up(resolve(noise="sym:0.5", epochs=30, options={"recalibrate": True}), dataset=digits)
    result = run.run(experiment, tmp_path)
    folder = experiment.spec.folder(tmp_path)
    saved = np.load(folder / "transition.npy", allow_pickle=False)
    assert result["transition_error"] == pytest.approx(transition_error(noise.symmetric(10, 0.5), saved))
    assert result["transition_error"] != result["by_selection"]["loss"]["transition_error"]
    assert load_file(folder / "model.safetensors")["scale"] != 1
    loaded = load_run(folder).transition
    assert loaded is not None
    assert np.allclose(loaded, saved)


def test_finished_run_is_not_repeated(finished, tmp_path, digits):
    result, folder, experiment = finished
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = run.run(
        run.set_up(experiment.spec, dataset=digits), tmp_path, on_epoch=lambda history: pytest.fail("trained")
    )
    assert again == result
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_run_killed_at_any_epoch_is_resumed_to_the_same_bits(finished, tmp_path_factory, digits, stop):
    result, folder, experiment = finished

    class Killed(BaseException):
        pass

    def kill(history):
        if len(history) == stop:
            raise Killed

    out = tmp_path_factory.mktemp("killed")
    with pytest.raises(Killed):
        run.run(run.set_up(experiment.spec, dataset=digits), out, on_epoch=kill)
    broken = experiment.spec.folder(out)
    assert (broken / "checkpoint.ckpt").exists()
    assert not (broken / "result.json").exists()
    metrics = broken / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-20])  # the kill cut off the last line
    resumed = run.run(run.set_up(experiment.spec, dataset=digits), out)
    assert without_times(resumed) == without_times(result)
    assert (broken / "transition.npy").read_bytes() == (folder / "transition.npy").read_bytes()
    assert (broken / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert len(metrics.read_text().splitlines()) == 4
    assert not (broken / "checkpoint.ckpt").exists()


def test_checkpoint_of_a_finished_run_is_removed_unless_a_process_is_using_it(finished):
    _, folder, _ = finished
    left_over = folder / "checkpoint.ckpt"
    left_over.write_bytes(b"last epoch")
    with only_process(folder):
        tidy(folder)
        assert left_over.exists()
    tidy(folder)
    assert not left_over.exists()


def test_every_setting_changes_the_folder(tmp_path):
    base = resolve().folder(tmp_path)
    changes = (
        *({"seed": 2}, {"epochs": 5}, {"options": {"lam": 0}}, {"noise": "pair:0.3"}, {"method": "cross_entropy"}),
        {"threads": 2},
    )
    folders = {resolve(**change).folder(tmp_path) for change in changes}
    assert len(folders) == len(changes)
    assert base not in folders
    assert resolve(options={"lam": 1e-4}).folder(tmp_path) == base, "an explicit default is the same run"


def test_mnist_presets_differ_as_paper_and_code_do():
    paper, official = (spec.resolve("mnist", "sym:0.2", "volminnet", preset=name) for name in ("paper", "official"))
    assert (paper.recipe.weight_decay, official.recipe.weight_decay) == (1e-3, 1e-4)
    assert (paper.recipe.transition_lr, official.recipe.transition_lr) == (1e-3, 1e-2)
    assert (paper.options["init"], official.options["init"]) == (None, -2.0)
    assert paper.recipe.epochs == official.recipe.epochs == 60


def test_cifar_presets_are_the_published_settings():
    """Paper and code differ in length, weight decay, network and the steps of T."""

    def settings(dataset, preset):
        chosen = spec.resolve(dataset, "sym:0.2", "volminnet", preset=preset)
        recipe = chosen.recipe
        assert (recipe.lr, recipe.batch_size, recipe.milestones) == (0.01, 128, (30, 60))
        assert chosen.augmentation == "crop_flip"
        T = (recipe.transition_optimizer, recipe.transition_lr, chosen.options["init"])
        return chosen.network, recipe.epochs, recipe.weight_decay, *T

    assert settings("cifar10", "paper") == ("resnet18", 150, 1e-3, "sgd", 0.01, None)
    assert settings("cifar10", "official") == ("resnet18", 80, 1e-4, "sgd", 0.01, -2.0)
    assert settings("cifar100", "paper") == ("resnet32", 150, 1e-3, "adam", 1e-3, None)
    assert settings("cifar100", "official") == ("resnet34", 80, 1e-4, "adam", 1e-2, -4.5)


@pytest.mark.parametrize(("epochs", "milestones"), [(80, (30, 60)), (8, (3, 6)), (1, (1, 1))])
def test_milestones_scale_with_the_number_of_epochs(epochs, milestones):
    chosen = spec.resolve("cifar10", "sym:0.2", "volminnet", preset="official", epochs=epochs)
    assert (chosen.recipe.epochs, chosen.recipe.milestones) == (epochs, milestones)


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_every_method_has_the_length_of_a_fast_preset(dataset):
    epochs = presets.find(dataset, "fast").recipe.epochs
    for method in ("volminnet", "t_revision", "dual_t", "co_teaching", "ptd"):
        assert spec.resolve(dataset, "sym:0.2", method, preset="fast").recipe.epochs == epochs <= 20


@pytest.fixture
def photographs():
    """Sixty images whose classes differ in brightness, instead of CIFAR-10."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 10, 60)
    x = torch.from_numpy(generator.integers(0, 20, (60, 3, 32, 32)) + 20 * y[:, None, None, None]).to(torch.uint8)
    part = Part(x, y)
    return Dataset("cifar10", part, part, tuple("abcdefghij"), mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


@pytest.mark.slow
def test_run_on_augmented_images_is_resumed_to_the_same_bits(photographs, tmp_path):
    chosen = spec.resolve("cifar10", "sym:0.2", "cross_entropy", preset="fast", epochs=3, threads=2)
    whole = run.run(run.set_up(chosen, dataset=photographs), tmp_path / "whole")
    assert (
        json.loads((chosen.folder(tmp_path / "whole") / "spec.json").read_text())["augmentation"]
        == "progressive_crop_flip"
    )

    def interrupt(history):
        if len(history) == 2:
            raise KeyboardInterrupt

    experiment = run.set_up(chosen, dataset=photographs)
    assert isinstance(experiment.train, TensorLoader)
    assert experiment.train.x.dtype == torch.uint8
    with pytest.raises(KeyboardInterrupt):
        run.run(experiment, tmp_path / "broken", on_epoch=interrupt)
    resumed = run.run(run.set_up(chosen, dataset=photographs), tmp_path / "broken")
    assert without_times(resumed) == without_times(whole)
    first, second = (chosen.folder(tmp_path / name) / "model.safetensors" for name in ("whole", "broken"))
    assert first.read_bytes() == second.read_bytes()


def test_unused_optional_settings_are_not_in_the_spec():
    """Otherwise a new setting would change the folders of all earlier runs."""
    assert not {"augmentation", "image_side", "pretrained", "data", "accelerated"} & resolve().as_json().keys()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dataset": "imagenet"}, "Unknown data set"),
        ({"method": "magic"}, "Unknown method"),
        ({"options": {"x": 1}}, "no option 'x'"),
        ({"preset": "mine"}, "no preset 'mine'"),
        ({"devices": 0}, "devices must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
    ],
)
def test_invalid_settings_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        resolve(**changes)


def test_methods_without_validation_report_the_mean_of_their_last_epochs(tmp_path, digits):
    """Co-teaching first estimates the noise rate; that phase must not count."""
    experiment = run.set_up(resolve(method="co_teaching", epochs=4), dataset=digits)
    result = run.run(experiment, tmp_path)
    lines = (experiment.spec.folder(tmp_path) / "metrics.jsonl").read_text().splitlines()
    accuracies = [record["accuracy"] for record in map(json.loads, lines) if record["phase"] == "train"]
    assert len(accuracies) == 4 < len(lines)
    assert result["selection"] == "last"
    assert result["accuracy"] == accuracies[-1]
    # The authors average the last ten of 200.
    assert run.mean_of_last(list(range(200))) == np.mean(range(190, 200))
    assert run.mean_of_last(list(range(60))) == 58


def test_published_lengths_of_training_do_not_apply_to_digits():
    assert spec.resolve("digits", "clean", "ptd").recipe.epochs == 150
    assert spec.resolve("mnist", "clean", "t_revision").recipe.epochs == 100
    assert spec.resolve("digits", "clean", "t_revision").recipe.selection == "accuracy"


@pytest.mark.parametrize("name", ["result.json", "spec.json", "metrics.jsonl", "transition.npy", "model.safetensors"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "gone"])
def test_damaged_file_of_a_finished_run_is_detected(finished, tmp_path, name, damage):
    _, folder, _ = finished
    path = folder / name
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = {"flipped": bytes(content), "truncated": bytes(content[:-9])}
    path.unlink()
    if damage != "gone":
        path.write_bytes(damaged[damage])
    if (name, damage) == ("result.json", "gone"):
        assert read_records(tmp_path) == [], "a run without a result is not finished"
        return
    with pytest.raises(DamagedFileError, match=rf"{re.escape(name)} is damaged"):
        read_records(folder)


def test_noise_rate_uses_a_sample_of_the_inputs(digits, monkeypatch):
    experiment = run.set_up(spec.resolve("digits", "pair:0.35", "volminnet", epochs=1), dataset=digits)
    seen = []

    def clean_probs(method, inputs):
        seen.append(sum(map(len, inputs)))
        return torch.full((seen[-1], 10), 0.1)

    monkeypatch.setattr(run, "clean_probs", clean_probs)
    whole = run._noise_rate(experiment)
    monkeypatch.setattr(run, "_ENOUGH_FOR_PRIORS", 100)
    assert run._noise_rate(experiment) == pytest.approx(whole)
    assert seen[0] == sum(len(batch.y) for batch in experiment.train) > 1000
    assert 80 <= seen[1] <= 100


def interrupted_at(stop):
    def interrupt(history):
        if len(history) == stop:
            raise KeyboardInterrupt

    return interrupt


def test_warnings_survive_an_interruption(tmp_path, digits):
    """A collapse of T is only noticed in the epoch in which it happens, which is not repeated."""
    chosen = resolve(epochs=30, options={"lam": 0.5})
    results = {}
    for name in ("whole", "resumed"):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("default")
            if name == "resumed":
                experiment = run.set_up(chosen, dataset=digits)
                with pytest.raises(KeyboardInterrupt):
                    run.run(experiment, tmp_path / name, on_epoch=interrupted_at(29))
            results[name] = run.run(run.set_up(chosen, dataset=digits), tmp_path / name)
    assert any("became nearly singular in epoch" in text for text in results["whole"]["warnings"])
    assert results["resumed"]["warnings"] == results["whole"]["warnings"]
    assert not list(tmp_path.glob("*/*/warnings.json"))


def test_warnings_are_recorded_and_still_shown(tmp_path, digits, monkeypatch):
    fit = run.fit

    def warn_and_fit(*arguments, **settings):
        for text in ("once", "twice", "twice"):
            warnings.warn(text, UserWarning, stacklevel=2)
        return fit(*arguments, **settings)

    monkeypatch.setattr(run, "fit", warn_and_fit)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        result = run.run(run.set_up(resolve(epochs=1, method="cross_entropy"), dataset=digits), tmp_path)
    assert {str(warning.message) for warning in shown} == {"once", "twice"}
    assert result["warnings"] == ["once", "twice"]


@pytest.fixture
def accelerated_mlp(monkeypatch):
    """An accelerated version of the network mlp, which is the plain one; the fixture counts how often it is built."""
    built = []

    def build(network, input_shape, num_classes):
        built.append(network)
        return networks.build(network, input_shape, num_classes)

    fake = SimpleNamespace(
        is_available=lambda network: network == "mlp",
        build=build,
        thread_share=lambda module: nullcontext(),
        versions=lambda: {"numba": "0.61"},
    )
    monkeypatch.setattr(acceleration, "accelerated", fake)
    return built


def test_accelerated_network_is_used_where_available_and_recorded(tmp_path, digits, accelerated_mlp):
    chosen = resolve(epochs=1, method="cross_entropy")
    assert chosen.as_json()["accelerated"] is True
    result = run.run(run.set_up(chosen, dataset=digits), tmp_path)
    assert accelerated_mlp == ["mlp"]
    assert result["accelerated"] is True
    assert result["versions"]["numba"] == "0.61"
    plain = resolve(epochs=1, method="cross_entropy", accelerated=False)
    assert plain.folder(tmp_path) != chosen.folder(tmp_path)
    result = run.run(run.set_up(plain, dataset=digits), tmp_path)
    assert accelerated_mlp == ["mlp"]
    assert result["accelerated"] is False
    assert "numba" not in result["versions"]


def test_acceleration_that_is_not_available_is_refused(accelerated_mlp):
    assert not spec.resolve("cifar10", "sym:0.2", "volminnet").accelerated
    with pytest.raises(InputError, match="accelerated version of the network resnet18 is not available"):
        spec.resolve("cifar10", "sym:0.2", "volminnet", accelerated=True)


@pytest.mark.skipif(not acceleration.accelerated.is_available("lenet5"), reason="numba is not installed")
def test_accelerated_and_plain_lenet_agree_up_to_rounding(tmp_path):
    generator = np.random.default_rng(0)
    y = np.arange(300) % 10
    x = torch.from_numpy(generator.integers(0, 20, (300, 1, 28, 28)) + 20 * y[:, None, None, None]).to(torch.uint8)
    part = Part(x, y)
    dataset = Dataset("mnist", part, part, tuple("0123456789"), mean=(0.5,), std=(0.2,))
    weights = {}
    for accelerated in (True, False):
        chosen = spec.resolve("mnist", "sym:0.2", "cross_entropy", preset="fast", epochs=1, accelerated=accelerated)
        result = run.run(run.set_up(chosen, dataset=dataset), tmp_path)
        assert result["accelerated"] is accelerated
        assert ("numba" in result["versions"]) is accelerated
        weights[accelerated] = load_file(chosen.folder(tmp_path) / "model.safetensors")
    assert weights[True].keys() == weights[False].keys()
    for name, value in weights[True].items():
        np.testing.assert_allclose(value, weights[False][name], rtol=1e-3, atol=1e-4)
