"""The playground's rights, and what it answers to browsers and to scripts."""

import httpx
import pytest

from tests.integration.api.conftest import XSS, People
from tests.support.cases import each

HTML, JSON = "text/html", "application/json"


def send(people: People, who: str, accept: str = HTML, **form: str) -> httpx.Response:
    return people.post(who, "/try", accept=accept, files={"file": ("", b"")}, **form)


@pytest.mark.parametrize("write", ["", "?write=json"])
def test_each_model_has_a_form_of_its_own(people: People, write: str) -> None:
    words = {"simple": "INPUT0", "efficientnet-lite0": "JPEG or PNG"}
    for model, case in each(["echo", "minilm@1", "simple", "efficientnet-lite0"]):
        with case:
            page = people.page("acme", f"/models/{model}/try{write}")
            assert f'name="model" value="{model}"' in page
            assert words.get(model, "<textarea") in page


def test_nobody_calls_by_another_site_without_the_token_or_the_right(people: People) -> None:
    form = {"model": "echo", "text": "hi"}
    for accept in (HTML, JSON):
        assert send(people, "acme", accept, site="cross-site", **form).status_code == 403
        for token in ("", "x", people.token("mallory")):
            assert send(people, "acme", accept, token=token, **form).status_code == 403
        assert send(people, "reader", accept, **form).status_code == 403
    assert people.get("reader", "/models/echo/try").status_code == 403
    assert "/try" not in people.page("reader", "/models/echo@1")
    assert 'href="/dashboard/models/echo%401/try"' in people.page("acme", "/models/echo@1")


def test_a_call_that_no_worker_takes_is_told_so_beside_what_was_sent(people: People) -> None:
    form = {"model": "echo", "text": XSS, "params": "{}"}
    page = send(people, "acme", **form)
    assert page.status_code == 503
    assert 'role="alert"' in page.text
    assert "&lt;script&gt;alert" in page.text
    assert "<script>alert" not in page.text
    answer = send(people, "acme", JSON, **form)
    assert (answer.status_code, answer.json()["code"]) == (503, "no_worker")


def test_the_code_of_a_call_is_shown_without_making_it(people: People) -> None:
    form = {"model": "minilm", "text": "it's", "show": "code"}
    page = send(people, "acme", **form)
    assert page.status_code == 200
    assert "from millrace import Client" in page.text
    code = send(people, "acme", JSON, **form).json()
    assert "curl" in code["curl"]
    assert "client.infer" not in code["curl"]
    assert "Client(" in code["python"]


def test_what_is_wrong_is_refused(people: People) -> None:
    for (form, status), case in each(
        [
            ({"model": "echo", "kind": "json", "json": "{"}, 422),
            ({"model": "minilm", "kind": "json", "json": "{}"}, 422),
            ({"model": "nothing", "text": "a"}, 404),
            ({"text": "a"}, 404),
            ({"model": "minilm", "text": "a", "stream": "1"}, 422),
            ({"model": "echo", "text": "x" * (1 << 20)}, 413),
            ({"model": "echo", "text": "x" * 200_000}, 503),  # checked elsewhere; no worker
        ],
        name=lambda row: str(row)[:80],
    ):
        with case:
            answer = send(people, "acme", JSON, **form)
            assert answer.status_code == status, answer.text
