import json

import pytest

from volmin.exceptions import DamagedFileError
from volmin.io.atomic import read_json, replace_file, write_json


def test_failed_write_keeps_the_old_file_and_leaves_no_other(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="Out of range float"):
        write_json(path, {"a": float("nan")})

    def write_half():
        with replace_file(path) as temporary:
            temporary.write_text("half")
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_half()
    assert json.loads(path.read_text()) == {"a": 1}
    assert [found.name for found in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("text", ["", "[]", "7", "{", "[" * 100_000])
def test_text_without_a_json_object_is_damaged(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(DamagedFileError, match=r"a\.json is damaged"):
        read_json(tmp_path / "a.json")
