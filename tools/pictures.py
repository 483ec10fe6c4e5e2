"""Draws the pictures of the README: a comparison's report as a browser shows it, `python -m tools.pictures`."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
QUESTION = ("mnist-3x20", "--images", "20", "--methods", "interval,fast-lip,fast-lin,lp-full,exact,attack")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH = 860
COLOURS = 64  # as many as lines and letters need: the files stay small


def write_report(folder: Path) -> Path:
    """Compares the methods and writes the report."""
    command = (sys.executable, "-m", "relucert")
    run, page = folder / "run.json", folder / "report.html"
    subprocess.run([*command, "compare", *QUESTION, "--threads", "1", "--quiet", "--json", run], check=True)
    subprocess.run([*command, "report", run, "-o", page], check=True)
    return page


def draw(browser: Browser, page: Path, scheme: str) -> Image.Image:
    """The top of the report, down to the keys of its first chart, in a light or a dark colour scheme."""
    context = browser.new_context(viewport={"width": WIDTH, "height": 800}, reduced_motion="reduce")
    opened = context.new_page()
    opened.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    opened.goto(page.as_uri())
    keys = opened.locator("ul.keys").first.bounding_box()
    assert keys is not None
    height = keys["y"] + keys["height"] + 8
    pixels = opened.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})
    context.close()
    return Image.open(io.BytesIO(pixels)).convert("RGB").quantize(COLOURS)


def main() -> None:
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        sys.exit("there is no Chromium: make browser installs it")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page = write_report(Path(folder))
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])  # which root may not have
        for scheme in ("light", "dark"):
            draw(browser, page, scheme).save(PICTURES / f"report-{scheme}.png", optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
