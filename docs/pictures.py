"""Makes the picture of a report that README and the first page show: ``python docs/pictures.py`` (needs Chromium)."""

from __future__ import annotations

import io
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright
from sklearn.datasets import load_digits

import volmin
from volmin import noise

PICTURE = Path(__file__).parent / "figures" / "report.png"
WIDTH, HEIGHT = 1180, 900


def main() -> None:
    """Audit mislabelled digits and photograph the top of the report."""
    x, truth = load_digits(return_X_y=True)
    labels = noise.corrupt(truth, noise.asymmetric(10, 0.1, seed=0), seed=0)
    audit = volmin.audit(labels, features=x, model="logistic", random_state=0)
    audit = replace(audit, provenance=audit.provenance | {"title": "The labels of digits"})
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        path = Path(folder) / "report.html"
        audit.to_html(path, examples=(x * 255 / 16).astype("uint8").reshape(-1, 1, 8, 8))
        chromium = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.goto(path.as_uri())
        picture = Image.open(io.BytesIO(page.screenshot()))
        chromium.close()
    picture.convert("RGB").quantize(64).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
