"""``volmin audit``, from a raw table to a corrected one, on tables as they occur in practice."""

import inspect
import json
import sys

import numpy as np
import polars as pl
import pytest
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier

import volmin
from volmin import noise
from volmin.transition import transition_error


@pytest.fixture
def table(mislabelled, tmp_path):
    path = tmp_path / "digits.csv"
    columns = {f"pixel{place}": mislabelled.x[:, place] for place in range(64)}
    pl.DataFrame(columns | {"label": mislabelled.labels, "truth": mislabelled.clean}).write_csv(path)
    return path


def write_table(tmp_path, text, encoding="utf-8", name="people.csv"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.slow
def test_audit_and_correction_of_a_table(command, table, mislabelled, tmp_path):
    out = tmp_path / "audit"
    audit = ("audit", table, "--label", "label")
    code, shown, _ = command(*audit, "--clean", "truth", "--model", "logistic", "--out", out)
    assert code == 0
    for words in (
        "labels in 10 classes",
        "interval",
        "flagged",
        "T is well identified",
        "known true label",
        "Of all labels,",
        "Next: open",
    ):
        assert words in shown
    assert {path.name for path in out.iterdir()} == {
        "report.html", "issues.csv", "labels.parquet", "transition.csv", "audit.json",
    }  # fmt: skip
    content = json.loads((out / "audit.json").read_text())
    assert abs(content["noise_rate"] - mislabelled.wrong.mean()) <= 0.03
    assert transition_error(mislabelled.T, np.array(content["transition"])) <= 0.15
    assert "--clean truth" in content["provenance"]["command"]
    issues = pl.read_csv(out / "issues.csv")
    flagged = issues["row"].to_numpy()
    assert mislabelled.wrong[flagged].mean() >= 0.85
    assert mislabelled.wrong[flagged].sum() >= 0.85 * mislabelled.wrong.sum()

    assert command("report", out, "--out", tmp_path / "again")[0] == 0
    assert f"{content['noise_rate']:.1%}".rstrip("%") in (tmp_path / "again" / "report.html").read_text()

    issues.with_columns(decision=pl.lit("wrong")).write_csv(tmp_path / "decisions.csv")
    code, shown, _ = command(*audit, "--apply", tmp_path / "decisions.csv")
    assert code == 0
    assert f"{len(flagged)} of 1,797 labels changed" in shown
    before, after = pl.read_csv(table), pl.read_csv(tmp_path / "digits-corrected.csv")
    assert after.drop("label").equals(before.drop("label"))
    # A classifier is more accurate on true labels when it learns from the corrected ones.
    test = np.arange(1797) % 4 == 0
    given, corrected = (
        KNeighborsClassifier(3)
        .fit(mislabelled.x[~test], frame["label"].to_numpy()[~test])
        .score(mislabelled.x[test], mislabelled.clean[test])
        for frame in (before, after)
    )
    assert corrected > given + 0.05
    # The decisions do not fit the corrected table.
    code, _, err = command(
        "audit", tmp_path / "digits-corrected.csv", "--label", "label", "--apply", tmp_path / "decisions.csv"
    )
    assert code == 2
    assert "have been applied already" in err


def test_given_probabilities_and_a_table_without_features(command, mislabelled, tmp_path):
    pl.DataFrame({"label": mislabelled.labels}).write_parquet(tmp_path / "labels.parquet")
    np.save(tmp_path / "probs.npy", mislabelled.probs)
    out = tmp_path / "audit"
    arguments = (
        "audit",
        tmp_path / "labels.parquet",
        "--label",
        "label",
        "--probs",
        tmp_path / "probs.npy",
        "--out",
        out,
    )
    code, _, err = command(*arguments)
    assert code == 0
    assert "warning" not in err
    flagged = pl.read_csv(out / "issues.csv")["row"].to_numpy()
    assert mislabelled.wrong[flagged].mean() >= 0.85
    assert mislabelled.wrong[flagged].sum() >= 0.85 * mislabelled.wrong.sum()


def test_reading_and_limit_can_be_chosen(command, mislabelled, tmp_path):
    pl.DataFrame({"label": mislabelled.labels}).write_parquet(tmp_path / "labels.parquet")
    np.save(tmp_path / "probs.npy", mislabelled.probs)
    audit = ("audit", tmp_path / "labels.parquet", "--label", "label", "--probs", tmp_path / "probs.npy")
    code, shown, _ = command(*audit, "--reading", "one_right_label", "--fdr", "0.05", "--out", tmp_path / "audit")
    assert code == 0
    disagreement = (mislabelled.probs.argmax(axis=1) != mislabelled.labels).mean()
    content = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert "If each example has one right label:" in shown
    assert content["fdr"] == 0.05
    assert content["noise_rate"] == max(content["readings"]["noise_rates"]) == pytest.approx(disagreement, abs=0.03)


@pytest.mark.slow
def test_folder_of_images(command, mislabelled, tmp_path):
    root, some = tmp_path / "photos", np.arange(600)
    for row, picture, label in zip(some, mislabelled.pixels(), mislabelled.labels, strict=False):
        (root / f"digit {label}").mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture[0]).save(root / f"digit {label}" / f"{row:04d}.png")
    code, shown, _ = command("audit", root, "--model", "logistic", "--out", tmp_path / "audit")
    assert code == 0
    assert "600 labels in 10 classes" in shown
    assert "data:image/" in (tmp_path / "audit" / "report.html").read_text()
    issues = pl.read_csv(tmp_path / "audit" / "issues.csv")
    wrong = mislabelled.wrong[[int(name[-8:-4]) for name in issues["name"]]]
    assert wrong.mean() >= 0.85
    issues.with_columns(decision=pl.lit("wrong")).write_csv(tmp_path / "decisions.csv")
    code, shown, _ = command("audit", root, "--apply", tmp_path / "decisions.csv")
    assert code == 0
    assert f"{len(issues)} of 600 labels changed" in shown
    assert len(list((tmp_path / "photos-corrected").rglob("*.png"))) == 600
    assert len(list((tmp_path / "photos-corrected").rglob("*-was-*.png"))) == len(issues)


