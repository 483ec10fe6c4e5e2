"""The page as people see it, in a headless Chromium: `make browser` installs one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from relucert.report.page import page as write_page
from tests.report import runs
from tests.report.test_page import EVIL

NAMES = ("chromium", "chromium-browser", "google-chrome")
Show = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = next(filter(None, map(shutil.which, NAMES)), None)
    if chromium is None:
        pytest.skip("there is no Chromium: make browser installs it")
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])  # which root may not have
        yield launched
        launched.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens a run's page; at the end, nothing may have complained and nothing may have been asked for."""
    heard: list[str] = []
    context = browser.new_context()

    def open_page(rows: list[dict[str, Any]], width: int = 1200, **head: Any) -> Page:
        path = tmp_path / "page.html"
        run = runs.read(runs.write(tmp_path / "run.json", rows, **head))
        path.write_bytes(write_page(run).encode(errors="replace"))
        opened = context.new_page()
        opened.set_viewport_size({"width": width, "height": 800})
        opened.on("console", lambda message: heard.append(f"console: {message.text}"))
        opened.on("pageerror", lambda error: heard.append(f"error: {error}"))
        opened.on("dialog", lambda dialog: heard.append(f"dialog: {dialog.message}"))
        opened.on(
            "request",
            lambda asked: None if asked.url.startswith(("data:", path.as_uri())) else heard.append(asked.url),
        )
        opened.goto(path.as_uri())
        return opened

    yield open_page
    context.close()
    assert heard == []


def _column(page: Page, header: str) -> list[str]:
    """What the table of images shows in a column."""
    table = page.get_by_role("table", name="Every image")
    titles = [title.strip() for title in table.locator("thead th").all_inner_texts()]
    return table.locator(f"tbody tr > :nth-child({titles.index(header) + 1})").all_inner_texts()


def test_a_real_comparison_renders(show: Show) -> None:
    page = show(runs.compared(3))
    assert page.get_by_role("heading", level=1).inner_text() == "How robust is mnist-2x20?"
    assert page.locator("svg.chart path.curve").count() == 5
    assert page.locator("article.triple").count() == 3
    for image in page.get_by_role("img").and_(page.locator("img")).all():
        assert image.evaluate("image => image.naturalWidth") == 28
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_sorting(show: Show) -> None:
    radii = {0: 0.02, 1: None, 2: 0.03, 3: 0.0099999}
    page = show([runs.certified(image, radius) for image, radius in radii.items()])
    table = page.get_by_role("table", name="Every image")
    header = table.get_by_role("columnheader", name="proven", exact=True)
    assert header.get_attribute("aria-sort") == "none"
    table.get_by_role("button", name="proven").click()
    assert header.get_attribute("aria-sort") == "ascending"
    assert _column(page, "image") == ["3", "0", "2", "1"]
    table.get_by_role("button", name="proven").press("Enter")
    assert header.get_attribute("aria-sort") == "descending"
    assert _column(page, "image") == ["2", "0", "3", "1"]
    table.get_by_role("button", name="image").click()
    assert header.get_attribute("aria-sort") == "none"
    assert _column(page, "image") == ["0", "1", "2", "3"]


def test_hovering_reads_the_curves(show: Show) -> None:
    page = show([*(runs.certified(image, 0.01 * (image + 1)) for image in range(10)), runs.attacked(0, 0.1)])
    chart, outputs = page.locator("figure.accuracy svg"), page.locator(".keys output")
    box = chart.bounding_box()
    assert box is not None
    seen = []
    for share in (0.01, 0.5, 0.95):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + box["height"] / 2)
        radius = float(page.locator(".radius").inner_text())
        left = sum(0.01 * (image + 1) >= radius for image in range(10))
        assert outputs.nth(0).inner_text() == f"{10 * left:.1f} % ({left} of 10)"
        assert outputs.nth(1).inner_text() == ("100.0 % (1 of 1)" if radius < 0.1 else "0.0 % (0 of 1)")
        seen.append(radius)
    assert seen == sorted(set(seen))
    guide = page.locator("line.guide").bounding_box()
    assert guide is not None
    assert abs(guide["x"] - (box["x"] + 0.95 * box["width"])) < 3


def test_the_keyboard_reads_the_curves(show: Show) -> None:
    page = show([runs.certified(image, 0.01 * (image + 1)) for image in range(10)])
    slider = page.get_by_role("slider")
    slider.focus()
    slider.press("Home")
    assert page.locator(".radius").inner_text() == "0"
    assert (slider.get_attribute("aria-valuetext") or "").endswith("fast-lin 100.0 %")
    slider.press("End")
    assert page.locator(".keys output").first.inner_text() == "0.0 % (0 of 10)"


def test_markup_in_names_is_shown_and_never_run(show: Show) -> None:
    rows = [{**row, "method": EVIL, "reason": EVIL} for row in runs.invented(2)]
    page = show(rows, network={"name": EVIL, "layers": EVIL}, options={EVIL: EVIL}, command=EVIL)
    assert "<script>alert(1)</script>" in page.get_by_role("heading", level=1).inner_text()
    page.get_by_role("slider").press("End")
    page.locator("figure.accuracy svg").hover()
    assert page.locator("script").count() == 2  # the data and the page's script


def test_the_policy_blocks_what_would_slip_through(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    text = write_page(runs.read(runs.write(tmp_path / "run.json", [runs.certified(0, 0.01)])))
    path.write_text(text.replace("</main>", "<script>document.title = 'run'</script></main>"))
    opened = browser.new_page()
    opened.goto(path.as_uri())
    assert opened.title() != "run"
    opened.close()


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_screen(show: Show, width: int) -> None:
    page = show(runs.invented(12), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_printed(show: Show) -> None:
    page = show(runs.invented(40))
    colour = "getComputedStyle(document.body).backgroundColor"
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(colour) == "rgb(17, 22, 28)"
    page.emulate_media(color_scheme="dark", media="print")
    assert page.evaluate(colour) == "rgb(255, 255, 255)"
    table = page.get_by_role("table", name="Every image")
    assert table.evaluate("table => table.parentElement.clientHeight >= table.clientHeight")  # no row is cut off
    assert page.pdf().startswith(b"%PDF")


def test_a_thousand_images_open(show: Show) -> None:
    page = show(runs.invented(1000))
    assert page.get_by_role("table", name="Every image").locator("tbody tr").count() == 1000
