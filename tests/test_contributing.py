"""The example of CONTRIBUTING.md is a complete method that works in every interface as printed."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from volmin import NoisyLabelClassifier, methods
from volmin.experiments import run, spec

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"


@pytest.fixture
def new_method(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "bootstrapping.py").write_text(code)
    # Acts like a new file in volmin/methods and its line in __init__.py, without writing to the checkout.
    monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
    module = import_module("volmin.methods.bootstrapping")
    monkeypatch.setitem(methods._METHODS, "bootstrapping", module.Bootstrapping)
    yield "bootstrapping"
    sys.modules.pop("volmin.methods.bootstrapping", None)


def test_new_file_is_found_as_a_method(new_method, tmp_path, digits):
    assert new_method in methods.names()
    assert methods.option_defaults(methods.get(new_method)) == {"trust": 0.8}
    chosen = spec.resolve("digits", "sym:0.2", new_method, epochs=10, options={"trust": 0.9})
    result = run.run(run.set_up(chosen, dataset=digits), tmp_path / "runs")
    assert result["accuracy"] > 0.7
    classifier = NoisyLabelClassifier(method=new_method, epochs=10, random_state=0)
    assert classifier.fit(digits.train.x.numpy(), digits.train.y).score(digits.test.x.numpy(), digits.test.y) > 0.8


def test_method_of_another_package(tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "elsewhere.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    assert methods.get("elsewhere:Bootstrapping").__name__ == "Bootstrapping"
    with pytest.raises(ValueError, match="cannot be imported"):
        methods.get("elsewhere:Nothing")
    with pytest.raises(ValueError, match="not a subclass"):
        methods.get("pathlib:Path")
