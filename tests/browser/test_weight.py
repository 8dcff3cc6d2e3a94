"""The weight of pages, as a browser fetches them."""

import pytest
from playwright.sync_api import expect

from millrace import Client
from tests.browser.chromium import Watched
from tests.browser.conftest import Sign
from tests.browser.work import WORK, post

pytestmark = pytest.mark.nightly

PLATFORM = WORK
MOST_BYTES = 100_000
PAGES = (
    *("", "/jobs", "/jobs/{id}", "/jobs/{id}/items/0", "/models", "/models/paced@1", "/rollouts"),
    *("/pools", "/workers", "/workers/1", "/tenants", "/tenants/acme", "/webhooks", "/audit"),
)
BLOCKING = """() => performance.getEntriesByType("resource")
    .filter((one) => one.renderBlockingStatus === "blocking")
    .map((one) => one.name.split("/").pop())"""

FETCHED = """() => performance.getEntriesByType("resource")
    .filter((one) => one.transferSize > 0).map((one) => one.name)"""
"""Resources that did not come from the cache."""


@pytest.fixture(scope="module")
def full(client: Client) -> str:
    """The id of a job whose page is full; the list of jobs has a page more."""
    ids = [post(client, "echo", ["a"], name=f"Of many, {n}") for n in range(55)]
    ids.append(post(client, "moody", ["good", "nan", "fine"] * 200))
    for id in ids:
        client.jobs.wait(id)
    return ids[-1]


def weigh(window: Watched, path: str) -> float:
    """Returns the bytes that a page and its assets take over the network, with headers."""
    bytes: list[float] = []
    session = window.page.context.new_cdp_session(window.page)
    session.send("Network.enable")
    session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    session.on("Network.loadingFinished", lambda event: bytes.append(event["encodedDataLength"]))
    window.go(path)
    expect(window.page.get_by_role("heading", level=1)).to_be_visible()
    session.detach()
    assert len(bytes) >= 6  # the page, its style, four scripts
    return sum(bytes)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_light(signed_in: Sign, full: str, path: str) -> None:
    assert weigh(signed_in("admin"), "/dashboard" + path.format(id=full)) < MOST_BYTES


def test_assets_are_compressed_kept_and_in_nobodys_way(opened: Sign, full: str) -> None:
    window = opened()
    static: dict[str, dict[str, str]] = {}
    window.page.on("response", lambda answer: static.update({answer.url: answer.headers}))
    page = window.go("/dashboard/sign-in")
    assert page.evaluate(BLOCKING) == ["style.css"]
    assert [url for url in static if "/static/" in url]
    for url, headers in static.items():
        assert headers.get("content-encoding") == "gzip", url
        kept = headers["cache-control"]
        assert kept == "public, max-age=31536000, immutable" or "/static/" not in url
    window.go("/dashboard/sign-in?next=/dashboard/jobs")
    assert page.evaluate(FETCHED) == []


LAST_STILL = {
    "/jobs": "[aria-label=States]",
    "/webhooks": "[aria-label=Endpoints]",
    "/audit": "[aria-label=Entries]",
}
"""The first part of a page that is live: all before it is the same whenever the page comes."""


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("path", LAST_STILL)
def test_scripts_move_nothing_on_a_page(signed_in: Sign, full: str, path: str, width: int) -> None:
    """Room is kept for all that they show or hide: a page stays as it was painted."""
    tops = []
    for scripts in (False, True):
        window = signed_in("admin", width=width, scripts=scripts)
        page = window.go("/dashboard" + path)
        expect(page.locator("#theme")).to_be_visible(visible=scripts)
        boxes = [page.locator(one).first.bounding_box() for one in ("main", LAST_STILL[path])]
        tops.append([box["y"] for box in boxes if box])
    assert tops[0] == tops[1]
    assert len(tops[0]) == 2
