"""Times are shown in the viewer's zone; the exact ones, in UTC, stand beside them."""

import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, Page, expect

from millrace import Client
from ops.supervisor.platform import Platform
from tests.browser.conftest import Key
from tests.browser.work import WORK, ended, post
from tests.support.clients import bearer
from tests.support.wait import PATIENCE_S

pytestmark = pytest.mark.nightly

PLATFORM = WORK
ZONE = "Australia/Darwin"  # no whole hours from UTC
SHOWN = "%Y-%m-%d %H:%M:%S"


@pytest.fixture
def page_of(browser: Browser, platform: Platform, key: Key) -> Iterator[Callable[..., Page]]:
    """Opens a job of an own tenant in a zone far away, with or without JavaScript."""
    contexts = []

    def make(id: str, script: bool = True) -> Page:
        token, _ = key(role="admin")
        of_browser = {"timezone_id": ZONE, "java_script_enabled": script}
        contexts.append(browser.new_context(**of_browser, extra_http_headers=bearer(token)))
        contexts[-1].set_default_timeout(1000 * PATIENCE_S)
        page = contexts[-1].new_page()
        page.goto(f"{platform.url}/dashboard/jobs/{id}")
        return page

    yield make
    for context in contexts:
        context.close()


def in_zone(exact: str) -> str:
    return datetime.fromisoformat(exact).astimezone(ZoneInfo(ZONE)).strftime(SHOWN)


def test_times_are_those_of_the_viewers_zone_also_after_live_updates(
    page_of: Callable[..., Page], client: Client
) -> None:
    id = post(client, "paced", ["wait"] * 12)
    page = page_of(id)
    expect(page.locator("#zone")).to_have_text(ZONE)
    head = page.locator("[data-live=head]")
    submitted = page.locator("dt:text-is('Submitted') + dd time")
    created = client.jobs.get(id)["created_at"]
    exact = datetime.fromisoformat(submitted.get_attribute("title"))
    assert abs(exact - datetime.fromisoformat(created)) < timedelta(seconds=1)
    expect(submitted).to_have_text(in_zone(created))
    expect(head).to_contain_text("completed")
    timeline = page.locator("[data-live=slices] time").first  # came by an update
    expect(timeline).to_have_text(in_zone(timeline.get_attribute("title")))
    expect(page.locator("[data-live=head] time").first).to_have_attribute(
        "title", re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
    )


def test_without_javascript_times_are_in_utc_and_say_so(
    page_of: Callable[..., Page], client: Client
) -> None:
    id = ended(client, "echo", ["a"])
    page = page_of(id, script=False)
    submitted = page.locator("dt:text-is('Submitted') + dd time")
    created = datetime.fromisoformat(client.jobs.get(id)["created_at"])
    expect(submitted).to_have_text(f"{created:{SHOWN}} UTC")
    expect(page.get_by_text("Times are in UTC.")).to_be_visible()


def test_a_range_is_a_link_and_typed_times_are_sent_in_utc(
    page_of: Callable[..., Page], client: Client
) -> None:
    id = ended(client, "echo", ["a"], labels={"part": "ranges"})
    page = page_of(id)
    page.goto(page.url.replace(f"/{id}", "?label=part:ranges"))
    rows = page.locator("[data-live=rows]")
    tabs = page.get_by_role("navigation", name="Time range")
    tabs.get_by_role("link", name="15 min").click()
    expect(page).to_have_url(re.compile("label=part%3Aranges&range=15m"))
    expect(tabs.locator("[aria-current]")).to_have_text("15 min")
    expect(rows).to_contain_text(id)
    made = datetime.fromisoformat(client.jobs.get(id)["created_at"])
    later = (made + timedelta(minutes=1)).astimezone(ZoneInfo(ZONE))
    page.get_by_label("Submitted from").fill(f"{later:%Y-%m-%dT%H:%M}")
    page.get_by_role("button", name="Filter").click()
    sent = f"{made + timedelta(minutes=1):%Y-%m-%dT%H%%3A%M}"
    expect(page).to_have_url(re.compile(f"since={sent}&"))
    expect(tabs.locator("[aria-current]")).to_have_text("custom")
    expect(page.get_by_label("Submitted from")).to_have_value(f"{later:%Y-%m-%dT%H:%M}")
    expect(rows).to_contain_text("No job matches")
    tabs.get_by_role("link", name="any time").click()
    expect(rows).to_contain_text(id)


@pytest.mark.parametrize("path", ["webhooks", "audit", "tenants/acme"])
def test_other_lists_have_the_same_range(
    page_of: Callable[..., Page], client: Client, path: str
) -> None:
    id = ended(client, "echo", ["a"], webhook={"url": "http://127.0.0.1:9/none"})
    client.request("POST", f"/jobs/{id}/retry")
    page = page_of(id)
    page.goto(page.url.replace(f"jobs/{id}", path))
    main, word = page.locator("main"), {"tenants/acme": "echo"}.get(path, id)
    page.get_by_role("link", name="15 min").click()
    expect(main).to_contain_text(word)
    page.goto(page.url.partition("?")[0] + "?until=2020-01-01")
    expect(page.get_by_role("link", name="custom")).to_be_visible()
    expect(main).not_to_contain_text(word)
