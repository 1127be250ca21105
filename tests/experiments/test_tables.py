import csv
import io
import json

import pytest
from rich.console import Console

from volmin.cli.results import result_table
from volmin.exceptions import DataError
from volmin.experiments import paper, render, tables
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
    assert not cell(table, "forward", "sym:0.2").best, "the only number of a column is not marked"
    assert cell(table, "volminnet", "sym:0.2").mean is None


@pytest.mark.parametrize(
    "change",
    [{"preset": "paper"}, {"dataset": "digits"}, {"devices": 2}, {"options": {"lam": 0.5}}, {"recipe": {"epochs": 1}}],
)
def test_runs_with_other_settings_are_left_out(change):
    assert tables.build_table(STUDY, [record("volminnet", "pair:0.45", 1, 0.5, **change)]).is_empty


def test_record_without_a_newer_field_counts():
    old = dict(RECORDS[0].spec)
    del old["devices"]
    assert not tables.build_table(STUDY, [RunRecord(old, RECORDS[0].result)]).is_empty


@pytest.mark.parametrize("setting", [{"threads": 2}, {"accelerated": True}, {"precision": "bf16-mixed"}])
def test_settings_that_only_change_rounding_count(setting):
    rounded = RunRecord({**RECORDS[0].spec, **setting}, RECORDS[0].result)
    assert not tables.build_table(STUDY, [rounded]).is_empty
    other = RunRecord({**RECORDS[0].spec, "network": "mlp"}, RECORDS[0].result)
    assert tables.build_table(STUDY, [other]).is_empty


def printed(view):
    text = io.StringIO()
    Console(width=80, file=text, color_system=None).print(view)
    return text.getvalue()


def test_terminal_shows_our_number_above_the_papers(table):
    lines = [line.rstrip() for line in printed(result_table(table, "mnist")).splitlines()]
    assert lines == [
        "mnist         sym:0.2      pair:0.45",
        "Forward     98.61 (1)      75.00 (1)",
        "          98.60 +0.01    75.06 −0.06",
        "VolMinNet           · 98.50±0.71 (2)",
        "                98.74    99.00 −0.50",
    ]


@pytest.mark.parametrize("name", ["table1", "table3", "figure4", "figure5"])
@pytest.mark.parametrize("warned", [False, True])
def test_full_table_fits_80_characters(name, warned):
    study = paper.study(name).select([paper.study(name).datasets[0]], seeds=5)
    result, texts = {"accuracy": 0.985, "transition_error": 0.123}, ["T is nearly singular"] * warned
    records = [
        RunRecord(
            spec.as_json(), {key: value + spec.seed / 1000 for key, value in result.items()} | {"warnings": texts}
        )
        for spec in study.specs()
    ]
    text = printed(result_table(tables.build_table(study, records), study.datasets[0]))
    assert "…" not in text
    assert text.count("±") == text.count("(5)") == len(study.rows) * len(study.noises)
    assert text.count("†(5)") == warned * text.count("(5)")


def test_markdown_marks_missing_runs(table):
    _, label, missing, found, _ = render.markdown(table, "mnist").splitlines()[3].split("|")
    assert label.strip() == "VolMinNet"
    assert missing.strip() == "not run<br><small>98.74 ± 0.08</small>"
    assert found.strip() == "**98.50 ± 0.71** (2)<br><small>99.00 ± 0.07, −0.50</small>"


def test_markdown_lists_methods_without_a_run_below_the_table():
    only = tables.build_table(STUDY, RECORDS[:1])
    assert "No run" not in render.markdown(only, "mnist")
    lines = render.markdown(only, "mnist", only_run=True).splitlines()
    assert [line.split("|")[1].strip() for line in lines if line.startswith("|")] == ["mnist", "---", "VolMinNet"]
    assert lines[-1] == "No run yet: Forward."


def test_complete_row_has_a_run_for_every_noise(table):
    assert table.has_complete_row("mnist")  # Forward
    assert table.count() == table.count("mnist") == 3
    assert table.count("cifar10") == 0
    assert not tables.build_table(STUDY, RECORDS[:2]).has_complete_row("mnist")
    assert not tables.build_table(STUDY, RECORDS).has_complete_row("cifar10")


