"""The report in a browser: filters, decisions, the download, and labels that contain code."""

import csv
import shutil

import numpy as np
import pytest

import volmin

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

NAMES = np.array(["<script>alert(1)</script>", "=1+2", 'six, "quoted"', *"3456789"])


@pytest.fixture(scope="module")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        )
        yield chromium
        chromium.close()


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
