"""A job that is submitted in a browser: pasted, from a file, and without JavaScript."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Sign, for_everybody
from tests.support.pace import pace
from tests.support.platforms import LIGHT, spec

pytestmark = pytest.mark.nightly

PLATFORM = spec(LIGHT, lease_s=3.0 * pace())


@pytest.mark.parametrize("scripts", [True, False])
def test_pasted_items_become_a_job(signed_in: Sign, scripts: bool) -> None:
    window = signed_in("tenant", scripts=scripts)
    page = window.go("/dashboard/jobs")
    page.get_by_role("link", name="New job").click()
    expect(page.get_by_role("heading", name="New job")).to_be_visible()
    page.get_by_label("Model").select_option("echo")
    page.get_by_role("textbox", name="Items").fill('{"input": "one"}\n{"inptu": "two"}')
    page.get_by_label("Labels").fill("team:browser")
    window.forgive("status of 422")
    page.get_by_role("button", name="Submit the job").click()
    expect(page.get_by_role("alert")).to_contain_text("line 2:")
    items = page.get_by_role("textbox", name="Items")
    expect(items).to_have_value('{"input": "one"}\n{"inptu": "two"}')
    expect(page.get_by_label("Model")).to_have_value("echo")
    items.fill("one\ntwo\n")
    page.get_by_role("button", name="Submit the job").click()
    expect(page).to_have_url(re.compile(r"/dashboard/jobs/job_\w+$"))
    expect(page.get_by_role("status").filter(has_text="submitted")).to_be_visible()
    expect(page.get_by_role("link", name="team:browser")).to_be_visible()
    if scripts:
        expect(page.locator("[data-live=head]")).to_contain_text("2 / 2")


def test_a_file_becomes_a_job(signed_in: Sign, tmp_path: Path) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(f'{{"custom_id": "row-{n}", "input": "{n}"}}\n' for n in range(3000)))
    page = signed_in("tenant").go("/dashboard/jobs/new?model=echo")
    page.get_by_label("Or a file").set_input_files(file)
    page.get_by_label("Name").fill("From a file")
    page.get_by_role("button", name="Submit the job").click()
    expect(page.locator("[data-live=head]")).to_contain_text("From a file")
    expect(page.locator("[data-live=head]")).to_contain_text("3,000 / 3,000")


def test_the_form_shows_what_the_model_takes(signed_in: Sign) -> None:
    window = signed_in("tenant")
    page = window.go("/dashboard/jobs/new")
    examples = page.locator("#examples")
    expect(examples.locator("dt:visible")).to_have_count(2)
    page.get_by_label("Model").select_option("echo@1")
    expect(examples.locator("dt:visible")).to_have_text(["echo"])
    for_everybody(window, "new-job")
