"""The cookie of a session, as the browser is told to keep it."""

import html

import pytest

from tests.integration.api.dashboard.conftest import TOKEN, People


@pytest.mark.parametrize(("proto", "secure"), [("https", True), ("http", False)])
def test_behind_a_proxy_of_tls_it_is_for_https(people: People, proto: str, secure: bool) -> None:
    headers = {"X-Forwarded-Proto": proto, "Sec-Fetch-Site": "same-origin"}
    shown = people.client.get("/dashboard/sign-in", headers=headers)
    [begun] = shown.headers.get_list("set-cookie")
    found = TOKEN.search(shown.text)
    assert found
    form = {"token": found[1], "key": people.keys["acme"], "next": "/dashboard"}
    cookie = {"Cookie": begun.partition(";")[0]}
    answer = people.client.post(
        "/dashboard/sign-in", headers=headers | cookie, data=form, follow_redirects=False
    )
    assert answer.status_code == 303, answer.text
    for said in (begun, *answer.headers.get_list("set-cookie")):
        assert ("Secure" in said) == secure
        assert "HttpOnly" in said
        assert "SameSite=strict" in said


def test_signing_out_ends_copies_of_the_cookie_too(people: People) -> None:
    client, headers = people.client, {"Sec-Fetch-Site": "same-origin"}
    shown = client.get("/dashboard/sign-in")
    form = {"key": people.keys["acme"], "next": "/dashboard", "token": _token(shown.text)}
    begun = {"Cookie": shown.headers["set-cookie"].partition(";")[0]}
    signed_in = client.post(
        "/dashboard/sign-in", headers=headers | begun, data=form, follow_redirects=False
    )
    [session] = [
        cookie.partition(";")[0]
        for cookie in signed_in.headers.get_list("set-cookie")
        if cookie.startswith("millrace_session=")
    ]
    client.cookies.clear()
    copy = {"Cookie": session}
    page = client.get("/dashboard/jobs", headers=copy, follow_redirects=False)
    assert page.status_code == 200
    left = client.post(
        "/dashboard/sign-out", headers=headers | copy, data={"token": _token(page.text)},
        follow_redirects=False,
    )  # fmt: skip
    assert left.status_code == 303
    client.cookies.clear()
    again = client.get("/dashboard/jobs", headers=copy, follow_redirects=False)
    assert again.status_code == 303
    assert again.headers["location"].startswith("/dashboard/sign-in")


def _token(page: str) -> str:
    found = TOKEN.search(page)
    assert found
    return html.unescape(found[1])
