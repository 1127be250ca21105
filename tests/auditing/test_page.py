"""The report in a browser: filters, decisions, the download, and labels that contain code."""

import csv
import itertools
import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import volmin
from volmin.auditing.review import review_model

pytestmark = pytest.mark.cluster

NAMES = np.array(["<script>alert(1)</script>", "=1+2", 'six, "quoted"', *"3456789"])


@pytest.fixture(scope="module")
def named(mislabelled):
    return volmin.audit(NAMES[mislabelled.labels], probs=mislabelled.probs[:, NAMES.argsort()], random_state=0)


@pytest.fixture
def page(browser, named, mislabelled, tmp_path):
    named.save(tmp_path, examples=mislabelled.pixels())
    context = browser.new_context(accept_downloads=True, offline=True)
    page = context.new_page()
    page.problems = []
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("console", lambda message: page.problems.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: page.problems.append("a dialog") or dialog.dismiss())
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    assert page.problems == []
    context.close()


def test_decisions_are_stored_downloaded_and_applied(page, named, tmp_path):
    rows = named.issues()
    cards = page.locator("article")
    assert cards.count() == 24
    assert cards.first.get_attribute("data-row") == str(rows[0])
    assert page.locator("article img").first.evaluate("image => image.naturalWidth") == 8
    assert page.locator("#download").is_disabled()

    page.locator(f'article[data-row="{rows[0]}"] input[value=wrong]').check()
    page.locator(f'article[data-row="{rows[1]}"] input[value=right]').check()
    page.get_by_role("button", name="next").click()
    page.locator(f'article[data-row="{rows[24]}"] input[value=unsure]').check()
    page.locator(f'article[data-row="{rows[25]}"] input[value=wrong]').check()
    other = next(name for name in NAMES if name not in (named.labels[rows[25]], named.suggested[rows[25]]))
    page.locator(f'article[data-row="{rows[25]}"] select').select_option(label=other)
    page.reload()  # decisions are kept
    with page.expect_download() as download:
        page.get_by_role("button", name="download 4 decisions").click()
    path = tmp_path / "decisions.csv"
    download.value.save_as(path)

    with path.open(encoding="utf-8", newline="") as file:
        ticked = list(csv.DictReader(file))
    assert [int(line["row"]) for line in ticked] == [rows[0], rows[1], rows[24], rows[25]]
    assert [line["decision"] for line in ticked] == ["wrong", "right", "unsure", "wrong"]
    corrected = volmin.apply_decisions(named.labels, path)
    assert corrected.rows.tolist() == sorted([rows[0], rows[25]])
    assert corrected.labels[rows[0]] == named.suggested[rows[0]]
    assert corrected.labels[rows[25]] == other


def test_labels_are_filtered_by_label_pair_and_decision(page, named):
    rows = named.issues()
    script = np.flatnonzero(named.classes == NAMES[0])[0]
    page.locator("#given").select_option(value=str(script))
    expected = [row for row in rows if named.labels[row] == NAMES[0]]
    assert f"of {len(expected)}" in page.locator("#shown").text_content()
    assert page.locator("article .claim b").first.text_content() == NAMES[0]
    page.locator("#given").select_option(value="")
    pair = page.locator(".pairs button").first
    pair.click()
    given, true, _ = named.confusions(1)[0]
    matching = (named.codes[rows] == given) & (named.suggested_codes[rows] == true)
    assert f"of {matching.sum()}" in page.locator("#shown").text_content()
    assert pair.get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="mark these as wrong").click()
    page.locator("#decided").select_option("none")
    assert "0–0 of 0" in page.locator("#shown").text_content()
    page.locator("#decided").select_option("")
    pair.click()
    assert f"of {len(rows)}" in page.locator("#shown").text_content()


def test_decisions_can_be_made_by_keyboard(page, named):
    first = page.locator("article input").first
    first.focus()
    page.keyboard.press("Space")
    assert page.locator("article").first.get_attribute("data-decision") == "wrong"
    page.keyboard.press("ArrowRight")
    assert page.locator("article").first.get_attribute("data-decision") == "right"
    assert first.evaluate("input => getComputedStyle(document.activeElement).outlineStyle") != "none"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_contrasts_with_the_background(page, scheme):
    page.emulate_media(color_scheme=scheme)
    ink, paper = page.evaluate(
        "() => ['color', 'backgroundColor'].map(key => getComputedStyle(document.body)[key])"
        ".map(colour => colour.match(/[0-9]+/g).map(Number))"
    )
    assert abs(sum(ink) - sum(paper)) > 400


