"""Work, in a browser: a job watched to its end, what is inside it, and the verbs, for many at once
too; but not for who may only read."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from millrace import Client
from ops.supervisor.platform import Platform
from tests.browser.chromium import Watched
from tests.browser.conftest import for_everybody, screenshot
from tests.browser.work import NASTY, WORK, ended, post
from tests.support.servers.receiver import Receiver, Reply, receiving
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

PLATFORM = WORK


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


def test_a_job_is_watched_to_its_end(window: Watched, client: Client) -> None:
    id = post(client, "paced", [f"wait {n}" for n in range(40)], metadata={"who": NASTY})
    page = window.go(f"/dashboard/jobs/{id}")
    page.evaluate("document.querySelector('main').mine = true")
    head = page.locator("[data-live=head]")
    expect(head).to_contain_text("running")
    expect(head.get_by_role("link", name="Cancel job…")).to_be_visible()
    screenshot(window, "job-running-light")
    expect(head).to_contain_text("completed")
    expect(head).to_contain_text("40 / 40")
    expect(head.get_by_role("link", name="Cancel job…")).to_have_count(0)
    expect(head.get_by_role("button", name="Retry")).to_be_visible()
    slices = page.locator("[data-live=slices]")
    expect(slices.get_by_role("img")).not_to_have_count(0)
    expect(page.locator("[data-live=items] tbody tr")).to_have_count(40)
    assert page.evaluate("document.querySelector('main').mine")  # the page was not loaded again


CLICK_STATE = """name => {
    const links = [...document.querySelectorAll("nav[aria-label=States] a")]
    links.find(link => link.textContent.includes(name)).click()
}"""
"""In one step: a live update gives a link that was found before another state's text."""


def test_jobs_are_found_and_the_url_says_what_is_shown(window: Watched, client: Client) -> None:
    one = ended(client, "echo", ["a"], metadata={"project": "needle"})
    other = ended(client, "echo", ["a"], metadata={"project": "hay"})
    page = window.go("/dashboard/jobs")
    rows = page.locator("[data-live=rows]")
    expect(rows).to_contain_text(other)
    page.get_by_label("Text").fill("NEEDLE")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_contain_text(one)
    expect(rows).not_to_contain_text(other)
    assert "text=NEEDLE" in page.url
    page.evaluate(CLICK_STATE, "completed")
    expect(page).to_have_url(re.compile("state=completed.*text=NEEDLE"))
    expect(rows).to_contain_text(one)
    page.reload()
    expect(page.get_by_label("Text")).to_have_value("NEEDLE")
    expect(rows).to_contain_text(one)
    page.get_by_role("link", name="All jobs").click()
    expect(rows).to_contain_text(other)


def test_jobs_are_narrowed_down_by_clicks_on_labels(window: Watched, client: Client) -> None:
    one = ended(client, "echo", ["a"], name="Reviews", labels={"team": "clicks", "stage": NASTY})
    other = ended(client, "echo", ["a"], labels={"team": "clicks"})
    page = window.go("/dashboard/jobs?label=team:clicks")
    rows = page.locator("[data-live=rows]")
    expect(rows).to_contain_text("Reviews")
    expect(rows).to_contain_text(other)
    screenshot(window, "jobs-labels-light")
    rows.get_by_role("link", name="stage:").click()
    expect(rows).not_to_contain_text(other)
    expect(rows).to_contain_text(one)
    page.get_by_role("link", name="Remove the label stage:").click()
    expect(rows).to_contain_text(other)
    page.get_by_label("Name").fill("reviews")
    page.get_by_role("button", name="Filter").click()
    expect(rows).not_to_contain_text(other)
    expect(page).to_have_url(re.compile("name=reviews.*label=team%3Aclicks"))
    page.reload()
    rows.get_by_role("link", name=one).click()
    expect(page.get_by_role("link", name="team:clicks")).to_be_visible()
    screenshot(window, "job-labels-light")
    assert page.locator("img[src=x]").count() == 0


def test_an_item_is_opened_and_the_failed_are_retried(window: Watched, client: Client) -> None:
    id = ended(client, "moody", ["good", "nan", "fine"])
    dialogs: list[str] = []
    window.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page = window.go(f"/dashboard/jobs/{id}")
    items = page.locator("[data-live=items]")
    items.get_by_role("link", name="failed 1").click()
    expect(items.locator("table.items tbody tr")).to_have_count(1)
    items.get_by_role("link", name="1", exact=True).click()
    expect(page.get_by_role("heading", name="Item 1")).to_be_visible()
    expect(page.locator("main")).to_contain_text("invalid_output")
    expect(page.locator("main")).to_contain_text(NASTY)
    page.locator(".crumbs").get_by_role("link", name=id).click()
    page.get_by_role("button", name="Retry").click()
    expect(page.get_by_role("status").filter(has_text="retry:")).to_be_visible()
    head = page.locator("[data-live=head]")
    expect(head).to_contain_text("generation 2")
    expect(head).to_contain_text("completed")
    assert page.locator("img[src=x]").count() == 0
    assert not dialogs


def test_an_item_shows_first_where_the_model_raised(window: Watched, client: Client) -> None:
    id = ended(client, "moody", ["fine", "raise", "raise"])
    for seq in (1, 2):
        page = window.go(f"/dashboard/jobs/{id}/items/{seq}")
        frames = page.get_by_role("region", name="Frames of the model's code")
        expect(frames).to_contain_text("in moody")
        expect(frames).to_contain_text("RuntimeError: can't stand it")
    assert "in moody" not in str(list(client.jobs.results(id)))
    for_everybody(window, "item-frames")


