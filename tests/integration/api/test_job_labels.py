"""Names and labels of jobs: how they are given, refused, returned, and searched for."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.app import create_app
from api.middleware.fast_path import FastPath
from jobs.settings import Settings
from tests.support.keys import make_key

NAME, LABELS = "Monday's Reviews", {"team": "search", "run": "a:b=c, d"}
Send = Callable[..., httpx.Response]


@pytest.fixture
def send(settings: Settings, database: Engine) -> Iterator[Send]:
    """Sends a request as acme, or with another key."""
    keys = {
        "acme": make_key(database, tenant="acme")[0],
        "mallory": make_key(database, tenant="mallory")[0],
        "operator": make_key(database, tenant="house", role="operator")[0],
    }
    with TestClient(FastPath(create_app(settings)), raise_server_exceptions=False) as client:

        def send(method: str, path: str, who: str = "acme", **more: Any) -> httpx.Response:
            headers = {"Authorization": f"Bearer {keys[who]}", **more.pop("headers", {})}
            found: httpx.Response = client.request(method, path, headers=headers, **more)
            return found

        yield send


def submit(send: Send, items: int = 1, **fields: Any) -> dict[str, Any]:
    answer = send("POST", "/jobs", json={"model": "echo", "items": ["x"] * items, **fields})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def found(send: Send, query: str, who: str = "acme") -> list[str]:
    answer = send("GET", f"/jobs?{query}", who)
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["data"]]


@pytest.mark.parametrize("items", [1, 100])
def test_they_are_returned_as_they_were_given(send: Send, items: int) -> None:
    job = submit(send, items, name=NAME, labels=LABELS)
    assert (job["name"], job["labels"]) == (NAME, LABELS)
    assert send("GET", f"/jobs/{job['id']}").json() | {"progress": 0} == job | {"progress": 0}
    [listed] = send("GET", "/jobs").json()["data"]
    assert (listed["name"], listed["labels"]) == (NAME, LABELS)


def test_a_job_may_have_neither(send: Send) -> None:
    for fields in ({}, {"name": None, "labels": {}}):
        job = submit(send, **fields)
        assert (job["name"], job["labels"]) == (None, {})


def test_with_lines_they_are_query_parameters(send: Send) -> None:
    query = f"model=echo&name={quote(NAME)}&labels={quote(orjson.dumps(LABELS).decode())}"
    ndjson = {"Content-Type": "application/x-ndjson"}
    job = send("POST", f"/jobs?{query}", content=b'"x"\n', headers=ndjson).json()
    assert (job["name"], job["labels"]) == (NAME, LABELS)
    broken = send("POST", "/jobs?model=echo&labels=x", content=b'"x"\n', headers=ndjson)
    assert broken.status_code == 422
    assert broken.json()["errors"][0]["loc"] == ["labels"]


@pytest.mark.parametrize(
    ("fields", "loc"),
    [
        ({"name": "a" * 201}, ["name"]),
        ({"name": ""}, ["name"]),
        ({"name": "a\nb"}, ["name"]),
        ({"name": 5}, ["name"]),
        ({"labels": ["team"]}, ["labels"]),
        ({"labels": {f"k{n}": "v" for n in range(17)}}, ["labels"]),
        ({"labels": {"Team": "x"}}, ["labels", "Team", "[key]"]),
        ({"labels": {"-team": "x"}}, ["labels", "-team", "[key]"]),
        ({"labels": {"k" * 64: "x"}}, ["labels", "k" * 64, "[key]"]),
        ({"labels": {"team": "x" * 129}}, ["labels", "team"]),
        ({"labels": {"team": "a\u001b[2J"}}, ["labels", "team"]),
        ({"labels": {"team": 1}}, ["labels", "team"]),
    ],
)
def test_others_are_refused_if_wrong(send: Send, fields: dict[str, Any], loc: list[str]) -> None:
    answer = send("POST", "/jobs", json={"model": "echo", "items": ["x"], **fields})
    assert answer.status_code == 422
    assert [one["loc"] for one in answer.json()["errors"]] == [loc]
    assert found(send, "") == []


def test_the_longest_are_taken_and_found(send: Send) -> None:
    labels = {f"k{n:061}k": "ü" * 128 for n in range(16)}
    id = submit(send, name="ü" * 200, labels=labels)["id"]
    key, value = labels.popitem()
    assert found(send, f"label={key}:{quote(value)}&name={quote('Ü' * 200)}") == [id]


def test_jobs_are_found_by_all_of_some_labels_and_a_part_of_the_name(send: Send) -> None:
    both = submit(send, name="Nightly 100%", labels={"team": "search", "stage": "prod"})["id"]
    one = submit(send, name="nightly 100", labels={"team": "search"})["id"]
    submit(send, labels={"team": "mail"})
    assert found(send, "label=team:search") == [one, both]
    assert found(send, "label=team:search&label=stage:prod") == [both]
    assert found(send, "label=team:search&label=team:mail") == []
    assert found(send, "label=team:") == []
    assert found(send, "name=NIGHT") == [one, both]
    assert found(send, "name=100%25&label=team:search") == [both]
    assert found(send, "label=team:search&state=completed") == []


def test_a_value_with_colons_is_found(send: Send) -> None:
    id = submit(send, labels=LABELS)["id"]
    assert found(send, f"label={quote('run:a:b=c, d')}") == [id]


def test_pages_of_a_label_have_each_job_once(send: Send) -> None:
    made = [submit(send, labels={"n": "odd" if n % 2 else "even"})["id"] for n in range(8)]
    pages, query = [], "label=n:even&limit=3"
    while True:
        page = send("GET", f"/jobs?{query}").json()
        pages.append([job["id"] for job in page["data"]])
        if not page["next"]:
            break
        query = f"label=n:even&limit=3&after={page['next']}"
    assert pages == [made[6:1:-2], made[:1]]


@pytest.mark.parametrize("label", ["team", "Team:x", ":x", "team:a%00b", f"team:{'x' * 129}", ""])
def test_what_is_no_label_is_refused(send: Send, label: str) -> None:
    assert send("GET", f"/jobs?label={label}").status_code == 422


def test_nobody_finds_what_is_anothers(send: Send) -> None:
    id = submit(send, name=NAME, labels=LABELS)["id"]
    for query in ("label=team:search", "name=monday"):
        assert found(send, query, "mallory") == []
        assert found(send, query, "operator") == []
        assert found(send, f"{query}&tenant=*", "operator") == [id]
        assert found(send, f"{query}&tenant=acme", "operator") == [id]


def test_other_labels_under_an_idempotency_key_are_another_request(send: Send) -> None:
    headers = {"Idempotency-Key": '"mine"'}

    def post(**fields: Any) -> httpx.Response:
        body = {"model": "echo", "items": ["x"], **fields}
        return send("POST", "/jobs", json=body, headers=headers)

    first = post(name=NAME, labels=LABELS)
    assert post(name=NAME, labels=LABELS).content == first.content
    for other in ({}, {"name": NAME}, {"name": NAME, "labels": {"team": "mail"}}):
        refused = post(**other)
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