def test_random_sample_is_offered_and_named_in_the_decisions(page, named, tmp_path):
    page.locator("#sample").select_option("random")
    assert "of 100" in page.locator("#shown").text_content()
    rows = [int(card.get_attribute("data-row")) for card in page.locator("article").all()]
    page.locator(f'article[data-row="{rows[0]}"] input[value=right]').check()
    page.locator(f'article[data-row="{rows[1]}"] input[value=wrong]').check()
    page.locator("#sample").select_option("flagged")
    flagged = next(row for row in named.issues() if row not in rows)
    page.locator(f'article[data-row="{flagged}"] input[value=wrong]').check()
    with page.expect_download() as download:
        page.get_by_role("button", name="download 3 decisions").click()
    download.value.save_as(tmp_path / "decisions.csv")
    corrected = volmin.apply_decisions(named.labels, tmp_path / "decisions.csv")
    assert corrected.sample == "random"
    assert [row for row, label in enumerate(corrected.known) if label is not None] == sorted(rows[:2])
    assert corrected.labels[rows[1]] != named.labels[rows[1]]


def test_keys_decide_move_and_undo(page, named):
    rows = named.issues()

    def decision(row):
        return page.locator(f'article[data-row="{row}"]').get_attribute("data-decision")

    for key in "wru":
        page.keyboard.press(key)
    assert [decision(row) for row in rows[:4]] == ["wrong", "right", "unsure", None]
    assert (
        page.locator("#progress").text_content() == f"3 of {len(rows)} decided, noise rate stated from 10 decisions on"
    )
    assert page.locator("article.current").get_attribute("data-row") == str(rows[3])
    page.keyboard.press("z")
    page.keyboard.press("Control+z")
    assert [decision(row) for row in rows[:3]] == ["wrong", None, None]
    page.keyboard.press("k")
    page.keyboard.press("r")
    assert [decision(row) for row in rows[:2]] == ["right", None]
    page.get_by_role("button", name="undo").click()
    assert decision(rows[0]) == "wrong"
    page.get_by_label("keys on").uncheck()
    page.keyboard.press("u")
    assert page.locator("#progress").text_content().startswith("1 of ")


def test_bulk_decisions_are_one_step_to_undo(page):
    page.get_by_role("button", name="mark these as wrong").click()
    assert page.locator('article[data-decision="wrong"]').count() == 24
    page.get_by_role("button", name="undo").click()
    assert page.locator("article[data-decision]").count() == 0


@pytest.mark.parametrize("sample", ["flagged", "random"])
@pytest.mark.parametrize("count", [15, 60])
def test_noise_rate_after_decisions_is_that_of_check(page, named, mislabelled, sample, count):
    page.locator("#sample").select_option(sample)
    rows = []
    while len(rows) < count:
        rows += [int(card.get_attribute("data-row")) for card in page.locator("article").all()]
        page.get_by_role("button", name="next").click()
    truth: list[str | None] = [None] * len(named)
    page.locator("#sample").select_option("flagged" if sample == "random" else "random")
    page.locator("#sample").select_option(sample)  # the first page again
    page.locator("h1").click()  # keys are for the list, not for a focused select
    for row in rows[:count]:
        truth[row] = str(NAMES[mislabelled.clean[row]])
        page.keyboard.press("r" if truth[row] == named.labels[row] else "w")
    low, high = named.check(truth, sample=sample).noise_range
    stated = re.search(r"noise rate now ([\d.]+)% to ([\d.]+)%", page.locator("#progress").text_content())
    assert stated
    assert [float(share) for share in stated.groups()] == pytest.approx([100 * low, 100 * high], abs=0.1)


@pytest.mark.parametrize("sample", ["flagged", "random"])
@pytest.mark.parametrize("count", [15, 60])
def test_weights_act_on_the_page_as_on_check(page, named, mislabelled, sample, count):
    generator = np.random.default_rng(0)
    rows = generator.permutation(len(named))[:count] if sample == "random" else named.issues()[:count]
    weights = generator.uniform(0.2, 3, len(named))
    weighted = replace(named, weights=weights / weights.mean())
    model = review_model(weighted, rows, count)
    truth = [str(NAMES[mislabelled.clean[row]]) if row in rows else None for row in range(len(named))]
    wrong = [int(truth[row] != named.labels[row]) for row in rows]
    stated = page.evaluate(
        "([model, predicted, wrong, random]) => noiseRateAfter(model, [...wrong.keys()], predicted, wrong, random)",
        [model, (1 - named.quality[rows]).tolist(), wrong, sample == "random"],
    )
    assert stated == pytest.approx(weighted.check(truth, sample=sample).noise_range, abs=0.001)


def test_image_opens_large_and_closes(page):
    image = page.locator("#large img")
    assert not image.is_visible()
    page.locator("article .thumb").first.click()
    assert image.is_visible()
    assert image.bounding_box()["width"] > 2 * page.locator("article img").first.bounding_box()["width"]
    assert "labelled" in image.get_attribute("alt")
    page.keyboard.press("Escape")
    assert not image.is_visible()
    page.keyboard.press("e")
    page.get_by_role("button", name="close").click()
    assert not image.is_visible()


def test_narrow_screen_needs_no_sideways_scrolling(page):
    page.set_viewport_size({"width": 400, "height": 850})
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (400, 850)])
def test_first_labels_are_above_the_fold(page, width, height):
    page.set_viewport_size({"width": width, "height": height})
    box = page.locator("article").first.bounding_box()
    assert box["y"] + box["height"] < height


