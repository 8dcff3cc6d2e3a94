"""Looks of pages at a desk and on a phone: nothing cut off, nothing drawn wrongly."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from millrace import Client
from tests.browser.chromium import Watched
from tests.browser.conftest import Sign
from tests.browser.work import WORK, ended, post
from tests.support.servers.receiver import Reply, receiving

pytestmark = pytest.mark.nightly

PLATFORM = WORK
PATH = "/of-a-path/that-is-longer/than-a-column?tenant=acme&event=all"
LINES = "(cell) => cell.getClientRects().length && cell.offsetHeight / 20"
CUT = """() => [...document.querySelectorAll(".scroll")]
    .filter((box) => box.scrollWidth > box.clientWidth + 1)
    .map((box) => box.getAttribute("aria-label"))"""
"""The labels of tables that are wider than their panels."""


@pytest.fixture(scope="module")
def shown(client: Client) -> Iterator[dict[str, str]]:
    """Jobs of each look, by name."""
    with receiving() as receiver:
        receiver.reply = lambda request: Reply()
        items = ["good"] * 30 + ["nan"] + ["fine"] * 30
        hook = {"url": receiver.url + PATH}
        name = {"name": "A job with a name of some length", "labels": {"team": "search"}}
        failed = ended(client, "moody", items, webhook=hook, **name)
        large = post(client, "paced", ["wait"] * 400)
        yield {"failed": failed, "large": large}
        client.request("POST", f"/jobs/{large}/cancel")


@pytest.mark.parametrize("path", ["/jobs", "/tenants/acme", "/webhooks", "", "/workers"])
def test_no_table_is_cut_off_at_a_desk(window: Watched, shown: dict[str, str], path: str) -> None:
    page = window.go(f"/dashboard{path}")
    expect(page.locator("table").first).to_be_visible()
    assert [name for name in page.evaluate(CUT) if not name.startswith("Models")] == []


def test_a_phone_shows_state_and_progress_of_each_job(
    signed_in: Sign, shown: dict[str, str]
) -> None:
    page = signed_in("admin", width=390).go("/dashboard/jobs")
    row = page.locator(f"tr[data-key={shown['failed']}]")
    for part in (row.locator(".state"), row.locator("svg.progress"), row.get_by_text("61 / 61")):
        box = part.bounding_box()
        assert box
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390
    assert page.evaluate(CUT) == []


def test_a_slice_with_one_failure_is_drawn_by_its_share(
    window: Watched, shown: dict[str, str]
) -> None:
    page = window.go(f"/dashboard/jobs/{shown['failed']}")
    bar = page.locator("[data-live=slices] g", has=page.locator(".is-failed")).first
    good, bad = (float(bar.locator(f".is-{name}").get_attribute("height") or 0)
                 for name in ("succeeded", "failed"))  # fmt: skip
    assert good > bad > 0


def test_what_runs_is_not_drawn_as_done(window: Watched, shown: dict[str, str]) -> None:
    page = window.go(f"/dashboard/jobs/{shown['large']}")
    bar = page.locator("[data-live=head] svg.progress")
    running, done = bar.locator(".is-running"), bar.locator(".is-succeeded")
    expect(running).to_have_attribute("height", "2")
    expect(done).to_have_attribute("height", "8")


def test_addresses_break_at_their_separators(window: Watched, shown: dict[str, str]) -> None:
    page = window.go("/dashboard/webhooks")
    for cell in page.locator("td.url").all():
        assert cell.evaluate(LINES) <= 5
    page = window.go(f"/dashboard/jobs/{shown['failed']}")
    assert page.locator("td.url").evaluate(LINES) <= 5


def test_the_two_pauses_have_names_of_their_own(window: Watched, shown: dict[str, str]) -> None:
    page = window.go(f"/dashboard/jobs/{shown['large']}")
    expect(page.get_by_role("button", name="Stop updates")).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_have_count(1)
    expect(page.get_by_role("button", name="Pause job")).to_be_visible()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_cancellation_asks_first(signed_in: Sign, client: Client, scripts: bool) -> None:
    id = post(client, "paced", ["wait"] * 400, name="Nightly")
    page = signed_in("admin", scripts=scripts).go(f"/dashboard/jobs/{id}")
    page.get_by_role("link", name="Cancel job…").click()
    expect(page.get_by_role("heading", name=f"Cancel {id}?")).to_be_visible()
    assert client.jobs.get(id)["state"] in ("queued", "running")
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("[data-live=head]")).to_contain_text("cancel")
    assert client.jobs.wait(id)["state"] == "cancelled"
