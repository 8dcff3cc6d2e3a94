"""The form of a new job: what it makes, what it refuses, and to whom."""

from codecs import BOM_UTF8
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine

from tests.integration.api.conftest import XSS, People
from tests.support.cases import each
from tests.support.stores.transactions import fetch, scalars


def send(
    people: People, who: str, file: tuple[str, bytes] = ("", b""), **form: str
) -> httpx.Response:
    return people.post(who, "/jobs/new", files={"file": file}, **form)


def stored(database: Engine) -> list[Any]:
    query = "SELECT tenant_id, name, labels, class, priority, params, total, state FROM jobs"
    return fetch(database, query)


def inputs(database: Engine) -> list[str]:
    return scalars(database, "SELECT input FROM items ORDER BY seq")


def test_pasted_texts_are_a_job_with_all_its_terms(people: People) -> None:
    terms = {
        "model": "echo", "name": "Nightly", "labels": "team:search, run:7", "class": "bulk",
        "priority": "-3", "items": "one\r\ntwo words\r\n\r\n",
    }  # fmt: skip
    answer = send(people, "acme", **terms)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith("/dashboard/jobs/job_")
    [job] = stored(people.database)
    labels = '{"team":"search","run":"7"}'
    assert job == ("acme", "Nightly", labels, "bulk", -3, "{}", 2, "queued")
    assert inputs(people.database) == ['"one"', '"two words"']


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
    people: People, name: str, content: bytes, found: list[str]
) -> None:
    for n, begun in enumerate((content, BOM_UTF8 + content)):
        answer = send(people, "acme", (name, begun), model="echo", name=f"Job {n}")
        assert answer.status_code == 303, answer.text
    assert sorted(inputs(people.database)) == sorted(found * 2)


def test_a_large_file_is_stored_by_a_process_of_its_own(people: People) -> None:
    lines = b"".join(b'"text %d"\n' % n for n in range(20_000))
    assert send(people, "acme", ("a.jsonl", lines), model="echo").status_code == 303
    assert stored(people.database)[0].total == 20_000


def test_a_form_that_is_sent_twice_makes_one_job(people: People) -> None:
    first, again, other = (
        send(people, "acme", model="echo", items=items, once="x").headers["location"]
        for items in ("one", "one", "two")
    )
    assert first == again != other
    assert len(stored(people.database)) == 2


def test_faults_are_shown_by_line_beside_what_was_pasted(people: People) -> None:
    pasted = f'{{"input": "a"}}\n{{"inputs": "{XSS}"}}\n{{"input": "b"}}\n{{"input"\n'
    terms = {"model": "echo", "labels": "Team:x", "priority": "high", "params": "[1]"}
    answer = send(people, "acme", items=pasted, **terms)
    assert answer.status_code == 422
    for said in (
        "line 2: ", "line 4: ", "labels", "is no whole number", "parameters are a JSON object",
        "{&#34;input&#34;: &#34;b&#34;}", 'value="Team:x"',
    ):  # fmt: skip
        assert said in answer.text
    assert "<script>alert" not in answer.text
    assert not stored(people.database)


def test_what_is_missing_or_wrong_is_said(people: People) -> None:
    none, echo = ("", b""), {"model": "echo"}
    for (form, file, said), case in each(
        [
            (echo, none, "paste the items, or choose a file"),
            (echo | {"items": "a"}, ("b.txt", b"b"), "not both"),
            (echo, ("b.csv", b"a,b"), "millrace submit b.csv"),
            ({"model": "nothing", "items": "a"}, none, "does not exist"),
            ({"items": "a"}, none, "model"),
            (echo | {"items": "a", "class": "urgent"}, none, "class"),
            (echo | {"items": "a", "labels": "x"}, none, "key:value"),
            (echo | {"format": "json", "items": "[1,"}, none, "not valid JSON"),
            (echo | {"format": "text"}, ("x", b"\xff"), "not UTF-8"),
        ]
    ):
        with case:
            answer = send(people, "acme", file, **form)
            assert 400 <= answer.status_code < 500
            assert said in answer.text
            assert "<h1>New job</h1>" in answer.text
            assert file == none or f"Choose <b>{file[0]}</b> again" in answer.text
    assert send(people, "acme", **echo, items="x" * (1 << 20)).status_code == 413
    assert not stored(people.database)


def test_who_may_only_read_and_other_sites_submit_nothing(people: People) -> None:
    form = {"model": "echo", "items": "a"}
    assert people.get("reader", "/jobs/new").status_code == 403
    assert "jobs/new" not in people.page("reader", "/jobs")
    assert send(people, "reader", **form).status_code == 403
    assert send(people, "acme", site="cross-site", **form).status_code == 403
    for token in ("", "x", people.token("mallory")):
        assert send(people, "acme", token=token, **form).status_code == 403
    assert not stored(people.database)
    assert 'href="/dashboard/jobs/new"' in people.page("acme", "/jobs")


def test_the_form_names_the_models_and_their_inputs(people: People) -> None:
    page = people.page("acme", "/jobs/new?model=minilm@1")
    assert "<option selected>minilm@1</option>" in page
    assert "how do I parse JSON" in page
    gone = people.page("acme", "/jobs/new?model=gone@alias")
    assert "<option selected>gone@alias</option>" in gone
