"""The dashboard in a real browser, in short: an admin signs in, and finds a job and what ran it."""

import re
from contextlib import closing

from playwright.sync_api import expect

from millrace import Client
from ops.supervisor.platform import Platform
from tests.browser.conftest import Key, Sign, sign_in
from tests.support.platforms import CLOSED

PLATFORM = CLOSED


def test_an_admin_signs_in_and_finds_a_job(platform: Platform, opened: Sign, key: Key) -> None:
    made, _ = key("smoke", role="admin")
    with closing(Client(platform.url, made)) as client:
        job = client.jobs.wait(client.jobs.submit("echo", ["a", "b"]).id).id
    window = opened()
    page = window.go("/dashboard/jobs")
    sign_in(window, made)
    page.get_by_role("link", name=re.compile(job[-6:])).first.click()
    expect(page).to_have_url(re.compile(job))
    expect(page.get_by_role("heading", level=1)).to_contain_text(job)
    window.accessible()
    for path, words in (("", "Jobs"), ("/models", "echo"), ("/workers", "worker")):
        expect(window.go(f"/dashboard{path}").get_by_role("main")).to_contain_text(words)
    window.accessible()
