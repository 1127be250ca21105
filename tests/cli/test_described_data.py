"""Data as people have them, with the default models: a churn table, intents of messages, and drawn shapes.

Every column's fate is printed, the stated range contains the true noise rate, and flags are as precise as stated.
"""

import gzip
import json
import zipfile
from typing import Any

import numpy as np
import openpyxl
import polars as pl
import pytest
import zstandard
from PIL import Image, ImageDraw

pytestmark = pytest.mark.filterwarnings("ignore:The estimated T is nearly singular")

COMPLAINTS = ["slow", "nobody calls back", "waiting for weeks", "cancel my contract", "outage again", "wrong fee"]
PRAISE = ["works fine", "great support", "fast connection", "would recommend", "good value", "no complaints"]
NEUTRAL = ["the router is in the hall", "called on monday", "paid by card", "second line", "asked about the plan"]


def churn(rows=1500, seed=0):
    """A table of customers: a note, amounts with separators, dates, strays, spellings, twelve empty labels."""
    generator = np.random.default_rng(seed)
    truth = generator.choice(["Yes", "No"], rows, p=[0.35, 0.65])
    leaves = truth == "Yes"
    given = np.where(generator.random(rows) < 0.131, np.where(leaves, "No", "Yes"), truth)
    spelled = np.where(given == "Yes", generator.choice(["Yes", "yes ", " YES"], rows, p=[0.6, 0.2, 0.2]), "No")
    labels = spelled.astype(object)
    labels[generator.permutation(rows)[:12]] = None
    tenure = generator.poisson(np.where(leaves, 14, 30)).astype(str).astype(object)
    tenure[generator.random(rows) < 0.03] = "unknown"
    charge = generator.lognormal(np.where(leaves, 8.4, 8.0), 0.4)
    days = pl.Series(np.datetime64("2019-01-01") + generator.integers(0, 1800, rows))
    notes = [
        ". ".join([*generator.choice(COMPLAINTS if bad else PRAISE, 2), str(generator.choice(NEUTRAL))])
        for bad in leaves ^ (generator.random(rows) < 0.05)
    ]
    return pl.DataFrame(
        {
            "customer_id": [f"C-{row:06d}" for row in range(rows)],
            "signup": days.dt.strftime("%d/%m/%Y"),
            "charges": [f"{amount:,.2f}" for amount in charge],
            "discount": [f"{share}%" for share in generator.integers(0, 30, rows)],
            "tenure": tenure.tolist(),
            "paperless": generator.choice(["yes", "no", "Y", "N"], rows),
            "city": generator.choice([f"Town {number}" for number in range(300)], rows),
            "country": ["DE"] * rows,
            "note": notes,
            "churn": labels.tolist(),
            "truth": truth,
        }
    )


FATES = {
    "customer_id": ("left out", "identifies rows"),
    "signup": ("date", "day/month/year"),
    "charges": ("number", "read from text such as"),
    "discount": ("number", "read from text such as"),
    "tenure": ("number", "% missing"),
    "paperless": ("boolean", ""),
    "city": ("category", "values: the 50 most frequent"),
    "country": ("left out", "constant"),
    "note": ("text", "TF-IDF"),
}


def audited(command, *arguments):
    code, shown, err = command("audit", *arguments)
    assert code == 0, err
    folder = arguments[arguments.index("--out") + 1]
    return shown, json.loads((folder / "audit.json").read_text()), pl.read_parquet(folder / "labels.parquet")


def noise_is_as_stated(content: dict[str, Any], wrong: Any) -> None:
    low, high = content["noise_range"]
    assert low <= wrong.mean() <= high
    assert content["noise_rate"] <= wrong.mean() + 0.1


