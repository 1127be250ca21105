import json
from dataclasses import replace
from pathlib import Path

import pytest

from volmin.exceptions import DamagedFileError
from volmin.experiments import grid, run, spec
from volmin.experiments.first_phase import folder_of
from volmin.experiments.folder import read_metrics, read_result
from volmin.experiments.plan import plan, shared_training
from volmin.experiments.status import RunStatus, epochs_saved, read_status, seconds_left
from volmin.training import loop

# T is degenerate after few epochs; the warnings are recorded with the results.
pytestmark = pytest.mark.filterwarnings("default::volmin.exceptions.DegenerateTransitionWarning")
EPOCHS = 4
# All begin with four epochs of plain training; Forward and cross-entropy select by loss, the others by accuracy.
OPTIONS = {"forward": {}, "t_revision": {"warm_up": 1.0, "revise": 0.5}, "dual_t": {"warm_up": 1.0}, "dmi": {}}
METHODS = [*OPTIONS, "cross_entropy"]
VARIABLE = ("seconds", "seconds_per_epoch", "versions", "seal")


def spec_of(method, **changes):
    options = OPTIONS.get(method, {})
    return spec.resolve("digits", "pair:0.35", method, **{"epochs": EPOCHS, "options": options, **changes})


def without_times(content):
    return {key: value for key, value in content.items() if key not in VARIABLE}


@pytest.fixture(scope="module")
def alone(tmp_path_factory, digits):
    """The runs, each for itself."""
    out = tmp_path_factory.mktemp("alone")
    for method in METHODS:
        run.run(run.set_up(spec_of(method), dataset=digits), out)
    return out


def assert_same_run(each, one, two):
    first, second = (each.folder(out) for out in (one, two))
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes(), each.method
    assert without_times(read_result(first, files=True) or {}) == without_times(read_result(second, files=True) or {})
    histories = [[without_times(record) for record in read_metrics(folder)] for folder in (first, second)]
    assert histories[0] == histories[1], each.method


@pytest.fixture
def trained(monkeypatch):
    """The epochs that are trained, by their numbers within a phase."""
    epochs, train_epoch = [], loop.train_epoch
    monkeypatch.setattr(loop, "train_epoch", lambda *a: epochs.append(a[3]) or train_epoch(*a))
    return epochs


@pytest.mark.parametrize("order", [METHODS, METHODS[::-1]])
def test_shared_training_is_done_once_and_gives_the_same_bits(order, alone, tmp_path, trained):
    specs = [spec_of(method) for method in order]
    assert {status.state for status in grid.run_grid(specs, tmp_path)} == {"done"}
    for each in specs:
        assert_same_run(each, alone, tmp_path)
    assert len({folder_of(each, tmp_path) for each in specs}) == 1
    assert len(trained) == sum(plan(each).epochs for each in specs) - (len(METHODS) - 1) * EPOCHS


class Killed(BaseException):
    pass


@pytest.mark.parametrize("stop", [1, 3])
def test_kill_inside_shared_training_loses_at_most_one_epoch(stop, alone, tmp_path, digits, trained):
    def kill(history):
        if len(history) == stop:
            raise Killed

    forward, dmi = spec_of("forward"), spec_of("dmi")
    with pytest.raises(Killed):
        run.run(run.set_up(forward, dataset=digits), tmp_path, on_epoch=kill, share=True)
    assert len(trained) == stop
    # Another method takes up where the first was killed, and the first finds the training complete.
    for each in (dmi, forward):
        run.run(run.set_up(each, dataset=digits), tmp_path, share=True)
        assert_same_run(each, alone, tmp_path)
    assert len(trained) == plan(dmi).epochs + plan(forward).epochs - EPOCHS


def test_kill_after_shared_training_resumes_without_it(alone, tmp_path, digits, trained):
    def kill(history):
        if len(history) == EPOCHS + 1:
            raise Killed

    forward = spec_of("forward")
    with pytest.raises(Killed):
        run.run(run.set_up(forward, dataset=digits), tmp_path, on_epoch=kill, share=True)
    shared = folder_of(forward, tmp_path)
    assert shared is not None
    for file in shared.iterdir():
        file.unlink()
    run.run(run.set_up(forward, dataset=digits), tmp_path, share=True)
    assert_same_run(forward, alone, tmp_path)
    assert len(trained) == plan(forward).epochs


