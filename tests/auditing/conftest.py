"""A browser for the tests of pages."""

import shutil

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        )
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def violations():
    """A function that lists what axe finds on a page: the rule, and the first element that breaks it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "best-practice"]}

    def of(page):
        found = axe.run(page, options=rules).response["violations"]
        return [(broken["id"], broken["nodes"][0]["html"][:160]) for broken in found]

    return of
