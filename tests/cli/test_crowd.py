"""``volmin audit`` of several annotators and groups, from files."""

import json

import numpy as np
import polars as pl
import pytest

from volmin import noise

WORDS = np.array(["cat", "dog", "owl"])


@pytest.fixture(scope="module")
def answers():
    """Three people's labels of 150 items, and two features."""
    generator = np.random.default_rng(0)
    clean = np.arange(150) % 3
    T = [noise.pair(3, 0.1), noise.pair(3, 0.2), noise.symmetric(3, 0.4)]
    Y = np.array([[generator.choice(3, p=T[m][:, k]) for m in range(3)] for k in clean])
    x = 2 * np.eye(3)[clean][:, :2] + generator.normal(size=(150, 2))
    items = pl.DataFrame({"id": [f"photo{i}" for i in range(150)], "size": x[:, 0], "weight": x[:, 1]})
    return WORDS[Y], items, WORDS[clean]


@pytest.fixture
def files(answers, tmp_path):
    Y, items, _ = answers
    names = items["id"].to_list()
    long = [(who, names[i], Y[i, m]) for i in range(150) for m, who in enumerate(("ann", "bob", "cy"))]
    pl.DataFrame(long, schema=["who", "id", "label"], orient="row").sample(fraction=1, shuffle=True, seed=0).write_csv(
        tmp_path / "votes.csv"
    )
    items.write_csv(tmp_path / "items.csv")
    wide = items.with_columns(ann=pl.Series(Y[:, 0]), bob=pl.Series(Y[:, 1]), cy=pl.Series(Y[:, 2]))
    wide.write_csv(tmp_path / "wide.csv")
    return tmp_path


def test_long_table_with_features(command, files, answers):
    out = files / "out"
    code, shown, _ = command(
        "audit", files / "votes.csv", "--annotator", "who", "--item", "id", "--label", "label",
        "--features", files / "items.csv", "--out", out,
    )  # fmt: skip
    assert code == 0
    assert "450 answers of 3 annotators to 150 items in 3 classes" in shown
    assert "ann is the most accurate annotator" in shown
    _, items, clean = answers
    consensus = pl.read_csv(out / "consensus.csv")
    assert consensus["item"].to_list() == items["id"].to_list()
    assert (consensus["consensus"].to_numpy() == clean).mean() > 0.9
    assert {path.name for path in out.iterdir()} == {
        "report.html", "consensus.csv", "annotators.csv", "votes.csv", "transitions.csv", "audit.json",
    }  # fmt: skip
    code, _, error = command("report", out)
    assert code == 2
    assert "several annotators" in error


def test_several_label_columns(command, files):
    code, shown, _ = command(
        "audit", files / "wide.csv", "--label", "ann,bob,cy", "--item", "id", "--out", files / "out", "--json"
    )
    assert code == 0
    content = json.loads(shown)
    assert [line["annotator"] for line in content["annotators"]] == ["ann", "bob", "cy"]
    assert [line["answers"] for line in content["annotators"]] == [150, 150, 150]


@pytest.mark.slow
def test_groups_of_single_labels(command, files):
    wide = pl.read_csv(files / "wide.csv")
    frame = wide.select("size", "weight", label="bob", year=pl.Series([2020, 2021] * 75))
    frame.write_csv(files / "years.csv")
    code, shown, _ = command(
        "audit", files / "years.csv", "--label", "label", "--group", "year", "--out", files / "out"
    )
    assert code == 0
    assert "150 labels of 2 groups in 3 classes" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--annotator", "whom", "--item", "id", "--label", "label"], "no column 'whom'. Did you mean 'who'?"),
        (["--annotator", "who", "--label", "label"], "--annotator needs --item"),
        (["--item", "id", "--label", "label"], "--item names the items of"),
        (["--annotator", "who", "--group", "id", "--label", "label"], "not both"),
        (["--annotator", "who", "--item", "id", "--label", "label", "--clean", "label"], "--clean has no effect"),
        (["--label", "who,nobody"], "no column 'nobody'"),
    ],
)
def test_bad_options_are_one_line(command, files, arguments, message):
    code, _, error = command("audit", files / "votes.csv", *arguments, "--out", files / "out")
    assert code == 2
    assert message in error
    assert len(error.strip().splitlines()) == 1
    assert not (files / "out").exists()


def test_repeated_answers_and_missing_items_are_one_line(command, files):
    votes = pl.read_csv(files / "votes.csv")
    pl.concat([votes, votes[:1]]).write_csv(files / "twice.csv")
    options = ("--annotator", "who", "--item", "id", "--label", "label", "--out", files / "out")
    code, _, error = command("audit", files / "twice.csv", *options)
    assert (code, "repeat an annotator and an item" in error) == (2, True)
    pl.read_csv(files / "items.csv")[:100].write_csv(files / "items.csv")
    code, _, error = command("audit", files / "votes.csv", *options, "--features", files / "items.csv")
    assert (code, "has no row for 50 of the items" in error) == (2, True)
