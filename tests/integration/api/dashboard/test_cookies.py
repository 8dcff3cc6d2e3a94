"""The cookie of a session, as the browser is told to keep it."""

import pytest

from tests.integration.api.dashboard.conftest import TOKEN, People


@pytest.mark.parametrize(("proto", "secure"), [("https", True), ("http", False)])
def test_behind_a_proxy_that_ends_tls_it_is_for_https_alone(
    people: People, proto: str, secure: bool
) -> None:
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