@pytest.mark.slow
def test_table_of_images_with_true_labels(command, mislabelled, tmp_path):
    rows = ["file,given,truth"]
    for row, picture, label, true in zip(
        range(600), mislabelled.pixels(), mislabelled.labels, mislabelled.clean, strict=False
    ):
        Image.fromarray(picture[0]).save(tmp_path / f"{row}.png")
        rows.append(f"{row}.png,{label},{true if row < 200 else ''}")
    (tmp_path / "photos.csv").write_text("\n".join(rows))
    audit = (
        "audit",
        tmp_path / "photos.csv",
        "--label",
        "given",
        "--images",
        "--clean",
        "truth",
        "--model",
        "logistic",
    )
    code, shown, _ = command(*audit, "--out", tmp_path / "audit")
    assert code == 0
    assert f"In 200 rows with a known true label, {mislabelled.wrong[:200].mean():.1%} of the given labels" in " ".join(
        shown.split()
    )


def rows_of(clean, seed=0):
    generator = np.random.default_rng(seed)
    return np.stack([3 * clean, -2 * clean], axis=1) + 0.3 * generator.normal(size=(len(clean), 2))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1"])
def test_irregular_table(command, tmp_path, encoding):
    """Missing values, a constant, duplicates, text with commas and line breaks, a class of two rows, accents."""
    clean = np.repeat(np.arange(3), 60)
    labels = noise.corrupt(clean, noise.pair(3, 0.2), seed=0)
    names = np.array(["Gärtner", "Koch, Bäcker", "=Arzt"])
    lines = ["a,b,constant,note,job"]
    for row, (x, y) in enumerate(rows_of(clean)):
        first = "" if row % 13 == 0 else f"{x:.3f}"
        lines.append(f'{first},{y:.3f},1,"note, with\nline {row % 4}","{names[labels[row]]}"')
    lines += [lines[-1], *["0,0,1,x,selten"] * 2]
    path = write_table(tmp_path, "\n".join(lines) + "\n", encoding)
    with pytest.warns(UserWarning, match=r"fewer than 5 rows and are not audited \(selten\)"):
        code, shown, err = command("audit", path, "--label", "job", "--model", "logistic", "--out", tmp_path / "audit")
    assert code == 0, err
    assert "1 class has too few rows, so its labels are assumed to be correct: selten" in shown
    issues = pl.read_csv(tmp_path / "audit" / "issues.csv")
    assert (labels != clean)[issues["row"].to_numpy()].mean() > 0.9
    assert set(issues["given"]) <= {"Gärtner", "Koch, Bäcker", "'=Arzt"}


