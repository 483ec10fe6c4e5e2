"""The documentation as a site: public names are documented, pages have their places, nothing comes from elsewhere."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

import relucert
from tests.report.test_browser import NAMES as BROWSERS
from tools import notebook
from tools.public_names import complaints, public, undocumented

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "docs" / "examples" / "own-network.ipynb"
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "srcset", "embed": "src"}
FAULTS = (
    "contains a link 'nowhere.md'",
    "does not contain an anchor '#no-such-heading'",
    "forgotten.md",
    "relucert.certify is not in docs/reference",
)
needs_mkdocs = pytest.mark.skipif(find_spec("mkdocs") is None, reason="MkDocs is not here: make docs installs it")


def test_public_names_are_documented() -> None:
    assert complaints() == []


def test_what_is_not_documented_is_noticed() -> None:
    class Undocumented:
        def method(self) -> None: ...

        @property
        def value(self) -> int:
            """A number."""
            return 1

    def described(first: int, second: int) -> None:
        """Has `first`, and a word that contains the other: seconds."""

    assert list(undocumented("relucert.described", described)) == [
        "the docstring of relucert.described does not mention second"
    ]
    assert list(undocumented("relucert.Undocumented", Undocumented)) == [
        "relucert.Undocumented has no docstring",
        "relucert.Undocumented.method has no docstring",
    ]


def test_the_home_page_has_the_groups_of_the_navigation() -> None:
    """The same pages in the same order; the home page names only the first page of a group within a group."""
    navigation = (ROOT / "mkdocs.yml").read_text().split("nav:\n")[1].split("\n\n")[0]
    groups = re.findall(r"^  - ([^:\n]+):\n((?:      .*\n?)+)", navigation, re.MULTILINE)
    wanted = {
        name: [page for page in re.findall(r"([\w/-]+\.md)", pages) if "/" not in page or page.endswith("index.md")]
        for name, pages in groups
        if name != "Project"
    }
    home = (ROOT / "docs" / "index.md").read_text().split("## In short")[0]
    parts = re.findall(r"^\*\*(.+)\*\*\n\n((?:- .*\n)+)", home, re.MULTILINE)
    assert {name: re.findall(r"^- \[.*?\]\(([^)]+)\)", links, re.MULTILINE) for name, links in parts} == wanted
    assert list(wanted) == [name for name, _ in parts]


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text())
    pages = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


def _build(folder: Path, site: Path) -> tuple[int, str]:
    """Builds the site of a copy of the project, or of the project itself."""
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


class Loads(HTMLParser):
    """Collects what a page makes a browser load."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag in LOADED and not (tag == "link" and given.get("rel") in ("prev", "next", "canonical")):
            self.addresses += [given[LOADED[tag]] or ""] if LOADED[tag] in given else []


def _foreign(site: Path) -> list[str]:
    """What pages and styles of a site load from another host."""
    addresses = []
    for page in site.rglob("*.html"):
        parser = Loads()
        parser.feed(page.read_text())
        addresses += [address for address in parser.addresses if not address.startswith("data:")]
    assert len(addresses) > 50
    for style in site.rglob("*.css"):
        addresses += re.findall(r"(?:url\(|@import)\s*['\"]?([^'\")\s]+)", style.read_text())
    return [address for address in addresses if re.match(r"(\w+:)?//", address)]


@pytest.mark.slow
@needs_mkdocs
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    status, said = _build(ROOT, tmp_path / "site")
    assert status == 0, said
    assert _foreign(tmp_path / "site") == []
    reference = "".join(page.read_text() for page in (tmp_path / "site" / "reference").glob("*.html"))
    assert [name for name, _ in public(relucert) if f'id="{name}"' not in reference] == []
    assert "data:image/png" in (tmp_path / "site" / "example.html").read_text()
    assert (tmp_path / "site" / "examples" / NOTEBOOK.name).read_bytes() == NOTEBOOK.read_bytes()
    _search(tmp_path / "site")


def _search(site: Path) -> None:
    """Opens the site from the disk, types into its search box and follows the first answer."""
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        pytest.skip("the site is whole; there is no Chromium to search it with: make browser installs it")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])  # which root may not have
        asked = _asked_for(browser, site)
        browser.close()
    assert asked
    assert [address for address in asked if not address.startswith((site.as_uri(), "data:"))] == []


def _asked_for(browser: Browser, site: Path) -> Collection[str]:
    """All requests that a visit makes."""
    asked: list[str] = []
    page = browser.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").click()
    page.get_by_placeholder("Search").press_sequentially("certify_each")
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url("**/reference/*.html*")
    return asked


@pytest.mark.slow
@needs_mkdocs
def test_faulty_documents_do_not_build(tmp_path: Path) -> None:
    copied = tmp_path / "project"
    for name in ("docs", "tools"):
        shutil.copytree(ROOT / name, copied / name)
    for name in ("mkdocs.yml", "CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, copied)
    (copied / "src").symlink_to(ROOT / "src")
    (copied / "docs" / "forgotten.md").write_text("# A page\n\n[a](nowhere.md) [b](index.md#no-such-heading)\n")
    questions = copied / "docs" / "reference" / "questions.md"
    questions.write_text(questions.read_text().replace("::: relucert.certify\n", ""))
    status, said = _build(copied, tmp_path / "site")
    assert status != 0
    assert [fault for fault in FAULTS if fault not in said] == [], said


def _outputs(content: notebook.Notebook) -> list[list[str]]:
    return [[output["output_type"] for output in cell.get("outputs", [])] for cell in content["cells"]]


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_is_stored() -> None:
    assert notebook.in_markdown(NOTEBOOK).count("data:image/png") == 2
    assert _outputs(notebook.run(NOTEBOOK)) == _outputs(notebook.read(NOTEBOOK))
