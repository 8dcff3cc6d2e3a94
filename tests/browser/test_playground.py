"""Models that are tried in a browser: answers, streams that are stopped, code; and no script."""

import re

import pytest
from playwright.sync_api import expect

from ops.bench.harness.models_files import models_file, sample
from tests.browser.conftest import Sign, for_everybody
from tests.browser.work import talk
from tests.support.pace import pace
from tests.support.platforms import spec

pytestmark = pytest.mark.nightly

MODELS = models_file(sample("echo"), sample("simple")) + talk(step_ms=30)
PLATFORM = spec(MODELS, lease_s=3.0 * pace())


@pytest.mark.parametrize("scripts", [True, False])
def test_a_text_is_answered_with_its_figures_and_code(signed_in: Sign, scripts: bool) -> None:
    window = signed_in("tenant", scripts=scripts)
    page = window.go("/dashboard/models/echo@1")
    page.get_by_role("link", name="Try it").click()
    page.get_by_role("textbox", name="Text").fill("it's <b>me</b>")
    page.get_by_role("button", name="Call").click()
    expect(page.get_by_label("Output")).to_contain_text("it's <b>me</b>")
    expect(page.get_by_label("Timing")).to_contain_text(re.compile(r"Latency.*m?s"))
    expect(page.get_by_label("Timing")).to_contain_text(re.compile(r"Batch size\s*1"))
    page.get_by_role("button", name="Show the code").click()
    expect(page.get_by_label("curl")).to_contain_text("/infer")
    expect(page.get_by_label("Python")).to_contain_text('value = "it\'s <b>me</b>"')
    if scripts:
        for_everybody(window, "playground")


def test_a_conversation_is_streamed_and_stopped(signed_in: Sign) -> None:
    window = signed_in("tenant")
    page = window.go("/dashboard/models/talk@1/try")
    conversation = page.get_by_label("Conversation")
    page.get_by_label("Most tokens").fill("40")
    page.get_by_role("textbox", name="Message").fill("one two three")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_label("Timing")).to_contain_text(re.compile(r"First token\s*[\d.]+ m?s"))
    expect(page.get_by_label("Timing")).to_contain_text(re.compile(r"Tokens/s\s*\d"))
    expect(conversation.get_by_role("listitem")).to_have_count(2)
    expect(conversation).to_contain_text("three")
    page.get_by_role("textbox", name="Message").fill("word " * 900)
    page.get_by_label("Most tokens").fill("")
    page.get_by_role("button", name="Send").click()
    expect(conversation.get_by_role("listitem").nth(3)).to_contain_text("word")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("status").filter(has_text="Stopped.")).to_be_visible()
    for_everybody(window, "playground-chat")


def test_tensors_have_a_form_and_errors_are_shown(signed_in: Sign) -> None:
    window = signed_in("tenant")
    page = window.go("/dashboard/models/simple@1/try")
    page.get_by_role("button", name="Call").click()
    expect(page.get_by_label("Output")).to_contain_text("OUTPUT0")
    window.forgive("status of 422")
    page.get_by_label("Shape of INPUT0").fill("1, 3")
    page.get_by_role("button", name="Call").click()
    expect(page.get_by_role("alert")).to_contain_text("INPUT0")
    page.get_by_role("link", name="json", exact=True).click()
    expect(page.get_by_role("textbox", name="Input as JSON")).to_have_value(re.compile("INPUT0"))
    for_everybody(window, "playground-tensors")