def test_fractional_labels(command, tmp_path):
    clean = np.repeat(np.arange(3), 50)
    labels = noise.corrupt(clean, noise.pair(3, 0.2), seed=0) + 0.5
    x = rows_of(clean)
    pl.DataFrame({"a": x[:, 0], "b": x[:, 1], "grade": labels}).write_csv(tmp_path / "grades.csv")
    arguments = (
        "audit",
        tmp_path / "grades.csv",
        "--label",
        "grade",
        "--model",
        "logistic",
        "--out",
        tmp_path / "audit",
    )
    assert command(*arguments)[0] == 0
    assert set(pl.read_csv(tmp_path / "audit" / "issues.csv")["given"]) <= {0.5, 1.5, 2.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv", "--label", "y"], "There is no table at"),
        (["t.csv"], "Name the label column of"),
        (["t.csv", "--label", "z"], "has no column 'z'"),
        (["t.csv", "--label", "y", "--model", "oracle"], "There is no model 'oracle'"),
        (["t.csv", "--label", "y", "--reading", "both"], "There is no reading 'both'"),
        (["t.csv", "--label", "y", "--probs", "none.npy"], "There is no array at"),
        (["t.csv", "--label", "y", "--probs", "t.csv"], "is not a NumPy array file"),
        (["t.csv", "--label", "y", "--probs", "p.npy"], "probs has 3 rows, but there are 12 labels"),
        (["t.csv", "--label", "y", "--probs", "p.npy", "--features", "p.npy"], "not both"),
        (["t.csv", "--label", "y", "--fdr", "2"], "--fdr"),
        (["t.csv", "--label", "y", "--clean", "z"], "has no column 'z'"),
        (["t.csv", "--label", "y", "--apply", "none.csv"], "There is no file of decisions"),
        (["t.csv", "--label", "y", "--apply", "d.csv", "--out", "t.csv"], "is the audited data itself"),
        (["number.csv", "--label", "y"], "does not look like a label"),
        (["gap.csv", "--label", "y"], "The label column 'y' of gap.csv is empty"),
    ],
)
def test_bad_input_ends_in_one_line_and_writes_nothing(command, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path, "x,y\n" + "1,a\n2,b\n" * 6, name="t.csv")
    write_table(tmp_path, "x,y\n" + "".join(f"1,{row / 7}\n" for row in range(40)), name="number.csv")
    write_table(tmp_path, "x,y\n1,\n2,\n3,\n", name="gap.csv")
    write_table(tmp_path, "row,given,suggested,decision\n", name="d.csv")
    np.save("p.npy", np.full((3, 2), 0.5))
    before = sorted(tmp_path.iterdir())
    code, out, err = command("audit", *arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert out == ""
    assert sorted(tmp_path.iterdir()) == before


def test_pickled_arrays_are_refused(command, tmp_path):
    np.save(tmp_path / "p.npy", np.array([{"code": "to run"}]), allow_pickle=True)
    path = write_table(tmp_path, "x,y\n" + "1,a\n2,b\n" * 6)
    code, _, err = command("audit", path, "--label", "y", "--probs", tmp_path / "p.npy")
    assert code == 2
    assert "is not a NumPy array file" in err


def test_audit_is_a_plain_function():
    assert inspect.isfunction(volmin.audit)
    assert "volmin.audit" not in sys.modules
