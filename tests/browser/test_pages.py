"""The pages themselves: live, for every eye and hand, and never fooled by a name."""

import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import httpx
import pytest
from playwright.sync_api import expect

from jobs.store.queue import workers
from jobs.store.queue.workers import ModelRow
from ops.client.client import Client
from ops.supervisor.platform import Platform
from tests.browser.conftest import Sign, screenshot
from tests.support.platforms import SAMPLES, spec, transaction
from tests.support.wait import eventually

PAGES = {
    "models": "/dashboard/models",
    "model": "/dashboard/models/minilm@1",
    "workers": "/dashboard/workers",
    "worker": "/dashboard/workers/1",
    "overview": "/dashboard",  # last: there is some history by then
}
PLATFORM = spec(SAMPLES, lease_s=3.0)
NASTY = "<img src=x onerror=alert(1)>&'\"{{ 7*7 }}"


@pytest.fixture(scope="module")
def worked(platform: Platform) -> Iterator[str]:
    """The id of a job that has run; a large one runs, with calls beside it: pages have something to
    show, and it changes."""
    client, done = Client(platform.url), threading.Event()
    items = [f"how do I parse JSON {'again ' * (n % 9)}" for n in range(40)]
    id: str = client.submit_order({"model": "minilm", "items": items})["id"]
    client.wait(id)
    large: str = client.submit_order({"model": "minilm", "items": items * 200})["id"]

    def call() -> None:
        """Refused or not: a worker is drained meanwhile."""
        with httpx.Client(base_url=platform.url) as own:
            for n in count():
                body = {"model": "minilm" if n % 2 else "echo", "input": f"call {n}"}
                own.post("/infer", json=body)
                if done.wait(0.1):
                    return

    calling = threading.Thread(target=call)
    calling.start()
    try:
        yield id
    finally:
        done.set()
        calling.join()
        client.request("POST", f"/jobs/{large}/cancel")
        client.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(opened: Sign, worked: str, name: str, scheme: str) -> None:
    window = opened(scheme=scheme)
    page = window.go(PAGES[name])
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("#live-state")).to_have_text("Live")
    window.accessible()
    window.fits()
    screenshot(window, f"{name}-{scheme}")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_narrow_screen(opened: Sign, worked: str, name: str) -> None:
    window = opened(width=360)
    page = window.go(PAGES[name])
    expect(page.locator("#live-state")).to_have_text("Live")
    window.fits()
    window.accessible()


def test_everything_is_reached_by_keyboard(opened: Sign, worked: str) -> None:
    window = opened()
    page = window.go("/dashboard")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    window.go("/dashboard/models")
    link = page.get_by_role("navigation").get_by_role("link", name="Workers")
    for _ in range(15):
        page.keyboard.press("Tab")
        if link.evaluate("(link) => link === document.activeElement"):
            break
    expect(link).to_be_focused()
    outline = link.evaluate("(link) => getComputedStyle(link).outlineStyle")
    assert outline == "solid"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Workers", exact=True)).to_be_visible()
    page.get_by_role("button", name="Pause").focus()
    page.keyboard.press("Space")
    expect(page.locator("#live-state")).to_have_text("Paused")


def test_a_page_goes_on_by_itself_until_it_is_paused(opened: Sign, platform: Platform) -> None:
    window, still = opened(), opened()
    page, paused = window.go("/dashboard/models/echo@1"), still.go("/dashboard/models/echo@1")
    paused.get_by_role("button", name="Pause").click()
    expect(paused.get_by_role("button", name="Pause")).to_have_attribute("aria-pressed", "true")
    before = paused.locator("main").inner_html()
    link = page.get_by_role("link", name="the API")
    link.focus()
    page.evaluate("document.querySelector('h1').mine = true")
    text = page.locator("[data-live=ends]")
    was = text.inner_text()

    with closing(Client(platform.url)) as client:

        def changed() -> bool:
            client.infer("echo", "a call")
            return text.inner_text() != was

        eventually(changed)
    expect(link).to_be_focused()
    assert page.evaluate("document.querySelector('h1').mine")  # the page was not loaded again
    assert paused.locator("main").inner_html() == before
    paused.get_by_role("button", name="Pause").click()
    expect(paused.locator("#live-state")).to_have_text("Live")


def test_the_theme_that_was_chosen_stays(opened: Sign) -> None:
    window = opened(scheme="light")
    page = window.go("/dashboard")
    page.get_by_role("button", name="Dark").click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    window.accessible()


def test_names_are_text_wherever_they_come_from(opened: Sign, platform: Platform) -> None:
    with transaction(platform) as tx:
        id = workers.register(tx, NASTY, "default", NASTY, ["minilm@1"])
        row = ModelRow("minilm@1", "failed", 0.0, 0.0, f"it said {NASTY}")
        workers.report_models(tx, id, [row])
    window = opened()
    window.forgive("status of 404")
    dialogs: list[str] = []
    window.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page = window.go(f"/dashboard/workers/{id}")
    expect(page.get_by_text(NASTY).first).to_be_visible()
    expect(page.locator("#live-state")).to_have_text("Live")
    window.go("/dashboard/workers")
    expect(page.get_by_text(NASTY).first).to_be_visible()
    window.go("/dashboard/%3Cimg%20src=x%20onerror=alert(1)%3E")
    expect(page.get_by_text("<img src=x onerror=alert(1)>")).to_be_visible()
    assert page.locator("img[src=x]").count() == 0
    assert not dialogs


def test_without_javascript_the_pages_are_there(
    browser: object, platform: Platform, worked: str
) -> None:
    context = browser.new_context(java_script_enabled=False)  # type: ignore[attr-defined]
    page = context.new_page()
    page.goto(f"{platform.url}/dashboard")
    page.get_by_role("link", name="Workers").first.click()
    expect(page.get_by_role("heading", name="Workers", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    context.close()
