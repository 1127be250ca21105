"""Tables as people have them, from the command line: no column is lost without a word."""

import json
import sys
import types
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from volmin.cli.columns import column_types, show_columns
from volmin.exceptions import InputError

WORDS = {
    "yes": ["slow", "support", "waiting", "cancel", "expensive", "outage", "billing", "dispute", "angry"],
    "no": ["happy", "great", "fast", "reliable", "recommend", "thanks", "good", "value", "friendly"],
}


def churn_table(rows=600, seed=0):
    """A table with numbers, dates and truth values as people write them, a note, and 10 % wrong labels."""
    generator = np.random.default_rng(seed)
    truth = generator.choice(["yes", "no"], rows)
    other = np.where(truth == "yes", "no", "yes")
    charge = generator.lognormal(6, 0.4, rows) * np.where(truth == "yes", 1.5, 1)
    days = pl.Series(np.datetime64("2020-01-01") + generator.integers(0, 1500, rows))
    tenure = generator.poisson(30, rows).astype(str)
    tenure[generator.random(rows) < 0.03] = "unknown"
    fillers = ["the", "service", "is", "a", "and", "my", "router"]
    return pl.DataFrame(
        {
            "customer": [f"C{row:05d}" for row in range(rows)],
            "charge": [f"{amount:,.2f}" for amount in charge],
            "signup": days.dt.strftime("%d/%m/%Y"),
            "tenure": tenure,
            "autopay": generator.choice(["Yes", "No"], rows),
            "country": ["US"] * rows,
            "note": [" ".join(generator.choice(WORDS[label] + fillers, 8)) for label in truth],
            "churn": np.where(generator.random(rows) < 0.1, other, truth),
            "truth": truth,
        }
    )


def test_each_columns_use_is_printed_and_stored(command, tmp_path):
    frame = churn_table()
    frame.write_csv(tmp_path / "churn.csv")
    audit = ("audit", tmp_path / "churn.csv", "--label", "churn", "--clean", "truth", "--model", "logistic")
    code, shown, err = command(*audit, "--types", "autopay=ignore", "--out", tmp_path / "audit")
    assert code == 0
    assert "warning" not in err
    for name, kind, note in (
        ("customer", "left out", "identifies rows: 600 different values"),
        ("charge", "number", "read from text such as"),
        ("signup", "date", "day/month/year"),
        ("tenure", "number", "% missing"),
        ("autopay", "left out", "as asked"),
        ("country", "left out", "constant"),
        ("note", "text", "TF-IDF of"),
    ):
        line = next(line for line in shown.splitlines() if line.strip().startswith(name))
        assert kind in line
        assert note in line
    content = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert [use["name"] for use in content["provenance"]["columns"]] == frame.columns[:7]
    assert "identifies rows: 600 different values" in (tmp_path / "audit" / "report.html").read_text()
    low, high = content["noise_range"]
    wrong = (frame["churn"] != frame["truth"]).to_numpy()
    assert low <= wrong.mean() <= high
    flagged = pl.read_csv(tmp_path / "audit" / "issues.csv")["row"].to_numpy()
    assert wrong[flagged].mean() > 0.85


