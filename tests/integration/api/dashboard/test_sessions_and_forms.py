"""Sessions and forms: the cookie as the browser is told to keep it, and forms that no page of ours
sends, which are refused as what they are, none of them our fault."""

import asyncio
import logging
from dataclasses import dataclass

import pytest
from starlette.types import Message

from tests.integration.api.conftest import Jobs, People, token_of
from tests.support.cases import each

MANY = "9" * 400
"""A number that is none of a float's."""
OURS = {"Sec-Fetch-Site": "same-origin"}


@dataclass
class Session:
    """A browser that has signed in."""

    people: People
    said: list[str]  #: cookies that it was told to keep, with their attributes
    headers: dict[str, str]

    def token(self) -> str:
        page = self.people.client.get("/dashboard/jobs", headers=self.headers)
        assert page.status_code == 200
        return token_of(page.text)

    def post(self, path: str, token: str, site: str | None = "same-origin") -> int:
        """Sends a form; returns the status."""
        headers = {**self.headers, **({"Sec-Fetch-Site": site} if site else {})}
        answer = self.people.client.post(
            f"/dashboard{path}", headers=headers, data={"token": token}, follow_redirects=False
        )
        self.people.client.cookies.clear()
        return answer.status_code


def sign_in(people: People, who: str = "acme", **headers: str) -> Session:
    """Signs in by the form."""
    client, path = people.client, "/dashboard/sign-in"
    shown = client.get(path, headers=OURS | headers)
    [begun] = shown.headers.get_list("set-cookie")
    form = {"token": token_of(shown.text), "key": people.keys[who], "next": "/dashboard"}
    sent = OURS | headers | {"Cookie": begun.partition(";")[0]}
    answer = client.post(path, headers=sent, data=form, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    client.cookies.clear()
    said = answer.headers.get_list("set-cookie")
    [session] = [cookie for cookie in said if cookie.startswith("millrace_session=")]
    return Session(people, [begun, *said], {"Cookie": session.partition(";")[0]})


@pytest.mark.parametrize(("proto", "secure"), [("https", True), ("http", False)])
def test_cookies_are_kept_from_scripts_and_other_sites(
    people: People, proto: str, secure: bool
) -> None:
    """Behind a proxy of TLS they are for https."""
    session = sign_in(people, **{"X-Forwarded-Proto": proto})
    for said in session.said:
        assert ("Secure" in said) == secure
        for attribute in ("HttpOnly", "SameSite=strict", "Path=/dashboard"):
            assert attribute in said
        assert "mk_" not in said
    policy = people.get("acme", "").headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_signing_out_ends_copies_of_the_cookie_too(people: People) -> None:
    session = sign_in(people)
    assert session.post("/sign-out", session.token()) == 303
    again = people.client.get("/dashboard/jobs", headers=session.headers, follow_redirects=False)
    assert again.status_code == 303
    assert again.headers["location"].startswith("/dashboard/sign-in")


def test_a_form_of_another_site_or_session_does_nothing(people: People, jobs: Jobs) -> None:
    job_id = jobs.post()
    path = f"/jobs/{job_id}/cancel"
    session, other = sign_in(people), sign_in(people)
    good = session.token()
    for token in ("", "x", other.token()):
        assert session.post(path, token) == 403
        assert people.post("acme", path, token=token).status_code == 403
    for site in ("cross-site", "same-site", "none", None):
        assert session.post(path, good, site) == 403
    assert people.post("acme", path, site="cross-site").status_code == 403
    assert jobs.state(job_id) == "queued"
    assert session.post(path, good) == 303
    assert jobs.state(job_id) == "cancelled"


@pytest.mark.parametrize("origin", ["http://[", "null", "", "http://", "http://elsewhere"])
def test_whoever_does_not_say_that_they_are_ours_is_refused(people: People, origin: str) -> None:
    answer = people.client.post("/dashboard/sign-in", headers={"Origin": origin})
    assert answer.status_code == 403
    assert "not sent by a page" in answer.text


def test_a_charset_of_its_own_makes_no_characters_that_are_none(people: People) -> None:
    body = b'--x\r\nContent-Disposition: form-data; name="token"\r\n\r\n\\ud800\r\n--x--\r\n'
    kind = {"Content-Type": "multipart/form-data; boundary=x; charset=unicode_escape"}
    answer = people.client.post("/dashboard/sign-in", headers=OURS | kind, content=body)
    assert answer.status_code == 400
    assert "our fault" not in answer.text


def test_a_number_of_any_length_is_only_too_large(people: People) -> None:
    key = {"tenant": "acme", "name": "", "role": "tenant", "days": MANY}
    confirmed = {"made_before": "2099-01-01T00:00:00+00:00", "count": MANY}
    for (who, path, form, status), case in each(
        [
            ("admin", "/tenants/acme/terms", {"weight": MANY}, 422),
            ("admin", "/keys", key, 422),
            ("admin", "/tenants/acme/limits", {"limit-0-requests_per_s": MANY}, 422),
            ("admin", "/tenants/acme/limits", {"limit-0-job_items": MANY}, 422),
            ("acme", "/jobs/all/cancel", confirmed, 200),
        ]
    ):
        with case:
            assert people.post(who, path, **form).status_code == status


def test_whoever_leaves_in_the_middle_of_a_form_is_no_fault_of_ours(
    people: People, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        said.append(message)

    kind = b"application/x-www-form-urlencoded"
    headers = [(b"content-type", kind), (b"sec-fetch-site", b"same-origin")]
    path = {"path": "/dashboard/sign-in", "query_string": b""}
    scope = {"type": "http", "method": "POST", "headers": headers, **path}
    with caplog.at_level(logging.ERROR):
        asyncio.run(people.client.app(scope, receive, send))
    assert said[0]["status"] == 400
    assert not caplog.records


def test_what_does_not_fit_is_not_called_our_fault(people: People, jobs: Jobs) -> None:
    answer = people.post("acme", f"/jobs/{jobs.post()}/redeliver")
    assert answer.status_code == 409
    assert "our fault" not in answer.text
