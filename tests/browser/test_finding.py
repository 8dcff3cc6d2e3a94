"""Finding a job: saved filters, the keyboard, what is copied, and pages that are empty."""

import re
from contextlib import closing
from functools import partial

import pytest
from playwright.sync_api import Page, expect

from millrace import Client
from ops.supervisor.platform import Platform
from tests.browser.chromium import Watched
from tests.browser.conftest import Key, Sign
from tests.browser.work import NASTY, WORK, ended
from tests.support.cases import each
from tests.support.keys import make_key_at
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

PLATFORM = WORK
FOCUSED = "(element) => element === document.activeElement"


@pytest.fixture(scope="module")
def jobs(platform: Platform) -> list[str]:
    """Ids of three jobs of the tenant "finder" that have ended, newest first."""
    made, _ = make_key_at(platform.settings.database_url, "finder", role="admin")
    names = ("Alpha", "Beta", "Gamma")
    with closing(Client(platform.url, made)) as client:
        return [ended(client, "echo", ["a"], name=one, labels={"of": one}) for one in names][::-1]


@pytest.fixture
def window(signed_in: Sign) -> Watched:
    return signed_in("tenant", tenant="finder")


def save(page: Page, name: str) -> None:
    page.get_by_text("Saved filters").click()
    page.get_by_label("Save this filter as").fill(name)
    page.get_by_role("button", name="Save", exact=True).click()


def test_a_saved_filter_is_a_link_with_a_name(window: Watched, jobs: list[str]) -> None:
    page = window.go("/dashboard/jobs?text=&name=beta&range=24h")
    save(page, f"Beta {NASTY}")
    window.accessible()
    page = window.go("/dashboard/jobs")
    rows = page.locator("[data-live=rows]")
    expect(rows).to_contain_text(jobs[0])
    summary = page.locator("#saved summary")
    expect(summary).to_contain_text("1")
    summary.focus()
    for press in ("Enter", "Tab", "Enter"):  # by keyboard: opens the menu, and the link
        page.keyboard.press(press)
    expect(page).to_have_url(re.compile(r"/jobs\?name=beta&range=24h$"))
    expect(rows).to_contain_text(jobs[1])
    expect(rows).not_to_contain_text(jobs[0])
    summary.click()
    link = page.get_by_role("link", name=f"Beta {NASTY}")
    expect(link).to_have_attribute("aria-current", "true")
    page.keyboard.press("Escape")
    expect(link).to_be_hidden()
    expect(summary).to_be_focused()
    assert page.locator("img[src=x]").count() == 0


def test_saved_filters_are_those_of_their_list_and_tenant(
    window: Watched, jobs: list[str], key: Key
) -> None:
    page = window.go("/dashboard/jobs?name=beta")
    save(page, "Beta")
    window.go("/dashboard/webhooks")
    expect(page.locator("#saved summary")).to_have_text("Saved filters")
    window.go("/dashboard/jobs")
    save(page, "All")
    page.get_by_role("button", name="Delete the saved filter Beta").click()
    expect(page.locator("#saved li")).to_have_text(re.compile("All"))
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("API key").fill(key("other")[0])
    page.get_by_role("button", name="Sign in", exact=True).click()
    window.go("/dashboard/jobs")
    expect(page.locator("#saved summary")).to_have_text("Saved filters")


def test_rows_are_walked_and_opened_by_keys(window: Watched, jobs: list[str]) -> None:
    page = window.go("/dashboard/jobs")
    rows = page.locator("[data-live=rows]")
    expect(page.locator("#live-state")).to_have_text("Live")
    links = [rows.get_by_role("link", name=id) for id in jobs]
    for press, at in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        page.keyboard.press(press)
        expect(links[at]).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=jobs[1])).to_be_visible()


def test_the_search_is_reached_by_a_key_and_takes_all_others(
    window: Watched, jobs: list[str]
) -> None:
    page = window.go("/dashboard/jobs")
    page.keyboard.press("/")
    field = page.get_by_label("Text")
    expect(field).to_be_focused()
    page.keyboard.type("j?k/")
    expect(field).to_have_value("j?k/")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(field).not_to_be_focused()
    page.keyboard.press("Control+j")
    assert not page.locator("[data-live=rows] a").first.evaluate(FOCUSED)


def test_the_keys_are_explained_and_can_be_turned_off(window: Watched, jobs: list[str]) -> None:
    page = window.go("/dashboard/jobs")
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(dialog).to_be_visible()
    for key in ("/", "j", "k", "Enter", "?", "Esc"):
        expect(dialog.locator("kbd", has_text=key).first).to_be_visible()
    window.accessible()
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="Keyboard shortcuts").click()
    dialog.get_by_label("use single keys").uncheck()
    dialog.get_by_role("button", name="Close").click()
    page.reload()
    page.keyboard.press("?")
    page.keyboard.press("/")
    expect(page.get_by_label("Text")).not_to_be_focused()
    expect(dialog).to_be_hidden()


IDS = """() => {
    const ids = [...document.querySelectorAll("[id]")].map((element) => element.id)
    return ids.filter((id, at) => ids.indexOf(id) < at)
}"""


def test_no_id_stands_twice_and_every_page_has_the_help(signed_in: Sign, jobs: list[str]) -> None:
    window = signed_in("admin", tenant="finder")
    for path, case in each(["", "/jobs", "/tenants/finder", "/webhooks", "/audit", "/models"]):
        with case:
            page = window.go(f"/dashboard{path}")
            expect(page.get_by_role("button", name="Keyboard shortcuts")).to_be_visible()
            assert page.evaluate(IDS) == []


def test_ids_and_commands_are_copied(window: Watched, platform: Platform, jobs: list[str]) -> None:
    window.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page, url = window.go(f"/dashboard/jobs/{jobs[0]}"), f"{platform.url}/jobs/{jobs[0]}"
    for (name, expected), case in each(
        [
            ("Copy the job's id", jobs[0]),
            ("Copy the command: Its state", f"curl .* {url}"),
            ("Copy the command: Its results", f"curl .* '{url}/results'"),
        ]
    ):
        with case:
            page.get_by_role("button", name=name).click()
            is_copied = partial(re.fullmatch, expected)
            eventually(lambda: is_copied(page.evaluate("navigator.clipboard.readText()")))  # noqa: B023


def test_an_empty_page_says_how_to_fill_it(signed_in: Sign) -> None:
    window = signed_in("tenant", tenant="nobody")
    for (path, how), case in each(
        [
            ("/jobs", "millrace submit"),
            ("/webhooks", "--webhook https://"),
            ("", "millrace submit"),
            ("/jobs?name=no-such-name", "Show all"),
        ]
    ):
        with case:
            page = window.go(f"/dashboard{path}")
            expect(page.locator(".empty").first).to_contain_text(how)
            window.accessible()