def test_columns_with_long_names_are_shown_whole_on_narrow_terminals(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    names = ["a_rather_long_name_of_a_column_in_an_export", "n", " "]
    note = "read from text such as '1,844.66'; 1.1% missing"
    show_columns([{"name": name, "kind": "number", "note": note, "features": 2} for name in names])
    shown = capsys.readouterr().out
    assert f"  {names[0]}\n" in shown
    assert "(no name)" in shown
    assert "…" not in shown
    assert max(len(line) for line in shown.splitlines()[1:]) <= 60
    assert " ".join(shown.split()).count(f"number {note}") == 3


def test_options_for_types():
    assert column_types(["a=number", "b=c=text"], ["d"]) == {"a": "number", "b=c": "text", "d": "text"}
    for bad in ("a", "=text"):
        with pytest.raises(InputError, match="takes COLUMN=TYPE"):
            column_types([bad], None)


def test_unknown_types_are_refused_in_one_line(command, tmp_path):
    churn_table(60).write_csv(tmp_path / "churn.csv")
    for option, message in (
        (["--types", "note=prose"], "must be one of number"),
        (["--text", "remark"], "no column 'remark'"),
    ):
        code, out, err = command("audit", tmp_path / "churn.csv", "--label", "churn", *option)
        assert (code, out) == (2, "")
        assert message in err
        assert len(err.strip().splitlines()) == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The estimated T is nearly singular")
def test_spellings_and_missing_labels_are_reported_merged_and_applied(command, tmp_path):
    generator = np.random.default_rng(1)
    frame = churn_table(300)
    spelled = [
        generator.choice(["Yes", "yes ", " YES"], p=[0.6, 0.2, 0.2]) if y == "yes" else "No" for y in frame["churn"]
    ]
    missing = np.arange(300) % 25 == 3
    frame = frame.with_columns(churn=pl.Series([None if gap else y for gap, y in zip(missing, spelled, strict=True)]))
    path = tmp_path / "churn.csv"
    frame.write_csv(path)
    audit = ("audit", path, "--label", "churn", "--ignore", "truth", "--model", "logistic", "--out", tmp_path / "audit")
    code, shown, _ = command(*audit)
    assert code == 0
    assert "12 more rows have no label; they get suggestions" in shown
    assert "label_spellings: Labels that are equal up to case" in shown
    assert "Merge them (--merge-labels on the command line)" in shown
    code, shown, _ = command(*audit, "--merge-labels")
    assert code == 0
    assert "288 labels in 2 classes" in shown
    assert "--merge-labels --apply decisions.csv" in shown
    issues = pl.read_csv(tmp_path / "audit" / "issues.csv")
    issues.with_columns(decision=pl.lit("wrong")).write_csv(tmp_path / "decisions.csv")
    out = tmp_path / "corrected.csv"
    command("audit", path, "--label", "churn", "--merge-labels", "--apply", tmp_path / "decisions.csv", "--out", out)
    after = pl.read_csv(out)
    assert after.drop("churn").equals(pl.read_csv(path).drop("churn"))
    changed = (after["churn"] != frame["churn"]).fill_null(False).arg_true().to_list()
    assert changed == sorted(issues["row"])
    assert after["churn"].null_count() == 12
    suggested = pl.read_csv(tmp_path / "audit" / "suggestions.csv")
    assert suggested["row"].to_list() == missing.nonzero()[0].tolist()
    suggested.with_columns(decision=pl.lit("wrong")).write_csv(tmp_path / "decisions.csv")
    command("audit", path, "--label", "churn", "--merge-labels", "--apply", tmp_path / "decisions.csv", "--out", out)
    filled = pl.read_csv(out)
    assert filled["churn"].null_count() == 0
    right = [a.strip().lower() == b for a, b in zip(filled["churn"], frame["truth"], strict=True)]
    assert np.mean(np.array(right)[missing]) > 0.8


def test_weights_of_a_column_act_on_the_shares(command, tmp_path):
    frame = churn_table(300).with_columns(size=pl.int_range(1, 301))
    frame.write_csv(tmp_path / "churn.csv")
    options = ["audit", tmp_path / "churn.csv", "--label", "churn", "--ignore", "truth", "--model", "logistic"]
    weighted = json.loads(command(*options, "--weight", "size", "--out", tmp_path / "w", "--json").out)
    plain = json.loads(command(*options, "--ignore", "size", "--out", tmp_path / "p", "--json").out)
    assert [use["name"] for use in weighted["provenance"]["columns"]] == frame.columns[:7]
    assert weighted["issues"] == plain["issues"]
    assert weighted["noise_rate"] != plain["noise_rate"]
    code, _, err = command(*options, "--weight", "note", "--out", tmp_path / "n")
    assert code == 2
    assert "'note' must hold numbers" in err


def test_label_map_and_leaking_column(command, tmp_path):
    frame = churn_table(300).with_columns(code=pl.col("churn").replace({"yes": "left us", "no": "stayed"}))
    frame.write_csv(tmp_path / "churn.csv")
    (tmp_path / "map.json").write_text('{"yes": "gone", "no": "here"}')
    audit = ("audit", tmp_path / "churn.csv", "--label", "churn", "--ignore", "truth", "--model", "logistic")
    code, shown, _ = command(*audit, "--label-map", tmp_path / "map.json", "--out", tmp_path / "audit")
    assert code == 0
    assert "A single column predicts nearly every label: code (100.0% of the labels)." in shown
    assert json.loads((tmp_path / "audit" / "audit.json").read_text())["classes"] == ["gone", "here"]


def test_json_and_quiet(command, tmp_path):
    churn_table(300).write_csv(tmp_path / "churn.csv")
    out = tmp_path / "audit"
    options = ["audit", tmp_path / "churn.csv", "--label", "churn", "--ignore", "truth", "--model", "logistic"]
    found = json.loads(command(*options, "--out", out, "--json").out)
    assert found["rows"] == 300
    assert found["flagged"] == len(found["issues"])
    assert found["folder"] == str(out)
    assert next(column["name"] for column in found["provenance"]["columns"]) == "customer"
    quiet = command(*options, "--out", out, "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert (out / "report.html").is_file()
    refused = command(*options[:4], "--apply", "d.csv", "--json")
    assert refused.code == 2
    assert "--json" in refused.err


def test_round_trip_through_label_studio(command, tmp_path):
    frame = churn_table(300)
    frame.write_csv(tmp_path / "churn.csv")
    tasks = tmp_path / "tasks.json"
    options = ["audit", tmp_path / "churn.csv", "--label", "churn", "--ignore", "truth", "--model", "logistic"]
    code, out, _ = command(*options, "--out", tmp_path / "audit", "--label-studio", tasks)
    assert code == 0
    assert "tasks.json" in out
    assert (tmp_path / "tasks.xml").read_text().startswith("<View>")
    made = json.loads(tasks.read_text())
    for task in made:
        right = frame["truth"][task["data"]["volmin_row"]]
        task["annotations"] = [{"result": [{"type": "choices", "value": {"choices": [right]}}]}]
    (tmp_path / "export.json").write_text(json.dumps(made))
    corrected = tmp_path / "corrected.csv"
    code, _, err = command(*options[:4], "--apply", tmp_path / "export.json", "--out", corrected)
    assert (code, err) == (0, "")
    after = pl.read_csv(corrected)
    flagged = [task["data"]["volmin_row"] for task in made]
    assert after["churn"].gather(flagged).to_list() == frame["truth"].gather(flagged).to_list()
    assert after.drop("churn").equals(pl.read_csv(tmp_path / "churn.csv").drop("churn"))


class FakeSentences:
    """Stands for sentence_transformers.SentenceTransformer: counts of the words that matter."""

    def __init__(self, folder, **options):
        print("Loading weights: 100%", file=sys.stderr)
        assert options["local_files_only"]
        if not Path(folder).is_dir():
            raise OSError(f"no model at {folder}")

    def encode(self, texts, **_):
        return np.array([[sum(word in text for word in words) for words in WORDS.values()] for text in texts])


def test_sentence_encoder_of_a_local_folder(command, tmp_path, monkeypatch):
    module = types.SimpleNamespace(SentenceTransformer=FakeSentences)
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)
    monkeypatch.setattr("pooch.os_cache", lambda name: tmp_path / "cache" / name)
    model = tmp_path / "model"
    model.mkdir()
    (model / "weights.txt").write_text("1")
    churn_table(300).write_csv(tmp_path / "churn.csv")
    options = ["audit", tmp_path / "churn.csv", "--label", "churn", "--ignore", "truth", "--model", "logistic"]
    options += ["--out", tmp_path / "audit"]
    code, out, err = command(*options, "--text-encoder", model, "--json")
    assert code == 0
    assert "Loading weights" not in err
    columns = {column["name"]: column for column in json.loads(out)["provenance"]["columns"]}
    note = columns["note"]
    assert (note["kind"], note["note"], note["features"]) == ("text", "embedded by model", 2)
    assert "words against the label" in (tmp_path / "audit" / "report.html").read_text()
    assert len(list((tmp_path / "cache" / "volmin").glob("embeddings-*.npz"))) == 1
    for arguments, message in (
        (["--text-encoder", model, "--types", "note=ignore"], "no column of text to encode"),
        (["--text-encoder", tmp_path / "none"], "nothing is downloaded"),
        (["--text-encoder", model, "--text", "remark"], "no column 'remark'"),
        (["--image-encoder", "resnet18=none.safetensors"], "--image-encoder is for a folder of images"),
    ):
        code, _, err = command(*options, *arguments)
        assert code == 2
        assert message in err
