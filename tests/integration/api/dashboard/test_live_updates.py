"""What a page sends again is what it shows: to nobody more."""

import re

import pytest

from tests.integration.api.conftest import Jobs, People

SHOWN = re.compile(r'data-live="(\w+)"')
STREAM = {"Accept": "text/event-stream"}


@pytest.mark.usefixtures("parts_of_streams")
@pytest.mark.parametrize("who", ["acme", "reader", "operator", "admin"])
def test_no_part_is_sent_that_the_page_does_not_show(people: People, jobs: Jobs, who: str) -> None:
    job_id = jobs.failed()
    for path in ("", "/models", "/models/echo@1", "/jobs", f"/jobs/{job_id}", "/webhooks"):
        page, parts = people.page(who, path), people.get(who, path, headers=STREAM)
        assert parts.status_code == 200, path
        sent = {name.removeprefix("live_") for name, html in parts.json().items() if html.strip()}
        assert sent <= {*SHOWN.findall(page)}, path
        assert "live_" not in page