def test_latex_has_a_line_of_our_numbers_and_one_of_the_papers(table):
    lines = render.latex(table, "mnist").splitlines()
    assert r"VolMinNet & ours & -- & $\mathbf{98.50 \pm 0.71}$ \\" in lines
    assert r" & paper & $98.74 \pm 0.08$ & $99.00 \pm 0.07$ \\" in lines


def test_csv_and_json_hold_every_cell_as_fractions(table):
    rows = list(csv.DictReader(io.StringIO(render.as_csv(table))))
    assert len(rows) == 4
    (ours,) = (row for row in rows if (row["row"], row["noise"]) == ("VolMinNet", "pair:0.45"))
    assert float(ours["mean"]) == pytest.approx(0.985)
    assert (ours["seeds"], ours["paper_mean"], ours["best"]) == ("2", "0.99", "True")
    content = json.loads(render.as_json(table))
    assert content["metric"] == "accuracy"
    assert [0.98, 0.99] in [each["values"] for each in content["cells"]]


def test_smallest_error_is_best():
    study = paper.study("figure4").select(["mnist"], ["pair:0.45"], ["forward", "volminnet"], 1)
    records = [record("forward", "pair:0.45", 1, 0.7, 0.9), record("volminnet", "pair:0.45", 1, 0.9, 0.01)]
    best = [each.label for each in tables.build_table(study, records).cells if each.best]
    assert best == ["VolMinNet"]
    wanted = {"Anchors, 3 %": [[1.0, 0.9]], "VolMinNet": [[1.0, 0.01]]}
    assert tables.curves(study, records) == {"mnist, pair:0.45": wanted}


def test_records_are_written_and_read_without_duplicates(tmp_path):
    write_records(tmp_path / "a.jsonl", RECORDS)
    assert read_records(tmp_path / "a.jsonl") == RECORDS
    write_records(tmp_path / "b.jsonl", RECORDS[:2])
    assert sorted(r.spec["seed"] for r in read_records(tmp_path)) == [1, 1, 2, 3]


@pytest.mark.parametrize(
    "line", [b'{"spec": ', b'{"spec": {}, "result": {}}', b'{"spec": [], "result": []}', b"[]", b"1", b"[" * 10**5]
)
def test_invalid_record_is_named_by_file_and_line(tmp_path, line):
    write_records(tmp_path / "a.jsonl", RECORDS[:1])
    with (tmp_path / "a.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(DataError, match=r"a\.jsonl, line 2, is not the record of a run"):
        read_records(tmp_path)


def test_files_that_are_missing_or_not_text_are_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        read_records(tmp_path / "nothing")
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="not UTF-8 text"):
        read_records(tmp_path)


def test_numbers_of_runs_with_warnings_are_marked():
    warned = RunRecord(RECORDS[0].spec, {**RECORDS[0].result, "warnings": ["T is nearly singular"]})
    table = tables.build_table(STUDY, [warned, *RECORDS[1:]])
    assert cell(table, "volminnet", "pair:0.45").warned == 1
    text = render.markdown(table, "mnist")
    assert "**98.50 ± 0.71†** (2)" in text
    assert text.endswith("† at least one run gave warnings, listed in its result.json.\n")
    assert text.count("†") == 2, "only the marked cell and the footnote"
    assert r"$\mathbf{98.50 \pm 0.71^\dagger}$" in render.latex(table, "mnist")
    assert "†" in render.caption(table)
    assert "†" not in render.caption(tables.build_table(STUDY, RECORDS))
    rows = list(csv.DictReader(io.StringIO(render.as_csv(table))))
    assert [row["warned"] for row in rows if row["row"] == "VolMinNet"] == ["0", "1"]


def test_numbers_of_epochs_are_distinguished():
    row = STUDY.rows[1]
    short = RunRecord(STUDY.spec(row, "mnist", "pair:0.45", 1, epochs=2).as_json(), RECORDS[0].result)
    assert tables.settings(STUDY, [short, *RECORDS]) == [("official", 2), ("official", None)]


def test_table_of_a_preset_that_only_some_data_sets_have():
    study = paper.study("table1")
    assert {"mnist", "cifar10"} <= set(study.datasets)
    table = tables.build_table(study, [], "fast18")
    assert table.study.datasets == ("cifar10",)
    assert tables.curves(study, [], "fast18") == {}
