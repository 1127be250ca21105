"""A short version of ``make torture``: the same functions, a few times each."""

import random

import pytest
from torture import bench as benches
from torture import devices, faults, files, inputs, soak
from torture.formats import READERS
from torture.outcome import Outcome
from torture.record import markdown


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return benches.Bench(tmp_path_factory.mktemp("bench"))


def clean(outcome):
    assert outcome.skipped or (outcome.tried and not outcome.failed), outcome.failures
    return outcome


@pytest.mark.cluster
@pytest.mark.parametrize("moment", benches.MOMENTS)
def test_run_killed_while_writing_is_resumed_to_the_same_bits(bench, moment):
    out = bench.fresh()
    assert bench.commands["train"].run(out, (moment, 4)).code == -9
    assert not benches.half_written(out)
    assert bench.judge("train", out, bench.commands["train"].run(out), may_refuse=False) == ("right", "")


@pytest.mark.cluster
def test_run_killed_at_a_random_moment_is_resumed_to_the_same_bits(bench):
    clean(faults.killed_at_random(bench, "train", 2, random.Random(0)))


@pytest.mark.cluster
def test_audit_killed_while_writing_is_complete_after_a_second_run(bench):
    out = bench.fresh()
    assert bench.commands["audit"].run(out, ("half written", 3)).code == -9
    assert bench.judge("audit", out, bench.commands["audit"].run(out), may_refuse=False) == ("right", "")


@pytest.mark.cluster
def test_damaged_files_are_refused_or_replaced(bench):
    clean(faults.damaged(bench, "train", 4, random.Random(0), finished=True))
    clean(faults.damaged(bench, "train", 3, random.Random(0), finished=False))
    assert clean(faults.damaged_audit_is_noticed(bench, 20, random.Random(0))).refused > 10


@pytest.mark.cluster
def test_full_disk_loses_nothing(bench):
    clean(faults.full_disk(bench, "train", (130,)))


@pytest.mark.cluster
def test_two_processes_do_not_disturb_each_other(bench):
    clean(faults.two_at_once(bench, "train", 1, random.Random(0)))


@pytest.mark.cluster
def test_harness_detects_lost_results(bench):
    """Otherwise it could never fail."""
    out = bench.fresh()
    assert bench.commands["train"].run(out).code == 0
    next(out.rglob("transition.npy")).write_bytes(b"another")
    assert bench.judge("train", out, benches.Ended(0, ""), may_refuse=True)[0] == "failed"
    assert "transition.npy is damaged" in benches.half_written(out)
    assert bench.judge("train", out, benches.Ended(2, "Traceback"), may_refuse=True)[0] == "failed"


@pytest.mark.parametrize("kind", READERS)
def test_mutated_files_raise_the_errors_of_the_package(kind):
    found = Outcome(**files.try_kind(kind, 25, seed=1))
    assert found.tried == 25
    assert not found.failures


@pytest.mark.parametrize("name", inputs.TARGETS)
def test_bad_input_ends_in_a_result_or_a_clear_error(name):
    examples = 15 if inputs.TARGETS[name].share == 1 else 3 if inputs.TARGETS[name].share > 0.1 else 1
    assert not inputs.try_target(name, examples, seed=3).failures


def test_every_public_function_is_tried_with_bad_input():
    known = {f"{target.function.__module__}.{target.function.__name__}" for target in inputs.TARGETS.values()}
    tried = {name.removeprefix("volmin.") for name in known} | set(inputs.TARGETS)
    tried |= {f"estimation.{name}" for name in tried}
    assert inputs.public_functions() - tried - inputs.INNER == set()


@pytest.mark.slow
def test_trainings_keep_no_memory():
    assert soak.leaked_megabytes(fits=8, first=4) < soak.MOST_LEAKED


def test_audit_of_simulated_data_is_sound():
    assert soak.audit_figures(1_000, 10)["sound"]


@pytest.mark.cluster
def test_methods_agree_in_two_processes():
    for outcome in devices.run(("volminnet", "dmi", "co_teaching")):
        assert not outcome.failures, outcome.failures


def test_page_shows_the_record():
    outcome = Outcome("faults", "killed")
    outcome.count("right")
    outcome.count("failed", "other bits")
    part = {"date": "2026-01-01", "seconds": 60, "share": 0.5, "outcomes": [outcome.as_json()]}
    text = markdown({"faults": part})
    assert "**2 tried**: 1 same bits, 0 refused in one line, **1 lost**" in text
    assert "50% of the full program" in text
    assert "| killed | 2 | 1 | 0 | 1 |" in text
