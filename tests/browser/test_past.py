"""Pages of what was: charts over days, calls of the last hour, a worker's log."""

from collections.abc import Iterator
from contextlib import closing

import pytest
from playwright.sync_api import expect
from sqlalchemy import text

from millrace import Client
from ops.supervisor.platform import Platform
from tests.browser.conftest import Sign, for_everybody
from tests.support.pace import pace
from tests.support.platforms import SAMPLES, spec, transaction
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

PLATFORM = spec(SAMPLES, lease_s=3.0 * pace())
DAYS = """
    INSERT INTO figures (subject, step, at, calls_s, items_s, refused_s, failed_s, waiting, busy,
                         p50_s, p95_s)
    SELECT subject, 600, date_bin('10 min', now(), 'epoch') - make_interval(mins => 10 * n),
           40 + 30 * sin(n / 9.0), 300 + n, (n % 7 = 0)::int, (n % 40 = 3)::int,
           1000 * (1 + cos(n / 20.0)), 0.5 + 0.4 * sin(n / 9.0),
           0.02 + n / 50000.0, 0.06 + n / 20000.0
    FROM generate_series(1, 1500) n,
         unnest(ARRAY['everything', 'model:echo@1', 'worker:1', 'pool:default']) subject
    WHERE n NOT BETWEEN 40 AND 60
    ON CONFLICT DO NOTHING
"""


@pytest.fixture(scope="module")
def client(platform: Platform) -> Iterator[Client]:
    with transaction(platform) as tx:
        tx.execute(text(DAYS))
    with closing(Client(platform.url)) as made:
        yield made


PAGES = {
    "model-past": "/dashboard/models/echo@1",
    "worker-past": "/dashboard/workers/1",
    "pool-past": "/dashboard/pools/default",
    "overview-past": "/dashboard",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_week_is_chosen_and_drawn(opened: Sign, client: Client, name: str) -> None:
    window = opened()
    page = window.go(PAGES[name])
    ranges = page.get_by_role("navigation", name="Range")
    expect(ranges.get_by_text("24 hours")).to_have_attribute("aria-current", "true")
    ranges.get_by_text("7 days").click()
    expect(page.get_by_role("heading", name="Last 7 days")).to_be_visible()
    drawn = page.get_by_role("img", name="Throughput over the last 7 days")
    expect(drawn).to_be_visible()
    page.get_by_text("The same as a table").click()
    expect(page.get_by_role("columnheader", name="p95").first).to_be_visible()
    for_everybody(window, name)


def test_a_call_comes_into_the_list_by_itself_and_leads_to_its_page(
    opened: Sign, client: Client
) -> None:
    window = opened()
    page = window.go("/dashboard/calls?model=echo")
    expect(page.locator("#live-state")).to_have_text("Live")
    id = client.request("POST", "/infer", json={"model": "echo", "input": "a call"})["id"]
    link = page.get_by_role("link", name=id)
    expect(link).to_be_visible()
    for_everybody(window, "calls")
    link.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(id)


def test_the_log_of_a_worker_has_what_it_said(opened: Sign, client: Client) -> None:
    assert eventually(lambda: client.get("/workers/1/logs")["data"])
    window = opened()
    page = window.go("/dashboard/workers/1")
    page.get_by_role("link", name="its log").click()
    expect(page.get_by_text("worker 1 loads").first).to_be_visible()
    for_everybody(window, "log")
    page.get_by_label("Text").fill("nobody said this")
    page.get_by_role("button", name="Filter", exact=True).click()
    expect(page.get_by_text("No line matches")).to_be_visible()
