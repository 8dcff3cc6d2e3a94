"""A session is what its cookie says, sealed: whoever changes it, or comes late, has none."""

import base64
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.responses import Response

from api.dashboard.auth import sessions
from api.dashboard.auth.sign_in import inside
from jobs.errors import Malformed, NotConfigured
from jobs.identity import ROLES, Caller
from jobs.settings import Settings

SETTINGS = Settings(secret_key="a key of the tests, 32 characters or more")
ANN = Caller("acme", "operator", ROLES["operator"], "key_ann")


def kept(session: sessions.Session, settings: Settings = SETTINGS) -> str:
    """The cookie's value."""
    response = Response()
    sessions.set_session(response, session, settings, https=False)
    return response.headers["set-cookie"].partition("=")[2].partition(";")[0]


def found(cookie: str, settings: Settings = SETTINGS) -> sessions.Session | None:
    return sessions.from_cookies({sessions.COOKIE: cookie}, settings)


def test_what_was_kept_is_found_again_until_it_ends_and_none_but_ours() -> None:
    session = sessions.begin("mk_secret", ANN)
    cookie = kept(session)
    assert found(cookie) == session
    assert b"secret" not in base64.urlsafe_b64decode(cookie + "==")
    assert found(kept(replace(session, ends=session.ends - sessions.MAX_AGE_S))) is None
    cookie = kept(sessions.begin("mk_secret", ANN))
    other = Settings(secret_key="another key, of 32 characters or more")
    changed = cookie[:8] + ("B" if cookie[8] == "A" else "A") + cookie[9:]
    for wrong in ("", "x", "é", cookie[:-8], changed, cookie * 2):
        assert found(wrong) is None
    assert found(cookie, other) is None
    assert found(cookie, Settings()) is None
    elsewhere = sessions.sealed({"id": "x"}, SETTINGS, "something else")
    assert found(elsewhere) is None


def test_it_is_of_who_signed_in_with_the_rights_of_then_and_a_form_is_of_one() -> None:
    session = sessions.begin("mk_secret", ANN)
    assert sessions.matches(session, ANN)
    assert not sessions.matches(session, replace(ANN, role="admin"))
    assert not sessions.matches(session, replace(ANN, actor="key_other"))
    token = sessions.form_token("one", SETTINGS)
    assert sessions.is_form_token(token, "one", SETTINGS)
    for wrong, other in ((token, "other"), ("", "one"), ("é", "one")):
        assert not sessions.is_form_token(wrong, other, SETTINGS)


def test_sessions_and_forms_outlive_a_new_key_while_the_old_one_is_still_there() -> None:
    cookie, token = kept(sessions.begin("x", ANN)), sessions.form_token("one", SETTINGS)
    after = Settings(secret_key="a newer key, of 32 characters or more")
    both = Settings(secret_key=f"{after.secret_key}\n{SETTINGS.secret_key}")
    assert found(cookie, both) == found(cookie)
    assert found(cookie, both)
    assert sessions.is_form_token(token, "one", both)
    assert found(cookie, after) is None
    assert not sessions.is_form_token(token, "one", after)
    assert sessions.form_token("one", both) == sessions.form_token("one", after)


def test_without_a_secret_key_or_by_a_long_token_nobody_signs_in() -> None:
    with pytest.raises(NotConfigured, match="MILLRACE_SECRET_KEY"):
        kept(sessions.begin("mk_secret", ANN), Settings())
    with pytest.raises(Malformed, match="too long"):
        kept(sessions.begin("x" * 4000, ANN))


def test_pages_of_the_dashboard_are_come_back_to_and_nothing_else_is() -> None:
    for path in ("/dashboard", "/dashboard/jobs?state=running&q=a%20b", "/dashboard?x=1"):
        assert inside(path) == path
    for path in (
        "", "//evil", "https://evil/dashboard", "/dashboardx", "/jobs", "/dashboard//evil",
        "/dashboard/../jobs", "/dashboard\\evil", "/dashboard/\r\nX: y", "/dashboard/é",
    ):  # fmt: skip
        assert inside(path) == "/dashboard", path


def test_a_cookie_of_https_goes_nowhere_else_also_behind_a_proxy(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").touch()
    assert sessions.is_https({}, SETTINGS.evolve(tls_cert=tmp_path / "cert.pem"))
    assert sessions.is_https({"x-forwarded-proto": "https"}, SETTINGS)
    assert not sessions.is_https({"x-forwarded-proto": "http"}, SETTINGS)
    assert not sessions.is_https({}, SETTINGS)
    response = Response()
    sessions.set_session(response, sessions.begin("mk_x", ANN), SETTINGS, https=True)
    said = response.headers["set-cookie"].split("; ")
    assert {"Secure", "HttpOnly", "SameSite=strict"} <= set(said)
