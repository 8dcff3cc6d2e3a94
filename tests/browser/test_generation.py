"""Pages of a model that generates, and of a call to it."""

import threading
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import expect

from ops.supervisor.platform import Platform
from tests.browser.conftest import Sign, for_everybody
from tests.browser.work import talk
from tests.support.clients import chat, events
from tests.support.pace import pace
from tests.support.platforms import spec
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

PLATFORM = spec(talk(step_ms=8), lease_s=3.0 * pace())
WORDS = "what is a millrace and how long is it " * 10


def call(platform: Platform, **fields: object) -> str:
    """Makes a call that streams, and returns its id once it has ended."""
    body = {"model": "talk", "input": chat(WORDS, **fields), "stream": True}
    with httpx.stream("POST", f"{platform.url}/infer", json=body) as stream:
        *_, last = events(stream.iter_lines())
    return str(last.data["id"])


@pytest.fixture(scope="module")
def generating(platform: Platform) -> Iterator[str]:
    """The id of a call that has ended and is recorded; others run meanwhile."""
    done = threading.Event()

    def go_on() -> None:
        while not done.is_set():
            call(platform, min_tokens=300, max_tokens=300)

    threads = [threading.Thread(target=go_on) for _ in range(5)]
    for each in threads:
        each.start()
    try:
        id = call(platform)
        eventually(lambda: httpx.get(f"{platform.url}/calls/{id}").status_code == 200)
        yield id
    finally:
        done.set()
        for each in threads:
            each.join()


def test_a_call_shows_when_it_got_its_tokens(opened: Sign, generating: str) -> None:
    window = opened()
    page = window.go("/dashboard/models")
    page.get_by_label("call").fill(generating)
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(generating)
    timeline = page.get_by_label("marks, tokens from")
    expect(timeline).to_be_visible()
    assert 32 <= timeline.locator(".mark").count() <= 64
    assert timeline.locator("rect").count() == 3
    expect(page.get_by_text("First token", exact=True)).to_be_visible()
    for_everybody(window, "call")


def test_a_model_shows_its_blocks(opened: Sign, generating: str) -> None:
    window = opened()
    page = window.go("/dashboard/models/talk@1")
    bar = page.get_by_label("KV blocks by tenant")
    expect(bar).to_be_visible()
    expect(page.get_by_text("of 400 blocks in use")).to_be_visible()
    expect(page.get_by_text("First token p95")).to_be_visible()
    bar.scroll_into_view_if_needed()
    for_everybody(window, "generation")
