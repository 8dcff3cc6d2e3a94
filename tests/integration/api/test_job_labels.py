"""Names and labels of jobs: how they are given, refused, returned, and searched for."""

from typing import Any
from urllib.parse import quote

import httpx
import orjson
import pytest

from tests.integration.api.conftest import People
from tests.support.cases import each

NAME, LABELS = "Monday's Reviews", {"team": "search", "run": "a:b=c, d"}


def post(people: People, items: int = 1, key: str = "", **fields: Any) -> httpx.Response:
    body = {"model": "echo", "items": ["x"] * items, **fields}
    headers = {"Idempotency-Key": key} if key else {}
    return people.send("acme", "POST", "/jobs", json=body, headers=headers)


def submit(people: People, items: int = 1, **fields: Any) -> dict[str, Any]:
    answer = post(people, items, **fields)
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    return found


def found(people: People, query: str, who: str = "acme") -> list[str]:
    answer = people.ask(who, f"/jobs?{query}")
    assert answer.status_code == 200, answer.text
    return [job["id"] for job in answer.json()["data"]]


@pytest.mark.parametrize("items", [1, 100])
def test_they_are_returned_as_they_were_given(people: People, items: int) -> None:
    job = submit(people, items, name=NAME, labels=LABELS)
    again = people.ask("acme", f"/jobs/{job['id']}").json()
    [listed] = people.ask("acme", "/jobs").json()["data"]
    assert again | {"progress": 0} == job | {"progress": 0}
    for one in (job, listed):
        assert (one["name"], one["labels"]) == (NAME, LABELS)


def test_a_job_may_have_neither(people: People) -> None:
    for fields in ({}, {"name": None, "labels": {}}):
        job = submit(people, **fields)
        assert (job["name"], job["labels"]) == (None, {})


def test_with_lines_they_are_query_parameters(people: People) -> None:
    lines: Any = {"content": b'"x"\n', "headers": {"Content-Type": "application/x-ndjson"}}
    query = f"name={quote(NAME)}&labels={quote(orjson.dumps(LABELS).decode())}"
    job = people.send("acme", "POST", f"/jobs?model=echo&{query}", **lines).json()
    assert (job["name"], job["labels"]) == (NAME, LABELS)
    broken = people.send("acme", "POST", "/jobs?model=echo&labels=x", **lines)
    assert broken.status_code == 422
    assert broken.json()["errors"][0]["loc"] == ["labels"]


def test_others_are_refused_if_wrong(people: People) -> None:
    names = ("a" * 201, "", "a\nb", 5)
    keys = ("Team", "-team", "k" * 64)
    values = ("x" * 129, "a\u001b[2J", 1)
    cases: list[tuple[Any, list[str]]] = [
        *(({"name": name}, ["name"]) for name in names),
        *(({"labels": {key: "x"}}, ["labels", key, "[key]"]) for key in keys),
        ({"labels": ["team"]}, ["labels"]),
        ({"labels": {f"k{n}": "v" for n in range(17)}}, ["labels"]),
        *(({"labels": {"team": value}}, ["labels", "team"]) for value in values),
    ]
    for (fields, loc), case in each(cases):
        with case:
            answer = post(people, **fields)
            assert answer.status_code == 422
            assert [one["loc"] for one in answer.json()["errors"]] == [loc]
    assert found(people, "") == []


def test_the_longest_are_taken_and_found(people: People) -> None:
    labels = {f"k{n:061}k": "ü" * 128 for n in range(16)}
    id = submit(people, name="ü" * 200, labels=labels)["id"]
    key, value = labels.popitem()
    assert found(people, f"label={key}:{quote(value)}&name={quote('Ü' * 200)}") == [id]


def test_jobs_are_found_by_all_of_some_labels_and_a_part_of_the_name(people: People) -> None:
    both = submit(people, name="Nightly 100%", labels={"team": "search", "stage": "prod"})["id"]
    one = submit(people, name="nightly 100", labels={"team": "search"})["id"]
    colons = submit(people, labels={**LABELS, "team": "mail"})["id"]
    for (query, ids), case in each(
        [
            ("label=team:search", [one, both]),
            ("label=team:search&label=stage:prod", [both]),
            ("label=team:search&label=team:mail", []),
            ("label=team:", []),
            ("name=NIGHT", [one, both]),
            ("name=100%25&label=team:search", [both]),
            ("label=team:search&state=completed", []),
            (f"label={quote('run:a:b=c, d')}", [colons]),
        ]
    ):
        with case:
            assert found(people, query) == ids


def test_pages_of_a_label_have_each_job_once(people: People) -> None:
    made = [submit(people, labels={"n": "odd" if n % 2 else "even"})["id"] for n in range(8)]
    pages, after = [], ""
    while after is not None:
        page = people.ask("acme", f"/jobs?label=n:even&limit=3{after and f'&after={after}'}").json()
        pages.append([job["id"] for job in page["data"]])
        after = page["next"]
    assert pages == [made[6:1:-2], made[:1]]


@pytest.mark.parametrize("label", ["team", "Team:x", ":x", "team:a%00b", f"team:{'x' * 129}", ""])
def test_what_is_no_label_is_refused(people: People, label: str) -> None:
    assert people.ask("acme", f"/jobs?label={label}").status_code == 422


def test_nobody_finds_what_is_anothers(people: People) -> None:
    id = submit(people, name=NAME, labels=LABELS)["id"]
    for query in ("label=team:search", "name=monday"):
        assert found(people, query, "mallory") == found(people, query, "operator") == []
        for tenant in ("*", "acme"):
            assert found(people, f"{query}&tenant={tenant}", "operator") == [id]


def test_other_labels_under_an_idempotency_key_are_another_request(people: People) -> None:
    first, again = (post(people, key='"mine"', name=NAME, labels=LABELS) for _ in range(2))
    assert again.content == first.content
    for other in ({}, {"name": NAME}, {"name": NAME, "labels": {"team": "mail"}}):
        refused = post(people, key='"mine"', **other)
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