def test_items_that_failed_are_submitted_again_to_another_model(
    window: Watched, client: Client
) -> None:
    id = ended(client, "moody", ["fine", "nan", "nul"])
    page = window.go(f"/dashboard/jobs/{id}")
    page.get_by_role("link", name="Submit again…").click()
    page.get_by_role("combobox", name="Items", exact=True).select_option("unsuccessful")
    page.get_by_label("Model").select_option("echo")
    page.get_by_label("Name").fill("Another try")
    for_everybody(window, "resubmit")
    page.get_by_role("button", name="Submit the new job").click()
    head = page.locator("[data-live=head]")
    expect(head).to_contain_text("Another try")
    expect(head).to_contain_text("2 / 2")
    expect(page.get_by_role("link", name=id)).to_be_visible()


def test_many_are_cancelled_once_their_number_is_confirmed(window: Watched, client: Client) -> None:
    tag = "to-be-cancelled"
    made = [post(client, "paced", ["wait"] * 400, metadata={"tag": tag}) for _ in range(3)]
    page = window.go(f"/dashboard/jobs?text={tag}&state=queued,running")
    page.get_by_role("button", name="Cancel…").click()
    expect(page.get_by_role("heading", name="Cancel 3 jobs?")).to_be_visible()
    for id in made:
        expect(page.get_by_role("group", name="Examples")).to_contain_text(id)
    window.accessible()
    screenshot(window, "confirm-light")
    page.get_by_role("button", name="Cancel 3 jobs").click()
    expect(page.get_by_role("heading", name="3 jobs cancelled")).to_be_visible()
    window.accessible()
    eventually(lambda: {client.jobs.get(id)["state"] for id in made} == {"cancelled"})


def test_those_that_are_ticked_are_paused(window: Watched, client: Client) -> None:
    made = [post(client, "paced", ["wait"] * 400, metadata={"tag": "ticked"}) for _ in range(3)]
    page = window.go("/dashboard/jobs?text=ticked")
    page.get_by_role("checkbox", name=made[1]).check()
    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name="Pause 1 job").click()
    expect(page.get_by_role("heading", name="1 job paused")).to_be_visible()
    assert client.jobs.get(made[1])["state"] == "paused"
    assert client.jobs.get(made[0])["state"] != "paused"
    for id in made:
        client.request("POST", f"/jobs/{id}/cancel")


def test_a_webhook_that_failed_is_sent_again(
    window: Watched, client: Client, receiver: Receiver
) -> None:
    receiver.reply = lambda request: Reply(410)
    id = post(client, "echo", ["a"], webhook={"url": receiver.url})
    page = window.go("/dashboard/webhooks?state=disabled")
    rows = page.locator("[data-live=deliveries]")
    expect(rows).to_contain_text(id)
    receiver.reply = lambda request: Reply()
    before = len(receiver.received)
    rows.get_by_role("button", name=re.compile(id)).click()
    expect(page.get_by_role("status").filter(has_text="being sent again")).to_be_visible()
    eventually(lambda: len(receiver.received) > before)
    window.go("/dashboard/webhooks?state=delivered")
    expect(rows).to_contain_text(id)


def test_a_key_is_made_and_seen_once(window: Watched) -> None:
    page = window.go("/dashboard/tenants/acme")
    form = page.locator("form", has=page.get_by_role("button", name="Create the key"))
    form.get_by_label("Name").fill("of a browser")
    page.get_by_role("button", name="Create the key").click()
    expect(page.locator("pre.secret")).to_have_text(re.compile("^mk_"))
    page.get_by_role("link", name="Back to the tenant").click()
    expect(page.get_by_role("group", name="Keys")).to_contain_text("of a browser")
    expect(page.locator("main")).not_to_contain_text(re.compile("mk_[A-Za-z0-9_-]{20}"))


@pytest.fixture(scope="module")
def mixed(client: Client, receiver: Receiver) -> str:
    """The id of a job with good and bad items; there is something on all other pages too."""
    receiver.reply = lambda request: Reply()
    mixed = post(client, "moody", ["good", "nan", "fine", "nul"] * 9, webhook={"url": receiver.url})
    ended(client, "paced", [f"text {n}" for n in range(60)], metadata={"run": "7"})
    client.request("POST", f"/jobs/{post(client, 'paced', ['wait'] * 400)}/pause")
    return client.jobs.wait(mixed).id


#: By the name of their screenshot.
PAGES = {
    "jobs": "/jobs",
    "job": "/jobs/{id}",
    "slices": "/jobs/{id}/slices",
    "item": "/jobs/{id}/items/1",
    "delete": "/jobs/{id}/delete",
    "tenants": "/tenants",
    "tenant": "/tenants/acme",
    "webhooks": "/webhooks",
    "audit": "/audit",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_work_is_for_everybody(window: Watched, mixed: str, name: str) -> None:
    page = window.go("/dashboard" + PAGES[name].format(id=mixed))
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    for_everybody(window, name)


def test_a_worker_is_drained_and_wanted_again(window: Watched, platform: Platform) -> None:
    page = window.go("/dashboard/workers/1")
    page.get_by_role("button", name="Drain").click()
    expect(page.get_by_text("is being drained")).to_be_visible()
    head = page.locator("[data-live=head]")
    expect(head).to_contain_text("draining")
    page.get_by_role("button", name="Resume").click()
    expect(head).to_contain_text("stopped")
    window.go("/dashboard/workers")
    alive = page.locator("[data-live=alive]")

    def another_is_ready() -> bool:
        platform.poll()  # as `millrace up` does: who has ended is started again
        return bool(alive.get_by_text(re.compile("^ready$")).count())

    eventually(another_is_ready)
    assert not page.get_by_role("link", name="1", exact=True).and_(alive.locator("a")).count()