def test_filters_are_folded_on_a_narrow_screen_only(page, named):
    assert page.locator("#given").is_visible()
    page.set_viewport_size({"width": 400, "height": 850})
    assert not page.locator("#given").is_visible()
    page.get_by_text("filter, or mark many").click()
    page.locator("#given").select_option(value="3")
    assert f"of {int((named.codes[named.issues()] == 3).sum())}" in page.locator("#shown").text_content()
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator("#given").is_visible()


def test_print_shows_estimates_without_controls(page):
    page.emulate_media(media="print")
    for control in ("#sample", "#filters", "#download"):
        assert not page.locator(control).is_visible()
    assert not page.get_by_role("button", name="next").is_visible()
    assert page.locator(".figures").is_visible()
    assert len(page.pdf()) > 10_000


def test_missing_cells_are_shown_and_empty_ones_are_not(browser, named, tmp_path):
    row = int(named.issues()[0])
    table = pl.DataFrame({"a": [None] * len(named), "b": [""] * len(named), "c": [1234567.89] * len(named)})
    named.to_html(tmp_path / "report.html", examples=table)
    page = browser.new_context(offline=True).new_page()
    page.goto((tmp_path / "report.html").as_uri())
    assert page.locator(f'article[data-row="{row}"] dt').all_text_contents() == ["a", "c"]
    assert page.locator(f'article[data-row="{row}"] dd').all_text_contents() == ["–", "1234567.89"]
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_report_is_accessible(page, scheme, violations):
    page.emulate_media(color_scheme=scheme)
    assert violations(page) == []


def test_focus_follows_the_order_of_reading(page):
    order = page.evaluate(
        "() => [...document.querySelectorAll('a, button, select, input, summary, canvas, [tabindex=\"0\"]')]"
        ".filter(element => element.checkVisibility())"
        ".map(element => element.getBoundingClientRect().top + window.scrollY)"
    )
    jumps = [after - before for before, after in itertools.pairwise(order)]
    assert min(jumps) > -300  # within a grid of cards the order is by row
    assert not page.locator("[tabindex]:not([tabindex='0']):not([tabindex='-1'])").count()


@pytest.fixture(scope="module")
def hundred():
    """An audit of 100 classes, of a table with 100,000 rows, put together from its parts."""
    C, n = 100, 100_000
    T = volmin.noise.asymmetric(C, 0.25, 1)
    generator = np.random.default_rng(0)
    truth = generator.integers(0, C, n)
    codes = volmin.noise.corrupt(truth, T, seed=2)
    quality = np.where(codes == truth, 0.98, 0.02)
    joint = np.zeros((C, C))
    np.add.at(joint, (codes, truth), 1 / n)
    return volmin.Audit(
        classes=np.array([f"class {k}" for k in range(C)]),
        codes=codes,
        transition=T,
        joint=joint,
        quality=quality,
        suggested_codes=truth,
        clean_probs=None,
        scatter=None,
        bracket=np.tile([0.0, 1.0], (C, 1)),
        sampling=None,
        suspicion=1 - quality,
        num_flagged=int((codes != truth).sum()),
        embedding=(np.arange(2000), generator.normal(size=(2000, 2))),
        provenance={"model": "logistic", "reading": "exact", "seed": 0, "seconds": 1.0, "versions": {}},
    )


@pytest.fixture
def large_page(browser, hundred, tmp_path):
    texts = pl.DataFrame({"text": ["a long text of many words " * 40] * len(hundred)})
    hundred.to_html(tmp_path / "report.html", examples=texts)
    assert (tmp_path / "report.html").stat().st_size < 15_000_000
    page = browser.new_context(offline=True).new_page()
    page.goto((tmp_path / "report.html").as_uri())
    yield page
    page.context.close()


def test_matrix_of_many_classes_is_read_and_zoomed_by_key(large_page, hundred):
    canvas, output = large_page.locator(".matrix canvas"), large_page.locator(".matrix output")
    canvas.focus()
    large_page.keyboard.press("ArrowDown")
    expected = f"true class class 0, labelled class 1: {100 * hundred.transition[1, 0]:.1f}%"
    assert output.text_content() == expected
    before = canvas.evaluate("canvas => canvas.toDataURL()")
    large_page.keyboard.press("+")
    assert canvas.evaluate("canvas => canvas.toDataURL()") != before
    large_page.get_by_role("button", name="whole matrix").click()
    assert canvas.evaluate("canvas => canvas.toDataURL()") == before


def test_confusions_of_many_classes_are_sorted(large_page, hundred):
    counts = [int(text.split()[0]) for text in large_page.locator(".pairs .count").all_text_contents()]
    assert len(counts) == 100
    assert counts == sorted(counts, reverse=True)


def test_point_of_the_map_opens_its_row(large_page):
    point = large_page.locator("#map [data-place]").last
    place = point.get_attribute("data-place")
    point.dispatch_event("click")
    assert large_page.locator("article.current").get_attribute("data-place") == place


def test_large_report_is_accessible(large_page, violations):
    assert violations(large_page) == []
    assert large_page.evaluate("document.documentElement.scrollWidth") <= 1280
