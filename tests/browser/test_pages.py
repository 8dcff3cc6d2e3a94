"""The pages themselves: live, for every eye and hand, and never fooled by a name."""

import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from random import Random
from typing import Any

import httpx
import pytest
import redis
from playwright.sync_api import expect

from api.gateway.routing.shadow import counts_key
from jobs import ids
from jobs.artifacts.push import push
from jobs.blobs.store import open_store
from jobs.calls.streams.rollout import append
from jobs.rollouts.records import LaunchRecord
from jobs.store.queue import workers
from jobs.store.queue.workers import ModelRow
from jobs.store.registry import artifacts
from millrace import APIStatusError, Client
from ops.supervisor.platform import Platform
from tests.browser.conftest import Sign, for_everybody
from tests.support import signing
from tests.support.pace import pace
from tests.support.platforms import SAMPLES, spec, transaction
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

PAGES = {
    "models": "/dashboard/models",
    "model": "/dashboard/models/minilm@1",
    "workers": "/dashboard/workers",
    "worker": "/dashboard/workers/1",
    "overview": "/dashboard",  # last: there is some history by then
}
PAGES_OF_ROLLOUTS = {
    "rollout": "/dashboard/rollouts/x",
    "rollouts": "/dashboard/rollouts",
    "versions": "/dashboard/models/x",
}
PLATFORM = spec(SAMPLES, lease_s=3.0 * pace())
POLICY = {"steps": [5, 25, 50, 100], "min_launches": 200, "min_stay_s": 0, "cost_hold": 0.02}
NASTY = "<img src=x onerror=alert(1)>&'\"{{ 7*7 }}"


@pytest.fixture(scope="module")
def worked(platform: Platform) -> Iterator[str]:
    """The id of a job that has run; a large one runs, with calls beside it: pages have something to
    show, and it changes."""
    client, done = Client(platform.url), threading.Event()
    items = [f"how do I parse JSON {'again ' * (n % 9)}" for n in range(40)]
    id: str = client.jobs.create(model="minilm", items=items)["id"]
    client.jobs.wait(id)
    large: str = client.jobs.create(model="minilm", items=items * 200)["id"]

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


@pytest.fixture(scope="module")
def rolled_out(platform: Platform, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A rollout of the model `x` that went one step, and is held: its canary costs a tenth more."""
    folder = signing.write_tree(tmp_path_factory.mktemp("model"), {"weights": b"some weights"})
    pushed = push(open_store(platform.settings.files), folder)
    with transaction(platform) as tx:
        artifacts.add(tx, pushed.digest, pushed.as_json(), pushed.size, "cli")
    with closing(Client(platform.url)) as client:
        for version, artifact in (("1", None), ("2", None), ("3", pushed.digest)):
            entry = {"engine": "echo"}
            body = {"name": "x", "version": version, "entry": entry, "artifact": artifact}
            client.request("POST", "/admin/models", json=body)
        shares = [{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}]
        shadow = {"version": "3", "percent": 10.0}
        route = {"splits": shares, "sticky": "user", "shadow": shadow}
        client.request("PUT", "/admin/models/x/aliases/stable", json={"version": "1"})
        client.request("PUT", "/admin/models/x/routes/*", json=route)
        body = {"model": "x", "canary": "2", "policy": POLICY}
        id = eventually(lambda: _started(client, body))
        with closing(redis.from_url(platform.settings.redis_url)) as store:
            counts = {"1 equal": 9400, "1 close": 312, "1 different": 2, "1 shed": 270}
            store.hset(counts_key("x@3"), mapping=counts)
            for launch in launches(210, 1.0):
                append(store, id, [launch])
            eventually(lambda: client.get("/rollouts/x")["step"] == 1)
            for launch in launches(200, 1.12):
                append(store, id, [launch])
        eventually(lambda: client.get("/rollouts/x")["state"] == "held")


def _started(client: Client, body: dict[str, Any]) -> str:
    """Returns the id in a rollout's stream; "" while the api doesn't know both versions."""
    try:
        shown = client.request("POST", "/rollouts", json=body)["id"]
    except APIStatusError:
        return ""
    return str(ids.parse("rollout", shown))


def launches(count: int, price: float) -> Iterator[LaunchRecord]:
    """Yields launches of both lanes. price: of the canary's calls; the control's is 1."""
    rng = Random(7)
    for n in range(count):
        for lane, factor in (("control", 1.0), ("canary", price)):
            ms, one = rng.lognormvariate(2.3, 0.3), factor * rng.lognormvariate(0, 0.05)
            failed = int(n % 70 in ((5,) if lane == "control" else (20, 40)))
            own = {"latency_ms": ms, "device_ms": ms / 2, "price": 4 * one}
            yield LaunchRecord(0.0, lane, 4, failed, size=(4, 40.0, 400.0, 0), **own)  # type: ignore[arg-type]


def test_pages_of_rollouts_are_for_everybody_and_without_javascript(
    opened: Sign, rolled_out: None
) -> None:
    window = opened()
    for name, path in PAGES_OF_ROLLOUTS.items():
        page = window.go(path)
        expect(page.get_by_text("held").first).to_be_visible()
        expect(page.locator("#live-state")).to_have_text("Live")
        if name == "rollout":
            expect(page.get_by_text("price a call +").first).to_be_visible()
            expect(page.get_by_role("button", name="Resume")).to_be_visible()
            page.set_viewport_size({"width": 1280, "height": 1260})  # for its screenshot
        for_everybody(window, name)
        page.set_viewport_size({"width": 1280, "height": 800})
    page = opened(scripts=False).go("/dashboard/rollouts/x")
    page.get_by_label("Reason").fill("the product looks wrong")
    page.get_by_role("button", name="Roll back").click()
    expect(page.get_by_text("The rollout of x is rolled back")).to_be_visible()
    expect(page.get_by_text("the product looks wrong").first).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_for_everybody(opened: Sign, worked: str, name: str) -> None:
    window = opened()
    page = window.go(PAGES[name])
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("#live-state")).to_have_text("Live")
    for_everybody(window, name)


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
    page.get_by_role("button", name="Stop updates").focus()
    page.keyboard.press("Space")
    expect(page.locator("#live-state")).to_have_text("Stopped")


def test_a_page_goes_on_by_itself_until_it_is_paused(opened: Sign, platform: Platform) -> None:
    window, still = opened(), opened()
    page, paused = window.go("/dashboard/models/echo@1"), still.go("/dashboard/models/echo@1")
    paused.get_by_role("button", name="Stop updates").click()
    expect(paused.locator("#live-state")).to_have_text("Stopped")
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
    paused.get_by_role("button", name="Start updates").click()
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


def test_without_javascript_the_pages_are_there(opened: Sign, worked: str) -> None:
    page = opened(scripts=False).go("/dashboard")
    page.get_by_role("link", name="Workers").first.click()
    expect(page.get_by_role("heading", name="Workers", exact=True)).to_be_visible()
    expect(page.get_by_role("button", name="Stop updates")).to_have_count(0)
