"""``volmin predict``: new rows of tables, images and arrays."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from PIL import Image

from volmin import load_run


def only(folder):
    (found,) = folder.iterdir()
    return found


def rows(count, seed):
    """Two classes that the size tells apart, with a code, a colour and a number that is always known."""
    generator = np.random.default_rng(seed)
    y = np.arange(count) % 2
    return pl.DataFrame(
        {
            "code": [f"{i % 100:03d}" for i in range(count)],
            "size": np.round(generator.normal(size=count) + 6 * y, 2),
            "colour": np.where(generator.random(count) < 0.5, "red", "blue"),
            "kind": np.where(y, "big", "small"),
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("predict")


@pytest.fixture(scope="module")
def trained(home):
    """A run on a table."""
    from volmin.experiments import run, spec
    from volmin.experiments.source import DataSource

    rows(300, 0).write_csv(home / "things.csv")
    source = DataSource(str(home / "things.csv"), label="kind")
    chosen = spec.resolve("table", "none", "cross_entropy", epochs=8, data=source.identity(), rows=source.rows)
    run.run(run.set_up(chosen, dataset=source.load()), home / "runs")
    return chosen.folder(home / "runs")


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".feather", ".jsonl", ".xlsx", ".csv.gz", ".npz"])
def test_every_format_of_tables_gives_the_same_predictions(command, trained, tmp_path, suffix):
    import gzip

    import openpyxl

    new, path = rows(40, 1), tmp_path / f"new{suffix}"
    if suffix == ".csv":
        new.write_csv(path)
    elif suffix == ".tsv":
        new.write_csv(path, separator="\t")
    elif suffix == ".csv.gz":
        path.write_bytes(gzip.compress(new.write_csv().encode()))
    elif suffix == ".parquet":
        new.write_parquet(path)
    elif suffix == ".feather":
        new.write_ipc(path)
    elif suffix == ".jsonl":
        new.write_ndjson(path)
    elif suffix == ".xlsx":
        book = openpyxl.Workbook()
        for row in (new.columns, *new.iter_rows()):
            book.worksheets[0].append(list(row))
        book.save(path)
    else:
        columns = {name: new[name].to_numpy() for name in new.columns}
        arrays: dict[str, Any] = {name: x.astype("U") if x.dtype == object else x for name, x in columns.items()}
        np.savez(path, **arrays)
    for out in (tmp_path / "found.csv", tmp_path / "found.parquet"):
        done = command("predict", trained, path, "--out", out)
        assert (done.code, done.err) == (0, "")
        assert "40 rows written" in done.out
    exact = pl.read_parquet(tmp_path / "found.parquet")
    assert exact.columns == [*new.columns, "predicted", "probability"]
    assert exact["predicted"].to_list() == new["kind"].to_list()
    probs = load_run(trained).predict_proba(new)
    assert np.allclose(exact["probability"].to_numpy(), probs.max(1))
    text = (tmp_path / "found.csv").read_text().splitlines()
    assert text[0] == "code,size,colour,kind,predicted,probability"
    assert text[1].startswith("000,"), "a code keeps its leading zeros"


def test_values_that_training_did_not_have_are_told_in_one_line(command, trained, tmp_path):
    new = rows(40, 1).drop("kind").with_columns(
        colour=pl.lit("gréen"), size=pl.Series([None, *range(39)], dtype=pl.Float64)
    )  # fmt: skip
    new.write_parquet(tmp_path / "new.parquet")
    with pytest.warns(UserWarning, match="did not occur in training") as told:
        assert command("predict", trained, tmp_path / "new.parquet", "--out", tmp_path / "found.parquet").code == 0
    line = str(told[0].message)
    assert len(told) == 1
    assert "1 values of 'size' are missing, but none in training: read as the median" in line
    assert "40 values of 'colour' did not occur in training ('gréen'): read as another" in line


def test_numbers_that_are_text_are_told(command, trained, tmp_path):
    new = rows(40, 1).with_columns(size=pl.Series(["large", *map(str, range(39))]))
    new.write_csv(tmp_path / "new.csv")
    with pytest.warns(UserWarning, match="1 values of 'size' are no numbers \\('large'\\): read as missing"):
        assert command("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "found.csv").code == 0


@pytest.mark.parametrize(
    ("change", "out", "message"),
    [
        (lambda new: new.drop("size", "colour"), "found.csv", "lacks columns that the encoding needs: colour, size"),
        (lambda new: new.with_columns(size=pl.lit("large")), "found.csv", "'size' must hold numbers, but holds text"),
        (lambda new: new.with_columns(predicted=1), "found.csv", "has a column 'predicted' already"),
        (lambda new: new, "found.xls", "Predictions are written as .csv or .parquet, not to found.xls"),
        (lambda new: new, "new.csv", "would replace"),
        (lambda new: new.head(0), "found.csv", "has no rows"),
        (None, "found.csv", "There is nothing at"),
    ],
)
def test_what_cannot_be_predicted_is_one_line(command, trained, tmp_path, change, out, message):
    if change is not None:
        change(rows(20, 1)).write_csv(tmp_path / "new.csv")
    done = command("predict", trained, tmp_path / "new.csv", "--out", tmp_path / out)
    assert done.code == 2
    assert message in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "found.csv").exists()


def test_folder_instead_of_a_table_is_refused(command, trained, tmp_path):
    done = command("predict", trained, tmp_path)
    assert done.code == 2
    assert "trained on a table, but" in done.err


def test_unfinished_run_is_refused(command, tmp_path):
    done = command("predict", tmp_path / "nowhere", tmp_path)
    assert done.code == 2
    assert "nowhere does not exist" in done.err


def test_formulas_are_not_evaluated_by_a_spreadsheet(command, trained, tmp_path):
    rows(20, 1).with_columns(note=pl.lit("=1+2")).write_csv(tmp_path / "new.csv")
    assert command("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "found.csv").code == 0
    assert ",'=1+2," in (tmp_path / "found.csv").read_text()


@pytest.fixture(scope="module")
def photos(home):
    """Dark and light images, and a run on them."""
    from volmin.experiments import run, spec
    from volmin.experiments.source import DataSource

    generator = np.random.default_rng(0)
    for name, level in (("dark", 70), ("light", 180)):
        (home / "photos" / name).mkdir(parents=True)
        for i in range(40):
            pixels = generator.normal(level, 20, (16, 16)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(home / "photos" / name / f"{i}.png")
    source = DataSource(str(home / "photos"))
    chosen = spec.resolve("images", "none", "cross_entropy", epochs=2, data=source.identity(), rows=source.rows)
    run.run(run.set_up(chosen, dataset=source.load()), home / "image-runs")
    return home / "photos", chosen.folder(home / "image-runs")


def test_folder_of_images(command, photos, tmp_path):
    folder, trained = photos
    done = command("predict", trained, folder, "--out", tmp_path / "found.csv")
    assert done.code == 0
    found = pl.read_csv(tmp_path / "found.csv")
    assert found.columns == ["file", "predicted", "probability"]
    assert found.height == 80
    assert sum(file.startswith(label) for file, label in found.select("file", "predicted").iter_rows()) > 76


def test_table_of_images_with_a_damaged_one(command, photos, tmp_path):
    folder, trained = photos
    Image.open(folder / "light" / "3.png").save(tmp_path / "a.png")
    (tmp_path / "b.png").write_text("no image")
    pl.DataFrame({"id": [7, 8], "photo": ["a.png", "b.png"]}).write_csv(tmp_path / "new.csv")
    with pytest.warns(UserWarning, match="1 images have no prediction"):
        assert command("predict", trained, tmp_path / "new.csv", "--out", tmp_path / "found.parquet").code == 0
    found = pl.read_parquet(tmp_path / "found.parquet")
    assert found.columns == ["id", "photo", "predicted", "probability"]
    assert found["predicted"].to_list() == ["light", None]
    assert found["probability"].null_count() == 1
    assert command("predict", trained, tmp_path / "b.png", "--out", tmp_path / "x.csv").code == 2
    assert command("predict", trained, tmp_path / "a.png", "--out", tmp_path / "x.csv").code == 0


def test_arrays_of_images(command, photos, tmp_path):
    _, trained = photos
    noise = np.random.default_rng(1).normal(0, 20, (2, 1, 16, 16))
    x = (noise + np.array([70, 180])[:, None, None, None]).clip(0, 255).astype(np.uint8)
    np.savez(tmp_path / "new.npz", x=x, name=np.array(["first", "second"]))
    assert command("predict", trained, tmp_path / "new.npz", "--out", tmp_path / "found.csv").code == 0
    assert [line.split(",")[:3] for line in (tmp_path / "found.csv").read_text().splitlines()] == [
        ["row", "name", "predicted"], ["0", "first", "dark"], ["1", "second", "light"],
    ]  # fmt: skip
    np.save(tmp_path / "wrong.npy", x[:, :, :8])
    done = command("predict", trained, tmp_path / "wrong.npy")
    assert done.code == 2
    assert "must hold one array of rows of shape (N, 1, 16, 16), but its arrays are: x (2, 1, 8, 16)" in done.err


def test_run_on_digits_predicts_arrays(command, digits, tmp_path):
    train = ("train", "--dataset", "digits", "--noise", "none", "--method", "cross_entropy", "--epochs", "15")
    assert command(*train, "--out", tmp_path / "runs").code == 0
    np.save(tmp_path / "new.npy", digits.test.x.numpy())
    folder = only(tmp_path / "runs")
    assert command("predict", folder, tmp_path / "new.npy", "--out", tmp_path / "found.parquet").code == 0
    found = pl.read_parquet(tmp_path / "found.parquet")
    assert np.mean(found["predicted"].cast(pl.Int64).to_numpy() == digits.test.y) > 0.9
    rows(5, 0).write_csv(tmp_path / "new.csv")
    done = command("predict", folder, tmp_path / "new.csv")
    assert done.code == 2
    assert "trained on arrays, not on a table: give an .npy or .npz file" in done.err
