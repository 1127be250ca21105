"""Audits as a notebook shows them."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

import volmin
from volmin import noise


@pytest.fixture(scope="module")
def found():
    generator = np.random.default_rng(0)
    truth = generator.integers(3, size=600)
    labels = noise.corrupt(truth, noise.pair(3, 0.2), seed=0)
    probs = np.eye(3)[truth] * 0.9 + generator.dirichlet(np.ones(3), 600) * 0.1
    classes = np.array(["<b>cat</b>", "dog & co", "x" * 100])
    return volmin.audit(classes[labels], probs=probs / probs.sum(axis=1, keepdims=True), classes=classes)


def test_repr_is_one_line(found):
    assert repr(found) == (
        f"<Audit of 600 labels in 3 classes: {found.noise_rate:.1%} wrong (between {found.noise_range[0]:.1%} and"
        f" {found.noise_range[1]:.1%}), {len(found.issues())} flagged>"
    )


def test_html_shows_headline_classes_and_first_suspects_escaped(found):
    page = ElementTree.fromstring(found._repr_html_())
    assert "600 labels in 3 classes" in "".join(page.itertext())
    classes, suspects = page.findall("table")
    assert len(classes.findall("tbody/tr")) == 3
    first = ["".join(cell.itertext()) for cell in suspects.find("tbody/tr") or ()]
    row = int(found.issues()[0])
    assert first[0] == str(row)
    assert first[1][:50] == found.labels[row][:50]
    assert "<b>cat</b>" in "".join(page.itertext())
    assert page.find(".//td/b") is None


def test_plot_shows_the_transition_matrix_and_the_rates(found):
    matrix, bars = found.plot().axes[:2]
    np.testing.assert_allclose(matrix.images[0].get_array(), found.transition)
    np.testing.assert_allclose([bar.get_width() for bar in bars.patches], found.class_noise_rates)


def test_clean_labels_have_no_table_of_suspects():
    labels = np.arange(300) % 3
    with pytest.warns(UserWarning, match="agree with 100"):
        clean = volmin.audit(labels, probs=np.eye(3)[labels] * 0.97 + 0.01)
    page = ElementTree.fromstring(clean._repr_html_())
    assert len(page.findall("table")) == 1
