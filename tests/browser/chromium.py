"""Debian's Chromium, driven by Playwright; and what every page must be: quiet, accessible, ours."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, sync_playwright

from tests.support.wait import PATIENCE_S

CHROMIUM = Path("/usr/bin/chromium")
HERE = Path(__file__).parent
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"


def missing() -> str:
    """Why there is no browser to test with; empty: there is one."""
    if not CHROMIUM.exists():
        return "there is no /usr/bin/chromium (Debian's package chromium)"
    if not AXE.exists() and not shutil.which("npm"):
        return "axe-core isn't installed, and there is no npm to install it"
    if not AXE.exists():
        done = subprocess.run(
            ["npm", "ci", "--no-audit", "--no-fund"], cwd=HERE, capture_output=True, text=True,
            timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if done.returncode:
            return f"npm can't install axe-core: {done.stderr.strip()[-200:]}"
    return ""


@contextmanager
def running() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage"],  # root has no sandbox
        )
        yield browser
        browser.close()


class Watched:
    """A page, and all that it said and asked for. others: whom it may ask too."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.said: list[str] = []
        self.asked: list[str] = []
        self.forgiven: list[str] = []
        self.others: set[str] = set()
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def go(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page

    def forgive(self, *words: str) -> None:
        """Expects these errors: Chromium calls every answer that is no 2xx an error."""
        self.forgiven += words

    def check(self) -> None:
        """Nothing went wrong, and nobody else was asked for anything."""
        bad = [
            said
            for said in self.said
            if said.startswith(("error", "warning"))
            and not any(words in said for words in self.forgiven)
        ]
        assert not bad
        ours = {urlsplit(url).netloc for url in (self.url, *self.others)}
        assert {urlsplit(url).netloc for url in self.asked} <= ours

    def accessible(self) -> None:
        """axe finds nothing, however minor. The page's policy lets no script of ours in: it is
        evaluated beside it."""
        self.page.evaluate(AXE.read_text())
        found: list[dict[str, Any]] = self.page.evaluate("axe.run().then((r) => r.violations)")
        faults = [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in found
            for node in one["nodes"]
        ]
        assert not faults, "\n".join(faults)

    def fits(self) -> None:
        """Nothing makes the page wider than the window."""
        wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0
