import csv
import io
import json

import pytest
from rich.console import Console

from volmin.experiments import paper, tables
from volmin.experiments.records import RunRecord, read_records, write_records

STUDY = paper.study("table1").select(["mnist"], ["sym:0.2", "pair:0.45"], ["forward", "volminnet"], 3)


def record(method, noise, seed, accuracy, error=None, **changes):
    row = next(row for row in STUDY.rows if row.method == method)
    spec = STUDY.spec(row, "mnist", noise, seed).as_json() | changes
    result = {"accuracy": accuracy, "transition_error": error, "selected_epoch": 1, "epochs": 2, "seconds": 3.0}
    return RunRecord(
        spec, result, {"accuracy": [0.1, accuracy]} | ({} if error is None else {"transition_error": [1.0, error]})
    )


RECORDS = [
    record("volminnet", "pair:0.45", 1, 0.98, 0.02),
    record("volminnet", "pair:0.45", 2, 0.99, 0.04),
    record("forward", "pair:0.45", 1, 0.75),
    record("forward", "sym:0.2", 3, 0.9861),
]


@pytest.fixture
def table():
    return tables.build_table(STUDY, RECORDS)


def cell(table, method, noise):
    return table.cell(next(row for row in STUDY.rows if row.method == method), "mnist", noise)


def test_means_deviations_and_differences(table):
    ours = cell(table, "volminnet", "pair:0.45")
    assert ours.mean == pytest.approx(0.985)
    assert ours.std == pytest.approx(0.005 * 2**0.5)
    assert ours.difference == pytest.approx(0.985 - 0.99)
    assert ours.best
    single = cell(table, "forward", "pair:0.45")
    assert (single.std, single.best) == (None, False)
    assert not cell(table, "forward", "sym:0.2").best, "the only number of a column is not the best of anything"
    assert cell(table, "volminnet", "sym:0.2").mean is None


@pytest.mark.parametrize(
    "change",
    [{"preset": "paper"}, {"dataset": "digits"}, {"devices": 2}, {"options": {"lam": 0.5}}, {"recipe": {"epochs": 1}}],
)
def test_other_runs_do_not_count(change):
    assert tables.build_table(STUDY, [record("volminnet", "pair:0.45", 1, 0.5, **change)]).is_empty


def test_a_record_from_before_a_field_existed_still_counts():
    old = dict(RECORDS[0].spec)
    del old["devices"]
    assert not tables.build_table(STUDY, [RunRecord(old, RECORDS[0].result)]).is_empty


def test_threads_are_no_setting_of_a_table():
    """They round sums otherwise, no more; a run of CIFAR takes two of them."""
    in_two = RunRecord({**RECORDS[0].spec, "threads": 2}, RECORDS[0].result)
    assert not tables.build_table(STUDY, [in_two]).is_empty
    other = RunRecord({**RECORDS[0].spec, "network": "mlp"}, RECORDS[0].result)
    assert tables.build_table(STUDY, [other]).is_empty


def test_the_terminal_shows_ours_above_the_papers(table):
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(tables.terminal(table, "mnist"))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines == [
        "mnist         sym:0.2      pair:0.45",
        "Forward     98.61 (1)      75.00 (1)",
        "          98.60 +0.01    75.06 −0.06",
        "VolMinNet           · 98.50±0.71 (2)",
        "                98.74    99.00 −0.50",
    ]


@pytest.mark.parametrize("name", ["table1", "table3", "figure4", "figure5"])
def test_a_full_table_fits_a_terminal_of_80_characters(name):
    study = paper.study(name).select([paper.study(name).datasets[0]], seeds=5)
    result = {"accuracy": 0.985, "transition_error": 0.123}
    records = [
        RunRecord(spec.as_json(), {key: value + spec.seed / 1000 for key, value in result.items()})
        for spec in study.specs()
    ]
    console = Console(width=80, file=io.StringIO(), color_system=None)
    console.print(tables.terminal(tables.build_table(study, records), study.datasets[0]))
    text = console.file.getvalue()
    assert "…" not in text
    assert text.count("±") == text.count("(5)") == len(study.rows) * len(study.noises)


def test_markdown_says_what_was_not_run(table):
    _, label, missing, found, _ = tables.markdown(table, "mnist").splitlines()[3].split("|")
    assert label.strip() == "VolMinNet"
    assert missing.strip() == "not run<br><small>98.74 ± 0.08</small>"
    assert found.strip() == "**98.50 ± 0.71** (2)<br><small>99.00 ± 0.07, −0.50</small>"


def test_latex_has_a_line_of_ours_and_a_line_of_the_papers(table):
    lines = tables.latex(table, "mnist").splitlines()
    assert r"VolMinNet & ours & -- & $\mathbf{98.50 \pm 0.71}$ \\" in lines
    assert r" & paper & $98.74 \pm 0.08$ & $99.00 \pm 0.07$ \\" in lines


def test_csv_and_json_hold_every_cell_as_fractions(table):
    rows = list(csv.DictReader(io.StringIO(tables.as_csv(table))))
    assert len(rows) == 4
    (ours,) = (row for row in rows if (row["row"], row["noise"]) == ("VolMinNet", "pair:0.45"))
    assert float(ours["mean"]) == pytest.approx(0.985)
    assert (ours["seeds"], ours["paper_mean"], ours["best"]) == ("2", "0.99", "True")
    content = json.loads(tables.as_json(table))
    assert content["metric"] == "accuracy"
    assert [0.98, 0.99] in [each["values"] for each in content["cells"]]


def test_for_errors_the_smallest_is_best():
    study = paper.study("figure4").select(["mnist"], ["pair:0.45"], ["forward", "volminnet"], 1)
    records = [record("forward", "pair:0.45", 1, 0.7, 0.9), record("volminnet", "pair:0.45", 1, 0.9, 0.01)]
    best = [each.label for each in tables.build_table(study, records).cells if each.best]
    assert best == ["VolMinNet"]
    wanted = {"Anchors, 3 %": [[1.0, 0.9]], "VolMinNet": [[1.0, 0.01]]}
    assert tables.curves(study, records) == {"mnist, pair:0.45": wanted}


def test_records_survive_writing_and_reading_and_are_read_once(tmp_path):
    write_records(tmp_path / "a.jsonl", RECORDS)
    assert read_records(tmp_path / "a.jsonl") == RECORDS
    write_records(tmp_path / "b.jsonl", RECORDS[:2])
    assert sorted(r.spec["seed"] for r in read_records(tmp_path)) == [1, 1, 2, 3]


def test_what_is_not_a_record_is_named_by_file_and_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"spec": {}, "result": {}}\n{"spec": \n')
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2, is not the record of a run"):
        read_records(tmp_path)
    with pytest.raises(ValueError, match="does not exist"):
        read_records(tmp_path / "nothing")


def test_lengths_of_training_are_told_apart():
    row = STUDY.rows[1]
    short = RunRecord(STUDY.spec(row, "mnist", "pair:0.45", 1, epochs=2).as_json(), RECORDS[0].result)
    assert tables.settings(STUDY, [short, *RECORDS]) == [("official", 2), ("official", None)]
