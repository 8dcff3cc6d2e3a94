"""`make docs`: the site is built without a warning, all its links lead somewhere, it loads nothing
from another host, and opened from a disk it finds a word."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Page

from tests.browser import chromium
from tests.support.pages import ROOT
from tests.support.wait import PATIENCE_S

pytestmark = pytest.mark.nightly
_LOADED = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src")}

if importlib.util.find_spec("material") is None:
    pytest.skip("mkdocs-material isn't installed: pip install '.[docs]'", allow_module_level=True)


class Parsed(HTMLParser):
    """Ids of a page, its links, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.add(value or "")
            elif (tag, name) in _LOADED:
                self.loaded.append(value or "")
            elif (tag, name) == ("a", "href"):
                self.links.append(value or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", "ops/mkdocs.yml", "-d", folder],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Parsed]:
    return {path: Parsed(path) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_leads_to_a_file_and_to_a_place_in_it(pages: dict[Path, Parsed]) -> None:
    dead = [f"{path}: {link}" for path, page in pages.items() for link in page.links
            if not _leads_somewhere(path, link, pages)]  # fmt: skip
    assert dead == []


def _leads_somewhere(path: Path, link: str, pages: dict[Path, Parsed]) -> bool:
    parts = urlsplit(link)
    if parts.scheme:
        return True
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.suffix != ".html":
        return target.is_file()
    return target in pages and (not parts.fragment or unquote(parts.fragment) in pages[target].ids)


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Parsed]) -> None:
    loaded = [url for page in pages.values() for url in page.loaded]
    assert loaded
    assert [url for url in loaded if urlsplit(url).netloc] == []
    styles = [path.read_text() for path in site.rglob("*.css")]
    assert styles
    assert [url for text in styles for url in re.findall(r"url\(['\"]?(https?:[^)]*)", text)] == []


def test_every_page_is_in_the_navigation_and_in_the_search(site: Path) -> None:
    written = {path.relative_to(ROOT / "ops/docs") for path in (ROOT / "ops/docs").rglob("*.md")}
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    searched = {Path(entry["location"].partition("#")[0]).with_suffix(".md") for entry in found}
    assert written <= searched
    front = Parsed(site / "index.html").links
    assert {str(path.with_suffix(".html")) for path in written} <= set(front)


@pytest.fixture
def page() -> Iterator[Page]:
    if why := chromium.missing():
        pytest.skip(why)
    with chromium.running() as browser:
        page = browser.new_page()
        page.set_default_timeout(1000 * PATIENCE_S)
        yield page


def test_the_search_of_a_site_on_a_disk_finds_a_page(site: Path, page: Page) -> None:
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"file://{site}/how-to/operations/why.html")
    page.locator(".md-search__input").click()
    page.keyboard.type("batchstring service", delay=20)
    found = page.locator(".md-search-result__link", has_text="The batchstring service").first
    found.click()
    page.wait_for_url(re.compile(r".*/how-to/clients/inference_api\.html.*"))
    assert page.locator("h1").inner_text().startswith("The batchstring service")
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "blob:", "data:"))] == []
