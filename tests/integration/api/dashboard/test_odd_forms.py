"""Forms that no page of ours sends: refused as what they are, none of them our fault."""

import asyncio
import logging

import pytest
from starlette.types import Message

from tests.integration.api.dashboard.conftest import Jobs, People

MANY = "9" * 400
"""A number that is none of a float's."""


@pytest.mark.parametrize("origin", ["http://[", "null", "", "http://", "http://elsewhere"])
def test_whoever_does_not_say_that_they_are_ours_is_refused(people: People, origin: str) -> None:
    answer = people.client.post("/dashboard/sign-in", headers={"Origin": origin})
    assert answer.status_code == 403
    assert "not sent by a page" in answer.text


def test_a_charset_of_its_own_makes_no_characters_that_are_none(people: People) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n\\ud800\r\n--x--\r\n'
    kind = "multipart/form-data; boundary=x; charset=unicode_escape"
    headers = {"Content-Type": kind, "Sec-Fetch-Site": "same-origin"}
    answer = people.client.post("/dashboard/sign-in", headers=headers, content=body)
    assert answer.status_code == 400
    assert "our fault" not in answer.text


def test_a_number_of_any_length_is_only_too_large(people: People, jobs: Jobs) -> None:
    terms = {"weight": MANY}
    assert people.post("admin", "/tenants/acme/terms", **terms).status_code == 422
    key = {"tenant": "acme", "name": "", "role": "tenant", "days": MANY}
    assert people.post("admin", "/keys", **key).status_code == 422
    for name in ("requests_per_s", "job_items"):
        limits = {f"limit-0-{name}": MANY}
        assert people.post("admin", "/tenants/acme/limits", **limits).status_code == 422
    confirmed = {"made_before": "2099-01-01T00:00:00+00:00", "count": MANY}
    assert people.post("acme", "/jobs/all/cancel", **confirmed).status_code == 200


def test_whoever_leaves_in_the_middle_of_a_form_is_no_fault_of_ours(
    people: People, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        said.append(message)

    headers = {"content-type": "application/x-www-form-urlencoded", "sec-fetch-site": "same-origin"}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/dashboard/sign-in",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    with caplog.at_level(logging.ERROR):
        asyncio.run(people.client.app(scope, receive, send))
    assert said[0]["status"] == 400
    assert not caplog.records


def test_what_does_not_fit_is_not_called_our_fault(people: People, jobs: Jobs) -> None:
    answer = people.post("acme", f"/jobs/{jobs.post()}/redeliver")
    assert answer.status_code == 409
    assert "our fault" not in answer.text