@pytest.mark.slow
def test_churn_table_loses_nothing_silently(command, tmp_path):
    frame = churn()
    frame.write_csv(tmp_path / "churn.csv")
    arguments = (tmp_path / "churn.csv", "--label", "churn", "--merge-labels", "--ignore", "truth", "--seed", 1)
    shown, content, labels = audited(command, *arguments, "--out", tmp_path / "audit")
    uses = {use["name"]: use for use in content["provenance"]["columns"]}
    assert list(uses) == [name for name in frame.columns if name not in ("churn", "truth")]
    for name, (kind, note) in FATES.items():
        (line,) = (line for line in shown.splitlines() if line.strip().startswith(name))
        assert kind in line
        assert note in line
        assert uses[name]["kind"] == kind
    assert "12 more rows have no label" in shown
    assert content["rows"] == 1488
    assert content["classes"] == ["No", "Yes"]
    known = labels["given"].is_not_null().to_numpy()
    wrong = (labels["given"] != frame["truth"]).fill_null(False).to_numpy()
    noise_is_as_stated(content, wrong[known])
    assert wrong[labels["flagged"].to_numpy()].mean() > 0.8
    suggested = labels["suggested"] == frame["truth"]
    assert np.mean(suggested.to_numpy()[~known]) > 0.8


INTENTS = {
    "refund": ["money back", "refund", "return the money", "reimburse"],
    "delivery": ["parcel", "delivered late", "where is my package", "shipping"],
    "password": ["reset my password", "cannot log in", "locked out", "forgot my login"],
    "cancel": ["cancel my order", "stop the order", "call it off", "no longer want it"],
    "invoice": ["invoice", "receipt", "bill for tax", "copy of the bill"],
    "address": ["new address", "moved house", "ship to another place", "change the street"],
    "hours": ["open on sunday", "closing time", "opening hours", "when do you open"],
}


def intents(rows=1400, seed=1):
    """Messages with intents, 12 % of them wrong; some messages mention another intent too."""
    generator = np.random.default_rng(seed)
    names = list(INTENTS)
    fillers = ["please", "hello", "can you help", "thanks", "asap", "since last week", "my name is Kim", "I tried"]
    truth = generator.integers(len(names), size=rows)
    texts = []
    for code in truth:
        parts = [str(generator.choice(INTENTS[names[code]])), *generator.choice(fillers, 3, replace=False)]
        if generator.random() < 0.15:
            parts.append(str(generator.choice(INTENTS[names[generator.integers(len(names))]])))
        generator.shuffle(parts)
        texts.append(f"{' '.join(parts)} {generator.integers(100_000)}")
    others = (truth + generator.integers(1, len(names), rows)) % len(names)
    given = np.where(generator.random(rows) < 0.12, others, truth)
    pick = np.array(names)
    return pl.DataFrame({"text": texts, "intent": pick[given], "truth": pick[truth]})


@pytest.mark.slow
def test_intents_are_within_the_stated_range_and_precision(command, tmp_path):
    frame = intents()
    frame.write_csv(tmp_path / "intents.csv")
    arguments = (tmp_path / "intents.csv", "--label", "intent", "--ignore", "truth", "--seed", 1)
    shown, content, labels = audited(command, *arguments, "--out", tmp_path / "audit")
    assert "  text  text      TF-IDF" in shown
    wrong = (frame["intent"] != frame["truth"]).to_numpy()
    noise_is_as_stated(content, wrong)
    flagged = labels["flagged"].to_numpy()
    correct = 1 - wrong[flagged].mean()
    # The summary states the share of correct labels among the flagged under each reading of hard examples.
    sampling = 2 * np.sqrt(0.25 / flagged.sum())
    assert correct <= max(content["readings"]["flagged_correct"]) + sampling
    assert (wrong & flagged).sum() / wrong.sum() > 0.85
    assert "words against the label" in (tmp_path / "audit" / "report.html").read_text()


