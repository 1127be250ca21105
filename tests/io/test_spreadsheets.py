import csv

import pytest

from volmin.io.spreadsheets import spreadsheet_safe, write_csv


@pytest.mark.parametrize("text", ["=1+2", "+A1", "-A1", "@SUM(1)", "\t=1", "\r=1", "\n=1", "-1-1", "+1+cmd"])
def test_formulas_become_text(text):
    assert spreadsheet_safe(text) == "'" + text


@pytest.mark.parametrize("cell", ["cat", "-1", "+2.5", "-1e-3", "a=b", "", 7, -0.5])
def test_plain_text_and_numbers_are_unchanged(cell):
    assert spreadsheet_safe(cell) == str(cell)


def test_csv_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "t.csv"
    write_csv(path, ("=a", "b"), [(1, 'x, "y"\nz'), (2, "@")])
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["'=a", "b"], ["1", 'x, "y"\nz'], ["2", "'@"]]

    def rows():
        yield (1, 2)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_csv(path.with_name("other.csv"), ("a", "b"), rows())
    assert [file.name for file in path.parent.iterdir()] == ["t.csv"]
