import json
import re
import shutil

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from volmin import noise, transition_error
from volmin.data import Dataset, Part
from volmin.experiments import presets, run, spec
from volmin.experiments.records import read_records
from volmin.io.locks import only_process

FIELDS = {
    "accuracy", "transition_error", "selected_epoch", "selection", "last_accuracy", "last_transition_error",
    "noise_rate_estimate", "seconds", "seconds_per_epoch", "versions",
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
    """A finished run, in a folder that may be damaged."""
    result, folder, experiment = trained
    copy = experiment.spec.folder(tmp_path)
    shutil.copytree(folder, copy)
    return result, copy, experiment


def test_the_commit_of_a_run_is_that_of_its_start(tmp_path, digits, monkeypatch):
    commits = ["at the start"]
    monkeypatch.setattr(run, "_commit", lambda: commits[-1])
    experiment = run.set_up(resolve(epochs=1), dataset=digits)
    result = run.run(experiment, tmp_path, on_epoch=lambda history: commits.append("later"))
    assert result["versions"]["commit"] == "at the start"


def test_a_run_folder_holds_what_it_should(finished):
    result, folder, experiment = finished
    assert folder.name.startswith("digits-pair0.35-volminnet-s1-")
    assert {path.name for path in folder.iterdir()} == {
        "spec.json", "metrics.jsonl", "result.json", "transition.npy", "model.safetensors", "encoder.json",
    }  # fmt: skip
    assert result.keys() >= FIELDS
    assert run.read_result(folder) == result
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


def test_a_finished_run_is_not_run_again(finished, tmp_path, digits):
    result, folder, experiment = finished
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = run.run(
        run.set_up(experiment.spec, dataset=digits), tmp_path, on_epoch=lambda history: pytest.fail("trained")
    )
    assert again == result
    assert before == {path: path.stat().st_mtime_ns for path in folder.iterdir()}


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_a_run_killed_at_any_epoch_ends_in_the_same_bits(finished, tmp_path_factory, digits, stop):
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
    metrics.write_text(metrics.read_text()[:-20])  # the last line was cut off by the kill
    resumed = run.run(run.set_up(experiment.spec, dataset=digits), out)
    assert without_times(resumed) == without_times(result)
    assert (broken / "transition.npy").read_bytes() == (folder / "transition.npy").read_bytes()
    assert (broken / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert len(metrics.read_text().splitlines()) == 4
    assert not (broken / "checkpoint.ckpt").exists()


def test_what_a_process_leaves_that_was_killed_after_its_result_is_cleared_away(finished):
    _, folder, _ = finished
    left = folder / "checkpoint.ckpt"
    left.write_bytes(b"of the last epoch")
    with only_process(folder):
        run.tidy(folder)
        assert left.exists()  # it may be of use to the process that works here
    run.tidy(folder)
    assert not left.exists()


def test_whatever_changes_a_run_changes_its_folder(tmp_path):
    base = resolve().folder(tmp_path)
    changes = (
        *({"seed": 2}, {"epochs": 5}, {"options": {"lam": 0}}, {"noise": "pair:0.3"}, {"method": "cross_entropy"}),
        {"threads": 2},
    )
    folders = {resolve(**change).folder(tmp_path) for change in changes}
    assert len(folders) == len(changes)
    assert base not in folders
    assert resolve(options={"lam": 1e-4}).folder(tmp_path) == base, "a default that is spelled out is the same run"


def test_presets_differ_as_paper_and_code_do():
    paper, official = (spec.resolve("mnist", "sym:0.2", "volminnet", preset=name) for name in ("paper", "official"))
    assert (paper.recipe.weight_decay, official.recipe.weight_decay) == (1e-3, 1e-4)
    assert (paper.recipe.transition_lr, official.recipe.transition_lr) == (1e-3, 1e-2)
    assert (paper.options["init"], official.options["init"]) == (None, -2.0)
    assert paper.recipe.epochs == official.recipe.epochs == 60


def test_the_presets_of_cifar_are_the_published_ones():
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
def test_a_shorter_training_keeps_the_shares_of_its_learning_rates_and_starts_with_the_first(epochs, milestones):
    chosen = spec.resolve("cifar10", "sym:0.2", "volminnet", preset="official", epochs=epochs)
    assert (chosen.recipe.epochs, chosen.recipe.milestones) == (epochs, milestones)


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist", "cifar10", "cifar100"])
def test_every_method_keeps_the_length_of_a_fast_preset(dataset):
    epochs = presets.find(dataset, "fast").recipe.epochs
    for method in ("volminnet", "t_revision", "dual_t", "co_teaching", "ptd"):
        assert spec.resolve(dataset, "sym:0.2", method, preset="fast").recipe.epochs == epochs <= 20


@pytest.fixture
def photographs():
    """Sixty images whose classes differ in brightness, in place of CIFAR-10."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, 10, 60)
    x = torch.from_numpy(generator.integers(0, 20, (60, 3, 32, 32)) + 20 * y[:, None, None, None]).to(torch.uint8)
    part = Part(x, y)
    return Dataset("cifar10", part, part, tuple("abcdefghij"), mean=(0.5, 0.5, 0.5), std=(0.2, 0.2, 0.2))


def test_a_run_on_augmented_images_resumes_to_the_same_bits(photographs, tmp_path):
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
    assert experiment.train.x.dtype == torch.uint8
    with pytest.raises(KeyboardInterrupt):
        run.run(experiment, tmp_path / "broken", on_epoch=interrupt)
    resumed = run.run(run.set_up(chosen, dataset=photographs), tmp_path / "broken")
    assert without_times(resumed) == without_times(whole)
    first, second = (chosen.folder(tmp_path / name) / "model.safetensors" for name in ("whole", "broken"))
    assert first.read_bytes() == second.read_bytes()


def test_a_spec_without_augmentation_does_not_mention_it():
    """So the folders of runs from before there was one keep their names."""
    assert "augmentation" not in resolve().as_json()


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
def test_unknown_names_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        resolve(**changes)


def test_without_validation_the_mean_of_the_last_epochs_of_the_last_phase_is_reported(tmp_path, digits):
    """Co-teaching first estimates the noise rate: that phase must not enter."""
    experiment = run.set_up(resolve(method="co_teaching", epochs=4), dataset=digits)
    result = run.run(experiment, tmp_path)
    lines = (experiment.spec.folder(tmp_path) / "metrics.jsonl").read_text().splitlines()
    accuracies = [record["accuracy"] for record in map(json.loads, lines) if record["phase"] == "train"]
    assert len(accuracies) == 4 < len(lines)
    assert result["selection"] == "last"
    assert result["accuracy"] == accuracies[-1]
    # The authors' last ten of 200.
    assert run.mean_of_last(list(range(200))) == np.mean(range(190, 200))
    assert run.mean_of_last(list(range(60))) == 58


def test_small_data_keeps_its_own_length_of_training():
    assert spec.resolve("digits", "clean", "ptd").recipe.epochs == 150
    assert spec.resolve("mnist", "clean", "t_revision").recipe.epochs == 100
    assert spec.resolve("digits", "clean", "t_revision").recipe.selection == "accuracy"


@pytest.mark.parametrize("name", ["result.json", "spec.json", "metrics.jsonl", "transition.npy", "model.safetensors"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "gone"])
def test_a_damaged_file_of_a_finished_run_is_never_silently_used(finished, tmp_path, name, damage):
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
    with pytest.raises(ValueError, match=rf"{re.escape(name)} is damaged"):
        read_records(folder)


def test_the_noise_rate_does_not_need_all_inputs(digits, monkeypatch):
    experiment = run.set_up(spec.resolve("digits", "pair:0.35", "volminnet", epochs=1), dataset=digits)
    seen = []

    def clean_probs(method, inputs):
        seen.append(len(inputs.y))
        return torch.full((len(inputs.y), 10), 0.1)

    monkeypatch.setattr(run, "clean_probs", clean_probs)
    whole = run._noise_rate(experiment)
    monkeypatch.setattr(run, "_ENOUGH_FOR_PRIORS", 100)
    assert run._noise_rate(experiment) == pytest.approx(whole)
    assert seen[0] == len(experiment.train.y) > 1000
    assert 80 <= seen[1] <= 100
