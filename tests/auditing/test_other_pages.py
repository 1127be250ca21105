"""The pages of annotators, of many runs and of the demonstration in a browser."""

import numpy as np
import polars as pl
import pytest

import volmin
from volmin.experiments.render import CellText
from volmin.report import RunPage, Section, write_grid_report, write_run_report
from volmin.report.figures import curve_panels, svg

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def crowd_path(tmp_path_factory):
    """The page of an audit of annotators with long names, one of whom answers at random."""
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 3, 200)
    names = np.array(["cat", "dog", "another animal"])
    columns = {}
    for m in range(5):
        T = np.full((3, 3), 1 / 3) if m == 4 else volmin.noise.symmetric(3, 0.1 + 0.05 * m)
        columns[f"annotator-{m}-of-the-project@example.org"] = names[volmin.noise.corrupt(truth, T, seed=m)].tolist()
    path = tmp_path_factory.mktemp("crowd")
    volmin.audit(pl.DataFrame(columns), random_state=0).save(path)
    return path / "report.html"


@pytest.fixture(scope="module")
def runs_path(tmp_path_factory):
    """The page of several runs: a table with the paper's results, and curves."""
    path = tmp_path_factory.mktemp("runs")
    lines = {"VolMinNet": [[0.5, 0.7, 0.9], [0.4, 0.7, 0.8]], "Forward": [[0.3, 0.6], [0.4, 0.5]]}
    cell = CellText("90.00 ± 0.10", 2, "91.00 ± 0.20", "−1.00", True)
    table = (("pair:0.45", "sym:0.5"), {"VolMinNet": [cell, cell], "Forward": [cell, CellText("", 0, "", "", False)]})
    figure = svg(curve_panels({"mnist, pair:0.45": lines, "mnist, sym:0.5": lines}, "accuracy"))
    spec = {"method": "volminnet", "dataset": "mnist", "noise": "pair:0.45", "seed": 1, "preset": "fast"}
    result = {"accuracy": 0.9, "transition_error": 0.01, "selected_epoch": 3, "epochs": 3, "seconds": 200.0}
    section = Section("Test accuracy", "Test accuracy (in per cent)", {"mnist": table}, figure)
    write_grid_report(path / "report.html", [section], [(spec, result)] * 20)
    return path / "report.html"


@pytest.fixture(scope="module")
def demo_path(tmp_path_factory):
    """The page of runs on the same noisy data, as the demonstration writes it."""
    path = tmp_path_factory.mktemp("demo") / "report.html"
    history = [{"epoch": k, "accuracy": 0.1 * k, "transition_error": 1 / k} for k in range(1, 6)]
    result = {
        "accuracy": 0.5, "selected_epoch": 5, "epochs": 5, "noise_rate_estimate": 0.3, "seconds": 8.0, "versions": {},
    }  # fmt: skip
    names = [str(k) for k in range(4)]
    results, histories = (
        {"VolMinNet": result, "cross-entropy": result},
        {"VolMinNet": history, "cross-entropy": history},
    )
    T = volmin.noise.pair(4, 0.3)
    page = RunPage("30% of the labels were wrong", "digits", "pair:0.3", names, T, T, results, histories, "volmin demo")
    write_run_report(path, page)
    return path


@pytest.fixture(params=["crowd_path", "runs_path", "demo_path"])
def other_page(request, browser):
    """A page of another kind than an audit of labels."""
    page = browser.new_context(offline=True).new_page()
    page.goto(request.getfixturevalue(request.param).as_uri())
    yield page
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_other_pages_are_accessible(other_page, scheme, violations):
    other_page.emulate_media(color_scheme=scheme)
    assert violations(other_page) == []


def test_other_pages_fit_a_narrow_screen(other_page):
    other_page.set_viewport_size({"width": 400, "height": 850})
    assert other_page.evaluate("document.documentElement.scrollWidth") <= 400
    heights = [row.bounding_box()["height"] for row in other_page.locator("tbody tr").all() if row.is_visible()]
    assert max(heights) < 220  # no column is squeezed to single letters


def test_other_pages_are_printed(other_page):
    other_page.emulate_media(media="print")
    assert other_page.locator("h1").is_visible()
    assert other_page.locator(".contents").count() == 0 or not other_page.locator(".contents").is_visible()
    assert len(other_page.pdf()) > 10_000


def test_cautions_come_first_on_the_page_of_annotators(browser, crowd_path):
    page = browser.new_context(offline=True).new_page()
    page.goto(crowd_path.as_uri())
    cautions = page.locator(".findings li").evaluate_all("items => items.map(item => item.matches('.caution'))")
    assert cautions == sorted(cautions, reverse=True)
    assert cautions[0]
    assert not cautions[-1]
    shown = page.locator(".items > li").evaluate_all("items => items.filter(item => item.checkVisibility()).length")
    assert 10 < shown < page.locator(".items > li").count()  # the others are folded
    page.context.close()


def test_tables_of_annotators_keep_words_whole_on_a_narrow_page(browser, tmp_path):
    generator = np.random.default_rng(0)
    labels = np.array(["meadow", "street", "forest"])[generator.integers(0, 3, (30, 4))]
    items = pl.DataFrame({f"feature {number}": generator.normal(size=30) for number in range(6)})
    people = pl.DataFrame(labels, schema=["Annegret", "Bob", "Charlotte", "Dee"])
    volmin.audit(people, random_state=0).save(tmp_path, examples=items)
    context = browser.new_context(viewport={"width": 400, "height": 800}, offline=True)
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    heights = "rows => rows.map(row => row.getBoundingClientRect().height)"
    assert max(page.locator(".people tbody tr").evaluate_all(heights)) < 160
    lines = "cells => cells.map(cell => { const r = document.createRange(); r.selectNodeContents(cell);"
    lines += " return new Set(Array.from(r.getClientRects(), box => box.top)).size; })"
    for cells in (".people tbody th span", ".items .top b", ".items .top small"):
        assert max(page.locator(cells).evaluate_all(lines)) <= 1
    context.close()
