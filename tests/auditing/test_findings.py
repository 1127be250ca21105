"""Findings have stable codes and appear where their cause is present."""

import inspect
import json
import re
from pathlib import Path

import numpy as np
import pytest

import volmin
from volmin import noise
from volmin.auditing import findings
from volmin.auditing.crowd import findings as findings_about_annotators

ROOT = Path(__file__).parents[2]
SLOW = ("seeds_disagree", "label_spellings", "readings_disagree", "single_answers", "weak_judge")
PAGES = {path.stem: path.read_text() for path in (ROOT / "docs" / "findings").glob("*.md") if path.stem != "index"}


def messages(page):
    """The quoted texts of a finding, as patterns: an ellipsis stands for what depends on the data."""
    quoted = re.findall(r"((?:^> .*\n)+)", page, re.M)
    texts = [" ".join(line[2:] for line in block.splitlines()) for block in quoted]
    return [re.escape(text).replace("…", ".+") for text in texts]


@pytest.mark.parametrize(
    "code", [pytest.param(code, marks=pytest.mark.slow) if code in SLOW else code for code in PAGES]
)
@pytest.mark.filterwarnings("ignore")
def test_example_of_the_page_has_its_finding_in_every_output(code, tmp_path):
    names = {}
    (example,) = re.findall(r"```python\n(.*?)```", PAGES[code], re.S)
    exec(example, names)
    audit = names["audit"]
    (finding,) = (finding for finding in audit.findings if finding.code == code)
    assert any(re.fullmatch(message, finding.text, re.S) for message in messages(PAGES[code])), finding.text
    assert re.search(rf"\b{code}\b", audit.summary())
    audit.save(tmp_path)
    content = json.loads((tmp_path / "audit.json").read_text())
    assert code in {finding["code"] for finding in content["findings"]}
    assert code in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("code", PAGES)
def test_page_names_its_code_and_says_what_to_do(code):
    assert re.match(rf"# .+\n\n`{code}`\n", PAGES[code])
    assert re.search(r"^## What to do\n\n- ", PAGES[code], re.M)


def test_every_finding_has_a_page_which_overview_and_navigation_list():
    sources = [inspect.getsource(module) for module in (findings, findings_about_annotators)]
    known = {code for source in sources for code in re.findall(r'Finding\(\s*"(\w+)"', source)}
    assert known == set(PAGES)
    overview = (ROOT / "docs" / "findings" / "index.md").read_text()
    assert re.findall(r"\[`(\w+)`\]\(\1\.md\)", overview) == re.findall(
        r"findings/(\w+)\.md", (ROOT / "mkdocs.yml").read_text().replace("findings/index.md", "")
    )
    assert set(re.findall(r"\[`(\w+)`\]", overview)) == known


def codes(audit):
    return {finding.code for finding in audit.findings}


def posteriors(h, T, generator):
    probs = h @ T.T
    return probs, (generator.random((len(h), 1)) < probs.cumsum(axis=1)).argmax(axis=1)


def test_class_dependent_noise_of_separable_classes_has_no_finding():
    generator = np.random.default_rng(0)
    h = np.eye(4)[generator.integers(0, 4, 3000)] * 0.99 + 0.0025
    probs, labels = posteriors(h, noise.pair(4, 0.2), generator)
    audit = volmin.audit(labels, probs=probs, random_state=0)
    assert codes(audit) == set()
    assert audit.judges[0].name == "given probabilities"
    assert audit.judges[0].agreement == pytest.approx((probs.argmax(axis=1) == labels).mean())


def test_unsure_model_is_named_and_the_range_reaches_zero():
    generator = np.random.default_rng(0)
    h = generator.dirichlet(np.full(4, 2.0), size=4000)
    probs, labels = posteriors(h, noise.symmetric(4, 0.1), generator)
    audit = volmin.audit(labels, probs=probs, random_state=0)
    assert "weak_judge" in codes(audit)
    low, high = audit.noise_range
    assert low <= 0.1 <= high
    assert "weak_judge: " in audit.summary()


def test_strong_model_of_labels_with_many_errors_on_hard_examples_is_not_called_weak():
    generator = np.random.default_rng(0)
    # People mistake 23 % of nearly all examples for another class, which differs between examples.
    top, second = generator.permuted(np.tile(np.arange(4), (6000, 1)), axis=1)[:, :2].T
    share = np.where(generator.random(6000) < 0.1, 0.99, 0.77)
    probs = np.full((6000, 4), 1e-4)
    probs[np.arange(6000), top] = share
    probs[np.arange(6000), second] = 1 - share
    probs /= probs.sum(axis=1, keepdims=True)
    labels = np.where(generator.random(6000) < share, top, second)
    audit = volmin.audit(labels, probs=probs, random_state=0)
    assert audit.clean_probs is not None
    assert audit.clean_probs.max(axis=1).mean() < findings.CERTAIN
    assert codes(audit) == {"readings_disagree"}
    low, high = audit.noise_range
    assert low <= (labels != top).mean() <= high


def test_model_without_skill_is_named():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 600)
    audit = volmin.audit(labels, features=generator.normal(size=(600, 2)), model="logistic", random_state=0)
    assert "weak_judge" in codes(audit)


def test_two_classes_rare_classes_and_copies_are_named():
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [100, 100, 2])
    x = generator.normal(size=(202, 3)) + 5 * labels[:, None]
    x[:30] = x[30:60]
    with pytest.warns(UserWarning, match="fewer than"):
        audit = volmin.audit(labels, features=x, model="logistic", random_state=0)
    assert {"two_classes", "rare_classes", "duplicates"} <= codes(audit)


def test_probabilities_of_training_rows_are_named():
    labels = np.arange(300) % 3
    with pytest.warns(UserWarning, match="trained on these labels"):
        audit = volmin.audit(labels, probs=np.eye(3)[labels] * 0.97 + 0.01, random_state=0)
    assert "in_sample_probabilities" in codes(audit)