def shapes(root, count=360, seed=2):
    """Folders of drawn circles, squares and triangles, 11.7 % of them in a wrong folder; returns who is."""
    generator = np.random.default_rng(seed)
    names, wrong = ["circle", "square", "triangle"], {}
    for place in range(count):
        code = int(generator.integers(3))
        image = Image.new("L", (24, 20), int(generator.integers(150, 255)))
        r, shade = int(generator.integers(5, 8)), int(generator.integers(0, 90))
        cx, cy = int(generator.integers(r, 24 - r)), int(generator.integers(r, 20 - r))
        draw, box = ImageDraw.Draw(image), (cx - r, cy - r, cx + r, cy + r)
        if code == 0:
            draw.ellipse(box, fill=shade)
        elif code == 1:
            draw.rectangle(box, fill=shade)
        else:
            draw.polygon([(cx, cy - r), (cx - r, cy + r), (cx + r, cy + r)], fill=shade)
        given = code if generator.random() > 0.117 else (code + int(generator.integers(1, 3))) % 3
        path = root / names[given] / f"{place:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
        wrong[f"{names[given]}/{place:04d}.png"] = given != code
    return wrong


@pytest.mark.slow
def test_folder_of_shapes_keeps_what_it_states(command, tmp_path):
    known = shapes(tmp_path / "shapes")
    shown, content, labels = audited(command, tmp_path / "shapes", "--seed", 1, "--out", tmp_path / "audit")
    assert "360 labels in 3 classes" in shown
    wrong = np.array([known[name] for name in labels["name"]])
    noise_is_as_stated(content, wrong)
    assert wrong[labels["flagged"].to_numpy()].mean() > 0.7
    assert wrong[labels["flagged"].to_numpy()].sum() / wrong.sum() > 0.7


def write_damaged(path):
    """A file of the format of its name that cannot be read."""
    frame, name = pl.DataFrame({"x": list(range(200)), "y": ["a", "b"] * 100}), path.name
    if name.endswith(".xlsx"):
        book = openpyxl.Workbook()
        book.worksheets[0].append(frame.columns)
        for row in frame.iter_rows():
            book.worksheets[0].append(row)
        book.save(path)
    elif name.endswith(".parquet"):
        frame.write_parquet(path)
    elif name.endswith(".feather"):
        frame.write_ipc(path)
    elif name.endswith(".npz"):
        np.savez(path, x=frame["x"].to_numpy(), y=frame["y"].to_numpy().astype(str))
    elif name.endswith((".gz", ".zst")):
        text = frame.write_csv().encode()
        path.write_bytes(gzip.compress(text) if name.endswith(".gz") else zstandard.ZstdCompressor().compress(text))
    else:
        broken = {".csv": 'x,y\n"1,a\n2,b\n', ".tsv": "x\ty\n1\ta\n2\n", ".jsonl": '{"x": 1, "y": "a"}\n{"x": \n'}
        path.write_text(broken[path.suffix])
        return
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


DAMAGED = ["t.csv", "t.tsv", "t.jsonl", "t.csv.gz", "t.csv.zst", "t.parquet", "t.feather", "t.xlsx", "t.npz"]


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_end_in_one_line_and_code_2(command, tmp_path, name):
    write_damaged(tmp_path / name)
    for arguments in (
        ("audit", tmp_path / name, "--label", "y", "--out", tmp_path / "out"),
        ("train", "--dataset", tmp_path / name, "--label", "y", "--out", tmp_path / "out"),
    ):
        code, out, err = command(*arguments)
        assert (code, out) == (2, "")
        (line,) = err.strip().splitlines()
        assert line.startswith("volmin: ")
        assert name in line
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["t.csv.gz", "t.csv.zst", "t.xlsx", "t.npz"])
def test_bombs_end_in_one_line_and_code_2(command, tmp_path, monkeypatch, name):
    monkeypatch.setattr("volmin.io.expansion.ALWAYS_EXPANDED", 100_000)
    zeros = b"x,y\n" + b"0,0\n" * 3_000_000
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(zeros))
    elif name.endswith(".zst"):
        path.write_bytes(zstandard.ZstdCompressor().compress(zeros))
    else:
        member = "xl/workbook.xml" if name.endswith(".xlsx") else "x.npy"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, bytes(30_000_000))
    code, out, err = command("audit", path, "--label", "y", "--out", tmp_path / "out")
    assert (code, out) == (2, "")
    (line,) = err.strip().splitlines()
    assert "expands to" in line
