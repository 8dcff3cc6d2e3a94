"""The form of a new job: what it makes, what it refuses, and to whom."""

from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from tests.integration.api.dashboard.conftest import XSS, People
from tests.support.stores.transactions import scalars


def send(
    people: People, who: str, *, file: tuple[str, bytes] | None = None, site: str = "same-origin",
    token: str | None = None, **form: Any,
) -> httpx.Response:  # fmt: skip
    headers = {"Authorization": f"Bearer {people.keys[who]}", "Sec-Fetch-Site": site}
    data = {"token": people.token(who) if token is None else token, **form}
    found: httpx.Response = people.client.post(
        "/dashboard/jobs/new", headers=headers, data=data, follow_redirects=False,
        files={"file": file or ("", b"")},
    )  # fmt: skip
    return found


def stored(database: Engine) -> list[Any]:
    with database.connect() as tx:
        query = "SELECT tenant_id, name, labels, class, priority, params, total, state FROM jobs"
        return list(tx.execute(text(query)))


def inputs(database: Engine) -> list[str]:
    return scalars(database, "SELECT input FROM items ORDER BY seq")


def test_pasted_texts_are_a_job_with_all_its_terms(people: People, database: Engine) -> None:
    terms = {
        "model": "echo", "name": "Nightly", "labels": "team:search, run:7", "class": "bulk",
        "priority": "-3", "items": "one\r\ntwo words\r\n\r\n",
    }  # fmt: skip
    answer = send(people, "acme", **terms)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("/dashboard/jobs/job_")
    [job] = stored(database)
    labels = '{"team":"search","run":"7"}'
    assert job == ("acme", "Nightly", labels, "bulk", -3, "{}", 2, "queued")
    assert inputs(database) == ['"one"', '"two words"']


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("a.jsonl", b'{"custom_id": "x", "input": "a"}\n"b"\n', ['"a"', '"b"']),
        ("a.txt", b'"quoted"\n', ['"\\"quoted\\""']),
        ("a", b'[\n "a",\n {"input": "b"}\n]', ['"a"', '"b"']),
        ("a", "é\nb".encode(), ['"é"', '"b"']),
        ("a.json", b'"alone"', ['"alone"']),
    ],
)
def test_a_file_is_read_by_its_name_or_by_a_guess(
    people: People, database: Engine, name: str, content: bytes, found: list[str]
) -> None:
    answer = send(people, "acme", file=(name, content), model="echo")
    assert answer.status_code == 303, answer.text
    assert inputs(database) == found


def test_a_large_file_is_stored_by_a_process_of_its_own(people: People, database: Engine) -> None:
    lines = b"".join(b'"text %d"\n' % n for n in range(20_000))
    assert send(people, "acme", file=("a.jsonl", lines), model="echo").status_code == 303
    assert stored(database)[0].total == 20_000


def test_a_form_that_is_sent_twice_makes_one_job(people: People, database: Engine) -> None:
    same = {"model": "echo", "items": "one", "once": "x"}
    first, again = (send(people, "acme", **same) for _ in range(2))
    assert first.headers["location"] == again.headers["location"]
    other = send(people, "acme", **{**same, "items": "two"})
    assert other.headers["location"] != first.headers["location"]
    assert len(stored(database)) == 2


def test_faults_are_shown_by_line_beside_what_was_pasted(people: People, database: Engine) -> None:
    pasted = f'{{"input": "a"}}\n{{"inputs": "{XSS}"}}\n{{"input": "b"}}\n{{"input"\n'
    terms = {"model": "echo", "labels": "Team:x", "priority": "high", "params": "[1]"}
    answer = send(people, "acme", items=pasted, **terms)
    assert answer.status_code == 422
    assert "line 2: " in answer.text
    assert "line 4: " in answer.text
    assert "labels" in answer.text
    assert "is no whole number" in answer.text
    assert "parameters are a JSON object" in answer.text
    assert "{&#34;input&#34;: &#34;b&#34;}" in answer.text
    assert 'value="Team:x"' in answer.text
    assert "<script>alert" not in answer.text
    assert not stored(database)


@pytest.mark.parametrize(
    ("form", "file", "said"),
    [
        ({"model": "echo"}, None, "paste the items, or choose a file"),
        ({"model": "echo", "items": "a"}, ("b.txt", b"b"), "not both"),
        ({"model": "echo"}, ("b.csv", b"a,b"), "millrace submit b.csv"),
        ({"model": "nothing", "items": "a"}, None, "no model"),
        ({"items": "a"}, None, "model"),
        ({"model": "echo", "items": "a", "class": "urgent"}, None, "class"),
        ({"model": "echo", "items": "a", "labels": "x"}, None, "key:value"),
        ({"model": "echo", "format": "json", "items": "[1,"}, None, "not valid JSON"),
        ({"model": "echo", "format": "text"}, ("x", b"\xff"), "not UTF-8"),
    ],
)
def test_what_is_missing_or_wrong_is_said(
    people: People, database: Engine, form: dict[str, str], file: Any, said: str
) -> None:
    answer = send(people, "acme", file=file, **form)
    assert 400 <= answer.status_code < 500
    assert said in answer.text
    assert "<h1>New job</h1>" in answer.text
    if file:
        assert f"Choose <b>{file[0]}</b> again" in answer.text
    assert not stored(database)


def test_too_much_to_paste_is_refused_before_it_is_stored(people: People, database: Engine) -> None:
    answer = send(people, "acme", model="echo", items="x" * (1 << 20))
    assert answer.status_code == 413
    assert not stored(database)


def test_who_may_only_read_and_other_sites_submit_nothing(people: People, database: Engine) -> None:
    form = {"model": "echo", "items": "a"}
    assert people.get("reader", "/jobs/new").status_code == 403
    assert "jobs/new" not in people.get("reader", "/jobs").text
    assert send(people, "reader", **form).status_code == 403
    assert send(people, "acme", site="cross-site", **form).status_code == 403
    for token in ("", "x", people.token("mallory")):
        assert send(people, "acme", token=token, **form).status_code == 403
    assert not stored(database)
    assert 'href="/dashboard/jobs/new"' in people.get("acme", "/jobs").text


def test_the_form_names_the_models_and_their_inputs(people: People) -> None:
    page = people.get("acme", "/jobs/new?model=minilm@1").text
    assert "<option selected>minilm@1</option>" in page
    assert "how do I parse JSON" in page
    assert (
        "<option selected>gone@alias</option>"
        in people.get("acme", "/jobs/new?model=gone@alias").text
    )
