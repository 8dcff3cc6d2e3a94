"""The playground's rights, and what it answers to browsers and to scripts."""

from typing import Any

import httpx
import pytest

from tests.integration.api.dashboard.conftest import XSS, People


def send(
    people: People, who: str, *, accept: str = "text/html", site: str = "same-origin",
    token: str | None = None, **form: Any,
) -> httpx.Response:  # fmt: skip
    headers = {
        "Authorization": f"Bearer {people.keys[who]}", "Sec-Fetch-Site": site, "Accept": accept
    }  # fmt: skip
    data = {"token": people.token(who) if token is None else token, **form}
    found: httpx.Response = people.client.post(
        "/dashboard/try", headers=headers, data=data, files={"file": ("", b"")},
        follow_redirects=False,
    )  # fmt: skip
    return found


@pytest.mark.parametrize("model", ["echo", "minilm@1", "simple", "efficientnet-lite0"])
@pytest.mark.parametrize("write", ["", "?write=json"])
def test_each_model_has_a_form_of_its_own(people: People, model: str, write: str) -> None:
    page = people.get("acme", f"/models/{model}/try{write}")
    assert page.status_code == 200, page.text
    assert f'name="model" value="{model}"' in page.text
    words = {"simple": "INPUT0", "efficientnet-lite0": "JPEG or PNG"}
    assert words.get(model, "<textarea") in page.text


def test_nobody_calls_by_another_site_without_the_token_or_the_right(people: People) -> None:
    form = {"model": "echo", "text": "hi"}
    for accept in ("text/html", "application/json"):
        assert send(people, "acme", accept=accept, site="cross-site", **form).status_code == 403
        for token in ("", "x", people.token("mallory")):
            assert send(people, "acme", accept=accept, token=token, **form).status_code == 403
        assert send(people, "reader", accept=accept, **form).status_code == 403
    assert people.get("reader", "/models/echo/try").status_code == 403
    assert "/try" not in people.get("reader", "/models/echo@1").text
    assert 'href="/dashboard/models/echo%401/try"' in people.get("acme", "/models/echo@1").text


def test_a_call_that_no_worker_takes_is_told_so_beside_what_was_sent(people: People) -> None:
    form = {"model": "echo", "text": XSS, "params": "{}"}
    page = send(people, "acme", **form)
    assert page.status_code == 503
    assert 'role="alert"' in page.text
    assert "&lt;script&gt;alert" in page.text
    assert "<script>alert" not in page.text
    answer = send(people, "acme", accept="application/json", **form)
    assert answer.status_code == 503
    assert answer.json()["code"] == "no_worker"


def test_the_code_of_a_call_is_shown_without_making_it(people: People) -> None:
    form = {"model": "minilm", "text": "it's", "show": "code"}
    page = send(people, "acme", **form)
    assert page.status_code == 200
    assert "from millrace import Client" in page.text
    code = send(people, "acme", accept="application/json", **form).json()
    assert "curl" in code["curl"]
    assert "client.infer" not in code["curl"]
    assert "Client(" in code["python"]


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ({"model": "echo", "kind": "json", "json": "{"}, 422),
        ({"model": "minilm", "kind": "json", "json": "{}"}, 422),
        ({"model": "nothing", "text": "a"}, 404),
        ({"text": "a"}, 404),
        ({"model": "minilm", "text": "a", "stream": "1"}, 422),
        ({"model": "echo", "text": "x" * (1 << 20)}, 413),
    ],
)
def test_what_is_wrong_is_refused(people: People, form: dict[str, str], status: int) -> None:
    answer = send(people, "acme", accept="application/json", **form)
    assert answer.status_code == status, answer.text


def test_a_large_text_is_checked_elsewhere(people: People) -> None:
    form = {"model": "echo", "text": "x" * 200_000}
    assert send(people, "acme", accept="application/json", **form).status_code == 503
