import csv
import json

import numpy as np
import polars as pl
import pytest

import volmin
from volmin.data import DataError
from volmin.exceptions import DamagedFileError
from volmin.io.locks import BusyError, only_process
from volmin.io.sealed import read_sealed_json, write_sealed_json


@pytest.fixture
def folder(audited, mislabelled, tmp_path):
    audited.save(tmp_path / "audit", examples=mislabelled.pixels())
    return tmp_path / "audit"


def test_files_hold_the_fields_of_the_audit(folder, audited):
    with (folder / "issues.csv").open(encoding="utf-8", newline="") as file:
        issues = list(csv.DictReader(file))
    rows = audited.issues()
    assert [int(issue["row"]) for issue in issues] == rows.tolist()
    assert [issue["suggested"] for issue in issues] == [str(label) for label in audited.suggested[rows]]
    assert float(issues[-1]["probability_wrong"]) == pytest.approx(1 - audited.quality[rows[-1]], abs=1e-4)
    labels = pl.read_parquet(folder / "labels.parquet")
    assert labels.height == 1797
    assert np.allclose(labels["probability_wrong"], 1 - audited.quality)
    assert labels["flagged"].sum() == len(rows)
    transition = np.loadtxt(folder / "transition.csv", delimiter=",", skiprows=1)[:, 1:]
    assert np.allclose(transition, audited.transition, atol=1e-5)
    content = json.loads((folder / "audit.json").read_text())
    assert content["noise_rate"] == audited.noise_rate
    assert content["flagged"] == len(rows)


def test_loaded_audit_equals_the_saved_one(folder, audited, tmp_path):
    again = volmin.Audit.load(folder)
    assert again.summary() == audited.summary()
    assert again.issues().tolist() == audited.issues().tolist()
    assert again.scatter is not None
    assert again.scatter.verdict == audited.scatter.verdict
    assert again.intervals is not None
    assert np.array_equal(again.intervals.transition.low, audited.intervals.transition.low)
    again.to_html(tmp_path / "again.html")
    assert "most suspicious" in (tmp_path / "again.html").read_text()


def test_missing_unknown_and_damaged_audits_are_rejected(folder, tmp_path):
    with pytest.raises(DataError, match="holds no finished audit"):
        volmin.Audit.load(tmp_path)
    content = read_sealed_json(folder / "audit.json")
    write_sealed_json(folder / "audit.json", content | {"format": 99})
    with pytest.raises(DataError, match="another version"):
        volmin.Audit.load(folder)
    write_sealed_json(folder / "audit.json", content | {"rare": 7})
    with pytest.raises(DataError, match="damaged audit"):
        volmin.Audit.load(folder)
    (folder / "audit.json").write_text("{")
    with pytest.raises(DamagedFileError, match="damaged"):
        volmin.Audit.load(folder)


@pytest.mark.parametrize(
    "changes",
    [
        *({"rare": ["x"]}, {"rare": [99]}, {"classes": ["0"] * 10}, {"classes": [[]]}, {"transition": {}}),
        *({"joint": [[1.0]]}, {"bracket": None}, {"intervals": 1}, {"scatter": 0.5}, {"scatter": {"per_class": 3}}),
        *({"histories": 5}, {"histories": [[1]]}, {"provenance": 0.5}),
    ],
)
def test_malformed_content_with_a_valid_checksum_is_rejected(folder, changes):
    content = read_sealed_json(folder / "audit.json")
    (name,) = changes
    if isinstance(content[name], dict) and isinstance(changes[name], dict):
        changes = {name: content[name] | changes[name]}
    write_sealed_json(folder / "audit.json", content | changes, ["labels.parquet"])
    with pytest.raises(DataError, match="damaged audit"):
        volmin.Audit.load(folder)


@pytest.mark.parametrize("name", ["audit.json", "labels.parquet"])
@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_flipped_bit_is_detected(folder, name, place):
    content = bytearray((folder / name).read_bytes())
    # Another bit could change the last digit of a number, to one that stands for the same number.
    content[int(place * len(content))] ^= 16
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        volmin.Audit.load(folder)


def test_save_fails_while_another_process_holds_the_folder(folder, audited):
    before = (folder / "audit.json").read_bytes()
    with only_process(folder), pytest.raises(BusyError, match="Another process is at work"):
        audited.save(folder)
    assert (folder / "audit.json").read_bytes() == before


def test_failed_save_leaves_no_audit_json(folder, audited):
    with pytest.raises(ValueError, match="one entry per label: 1797, not 3"):
        audited.save(folder, examples=np.zeros((3, 1, 8, 8), np.uint8))
    assert not (folder / "audit.json").exists()
    assert not list(folder.glob(".*"))


def test_examples_must_have_a_row_per_label(audited, tmp_path):
    with pytest.raises(ValueError, match="one entry per label: 1797, not 3"):
        audited.to_html(tmp_path / "page.html", examples={"text": ["a", "b", "c"]})
    assert not list(tmp_path.iterdir())


def test_files_of_format_1_without_checksums_load(folder, audited):
    content = json.loads((folder / "audit.json").read_text())
    assert content["format"] == 1
    del content["seal"]
    (folder / "audit.json").write_text(json.dumps(content))
    assert np.array_equal(volmin.Audit.load(folder).joint, audited.joint)


def test_labels_are_escaped_in_csv_and_html(exact, tmp_path):
    h, T, _, codes = exact
    names = np.array(["=HYPERLINK(1)", "<script>alert(1)</script>", "plain"])
    order = names.argsort()
    audit = volmin.audit(names[codes], probs=(h @ T.T)[:, order], random_state=0)
    audit.save(tmp_path, examples={"@cell": ["<b>bold</b>"] * len(codes)})
    issues = (tmp_path / "issues.csv").read_text()
    assert "'=HYPERLINK(1)" in issues
    assert ",=HYPERLINK" not in issues
    page = (tmp_path / "report.html").read_text()
    assert "<script>alert" not in page
    assert "<b>bold" not in page
    assert "script-src 'sha256-" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_page_size_is_bounded_for_many_rows(tmp_path):
    generator = np.random.default_rng(0)
    clean = generator.integers(0, 3, 20_000)
    labels = np.where(generator.random(20_000) < 0.3, (clean + 1) % 3, clean)
    probs = np.full((20_000, 3), 0.01)
    probs[np.arange(20_000), clean] = 0.69
    probs[np.arange(20_000), (clean + 1) % 3] = 0.3
    audit = volmin.audit(labels, probs=probs, random_state=0)
    assert len(audit.issues()) > 5000
    audit.to_html(tmp_path / "rows.html", examples={"text": ["long " * 100] * 20_000})
    audit.to_html(tmp_path / "images.html", examples=generator.integers(0, 255, (20_000, 3, 40, 40), dtype=np.uint8))
    for name in ("rows.html", "images.html"):
        assert (tmp_path / name).stat().st_size < 5_000_000
        assert "most suspicious of" in (tmp_path / name).read_text()