def test_damaged_shared_training_is_reported(tmp_path, digits):
    run.run(run.set_up(spec_of("cross_entropy"), dataset=digits), tmp_path, share=True)
    forward = spec_of("forward")
    checkpoint = (folder_of(forward, tmp_path) or tmp_path) / "checkpoint.ckpt"
    content = bytearray(checkpoint.read_bytes())
    content[len(content) // 2] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(DamagedFileError, match=r"shared.*checkpoint.ckpt is damaged .*: delete it to start again"):
        run.run(run.set_up(forward, dataset=digits), tmp_path, share=True)
    assert not (forward.folder(tmp_path) / "checkpoint.ckpt").exists()


def test_identity_of_shared_training(tmp_path):
    forward = spec_of("forward")
    recipe = forward.recipe
    same = [
        spec_of("dual_t"),
        replace(forward, preset="fast"),
        replace(forward, recipe=replace(recipe, transition_lr=0.5, transition_optimizer="sgd", selection="last")),
    ]
    other = [
        spec_of("forward", seed=2),
        spec_of("forward", epochs=EPOCHS + 1),
        spec_of("dual_t", options={"warm_up": 0.5}),
        spec_of("forward", threads=2),
        replace(forward, noise="pair:0.2"),
        replace(forward, dataset="mnist"),
        replace(forward, network="lenet5"),
        replace(forward, data={"labels_file": "labels.npy", "labels_key": None, "sha256": "0" * 64}),
        replace(forward, augmentation="crop_flip"),
        *(replace(forward, recipe=replace(recipe, **{key: 0.5})) for key in ("lr", "momentum", "weight_decay")),
        *(replace(forward, recipe=replace(recipe, **change)) for change in ({"batch_size": 7}, {"optimizer": "adam"})),
        replace(forward, recipe=replace(recipe, schedule="one_cycle")),
    ]
    expected = folder_of(forward, tmp_path)
    assert {folder_of(each, tmp_path) for each in same} == {expected}
    assert expected not in {folder_of(each, tmp_path) for each in other}
    assert len({folder_of(each, tmp_path) for each in other}) == len(other)


@pytest.mark.parametrize("method", ["decoupling", "gce", "volminnet"])
def test_method_that_does_not_begin_with_plain_training(method, tmp_path, digits):
    each = spec_of(method, options={})
    assert shared_training(each) is None
    run.run(run.set_up(each, dataset=digits), tmp_path, share=True)
    assert not (tmp_path / "shared").exists()


def test_work_of_an_epoch_depends_on_networks_and_image_size():
    scores = 0.3
    assert set(plan(spec_of("decoupling", options={})).work) == {2 + scores}
    co_teaching = plan(spec_of("co_teaching", options={}))
    assert co_teaching.work == (1 + scores,) + (2 + scores,) * EPOCHS
    cifar = plan(spec.resolve("cifar10", "sym:0.2", "volminnet", preset="fast"))
    small, middle, full = ((20 / 32) ** 2 + scores, (26 / 32) ** 2 + scores, 1 + scores)
    assert cifar.work == pytest.approx([small, middle, *[small] * 4, *[middle] * 4, *[full] * 4])


def test_time_left_counts_shared_training_once(tmp_path):
    specs = [spec_of(method) for method in ("forward", "dmi")]
    first, second = (read_status(each, tmp_path) for each in specs)
    assert epochs_saved([first, second]) == EPOCHS
    # Two of the four shared epochs are done at 3 s each; left are two of them, four of Forward and four of DMI.
    first = replace(first, state="broken", epochs_done=2, seconds=(3.0, 3.0), shared_epochs=2)
    second = replace(second, shared_epochs=2)
    assert plan(specs[1]).epochs == 2 * EPOCHS
    assert seconds_left([first, second], 1) == pytest.approx(3.0 * (2 + 4 + 4))
    assert seconds_left([first, second], 2) == pytest.approx(3.0 * (2 + 4 + 4) / 2)


def test_dry_run_shows_what_is_saved(command, tmp_path):
    grid_of = ("reproduce", "table1", "--datasets", "digits", "--noises", "pair:0.35", "--seeds", "1", "--epochs", "4")
    shown = command(*grid_of, "--methods", "forward,dmi,cross_entropy", "--dry-run", "--out", tmp_path)
    assert shown.code == 0
    assert "Shared plain training saves 8 of the 20 epochs that are left." in shown.out
    assert not list(tmp_path.iterdir())


def test_spec_of_shared_training_is_stored_beside_it(tmp_path, digits):
    forward = spec_of("forward")
    run.run(run.set_up(forward, dataset=digits), tmp_path, share=True)
    shared = folder_of(forward, tmp_path)
    assert shared is not None
    assert json.loads((shared / "spec.json").read_text())["method"] == "cross_entropy"
    assert len(read_metrics(shared)) == EPOCHS


def test_assumed_work_agrees_with_recorded_times_within_a_third():
    """In epochs of cross-entropy. PTD is left out: it runs a second network that it does not train."""
    recorded = json.loads((Path(__file__).parents[2] / "results" / "speed.json").read_text())["methods"]
    for method, times in recorded.items():
        if method != "ptd":
            assumed = plan(spec_of(method, options={})).work[-1] / plan(spec_of("cross_entropy", options={})).work[-1]
            assert 2 / 3 < assumed / times < 4 / 3, method


@pytest.mark.parametrize("measured", [(37, 65, 94), (51.5, 67, 85.4)], ids=["32", "bf16-mixed"])
def test_remaining_time_of_growing_images_is_within_a_third(measured):
    """Seconds per epoch of one network with images of 20, 26 and 32 pixels, as measured on a free core or two."""
    each = spec.resolve("cifar10", "sym:0.2", "cross_entropy", preset="fast")
    seconds = [float(time) for time in measured for _ in range(4)]
    for done in range(1, 12):
        status = RunStatus(each, "broken", done, 12, tuple(seconds[:done]), done, None)
        left = seconds_left([status], 1)
        assert left == pytest.approx(sum(seconds[done:]), rel=1 / 3)


def test_remaining_time_follows_the_latest_epochs():
    """An hour of other work on the machine, which made epochs three times as long, is over."""
    each = spec_of("cross_entropy", options={}, epochs=20)
    status = RunStatus(each, "broken", 15, 20, (6.0,) * 10 + (2.0,) * 5, 15, None)
    assert seconds_left([status], 1) == pytest.approx(5 * 2.0)
