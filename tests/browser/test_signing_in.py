"""Sign-in: who gets in, how far, and for how long."""

import re

import pytest
from playwright.sync_api import expect

from jobs import ids
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import api_keys as store
from ops.supervisor.platform import Platform
from tests.browser.conftest import Key, Sign, screenshot, sign_in
from tests.support.pace import pace
from tests.support.platforms import database_of, spec

pytestmark = pytest.mark.nightly

PLATFORM = spec(lease_s=3.0 * pace())
_REFUSED = ("status of 401", "status of 403")
_BROKEN_OFF = ("net::ERR_INCOMPLETE_CHUNKED_ENCODING", "net::ERR_CONNECTION")  # a live stream


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_key_opens_the_page_that_was_asked_for_and_signing_out_ends_it(
    opened: Sign, key: Key, scheme: str
) -> None:
    made, _ = key(role="admin")
    window = opened(scheme=scheme)
    page = window.go("/dashboard/models")
    expect(page).to_have_url(re.compile("/dashboard/sign-in"))
    window.accessible()
    screenshot(window, f"sign-in-{scheme}")
    sign_in(window, made)
    expect(page).to_have_url(f"{window.url}/dashboard/models")
    expect(page.get_by_role("banner")).to_contain_text("acme")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
    window.go("/dashboard")
    expect(page).to_have_url(re.compile("/dashboard/sign-in"))


@pytest.mark.parametrize("wrong", ["mk_" + "a" * 43, "nonsense", "mk_<script>alert(1)</script>"])
def test_a_wrong_key_is_told_so(opened: Sign, key: Key, wrong: str) -> None:
    key()
    window = opened()
    window.forgive(*_REFUSED)
    sign_in(window, wrong)
    expect(window.page.get_by_role("alert")).to_be_visible()
    kept = {cookie["name"] for cookie in window.page.context.cookies()}
    assert "millrace_session" not in kept


def test_a_session_ends_with_its_key(opened: Sign, key: Key, platform: Platform) -> None:
    made, id = key(role="operator")
    window = opened()
    window.forgive(*_REFUSED, *_BROKEN_OFF)
    sign_in(window, made)
    expect(window.page.get_by_role("heading", name="Overview")).to_be_visible()
    expect(window.page.locator("#live-state")).to_have_text("Live")
    with database_of(platform) as database, acting(database, EVERYBODY) as tx:
        store.revoke(tx, EVERYBODY, ids.parse("key", id))
    # The stream ends, and the page goes to where one signs in, by itself.
    expect(window.page).to_have_url(re.compile("/dashboard/sign-in"))
    window.go("/dashboard/workers")
    expect(window.page).to_have_url(re.compile("/dashboard/sign-in"))


@pytest.mark.parametrize(
    "next",
    ["//evil.example", "https://evil.example/dashboard", "/dashboard/..//evil.example", "/jobs",
     "/dashboard\\@evil.example", "/dashboard//evil.example", "javascript:alert(1)"],
)  # fmt: skip
def test_nobody_is_sent_elsewhere_after_signing_in(opened: Sign, key: Key, next: str) -> None:
    made, _ = key()
    window = opened()
    page = window.go("/dashboard/sign-in")
    page.locator("input[name=next]").evaluate("(input, next) => { input.value = next }", next)
    sign_in(window, made)
    expect(page).to_have_url(f"{window.url}/dashboard")


def test_a_tenant_sees_its_own_and_is_told_what_it_may_not(signed_in: Sign) -> None:
    window = signed_in("tenant")
    window.forgive(*_REFUSED)
    page = window.page
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    pages = page.get_by_role("navigation").get_by_role("link").all_inner_texts()
    assert {"Overview", "Jobs", "Models", "Webhooks"} <= set(pages)
    assert not {"Workers", "Tenants", "Audit"} & set(pages)
    expect(page.get_by_text("PostgreSQL")).to_have_count(0)
    window.accessible()
    window.go("/dashboard/workers")
    expect(page.get_by_role("heading", name="The credential doesn't allow this")).to_be_visible()
    expect(page.get_by_text("lacks the scope operate")).to_be_visible()
    expect(page.get_by_text(re.compile("^req_"))).to_be_visible()
    window.accessible()
