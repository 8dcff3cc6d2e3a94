"""Items of a job as a new job: which, with what terms, whose; and payloads of its own."""

from typing import Any

import httpx
import orjson

from tests.integration.api.conftest import XSS, Jobs, People
from tests.support.cases import each
from tests.support.stores.transactions import execute, fetch, scalar


def ask(people: People, who: str, job_id: str, key: str = "", **terms: Any) -> httpx.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return people.send(who, "POST", f"/jobs/{job_id}/resubmit", headers=headers, json=terms)


def item(people: People, job_id: str, seq: int) -> Any:
    return people.ask("acme", f"/jobs/{job_id}/items/{seq}").json()


def test_all_items_become_a_job_of_same_terms(people: People, jobs: Jobs) -> None:
    old = jobs.post(items=3, priority=-3, params={}, job_class="bulk")
    answer = ask(people, "acme", old)
    assert answer.status_code == 202, answer.text
    new = answer.json()
    assert answer.headers["location"] == f"/jobs/{new['id']}"
    before = people.ask("acme", f"/jobs/{old}").json()
    for name in ("model", "version", "class", "priority", "name", "labels", "params"):
        assert new[name] == before[name]
    assert new["metadata"] == {"note": XSS, "resubmitted_from": old}
    assert new["counts"]["total"] == 3
    for seq in range(3):
        one, other = item(people, old, seq), item(people, new["id"], seq)
        assert (one["custom_id"], one["input"]) == (other["custom_id"], other["input"])
    assert fetch(jobs.database, "SELECT act, target FROM audit") == [("job.resubmit", old)]


def test_items_that_did_not_succeed_become_a_job_of_other_terms(people: People, jobs: Jobs) -> None:
    old = jobs.failed(items=3)
    terms = {"model": "minilm", "params": {"truncate": 64}, "name": "Again", "labels": {}}
    new = ask(people, "acme", old, items="unsuccessful", metadata={"a": "b"}, **terms).json()
    assert new["counts"]["total"] == 1
    assert {name: new[name] for name in terms} == terms
    assert new["metadata"] == {"a": "b", "resubmitted_from": old}
    assert item(people, new["id"], 0)["custom_id"] == item(people, old, 0)["custom_id"]
    assert jobs.state(old) == "completed"


def test_large_inputs_are_payloads_of_the_new_job(people: People) -> None:
    inputs = ["x" * 200_000, "small", "y" * 200_000]
    body = {"model": "echo", "items": inputs}
    old = people.send("acme", "POST", "/jobs", json=body).json()["id"]
    new = ask(people, "acme", old).json()["id"]
    for method, path in (("POST", f"/jobs/{old}/cancel"), ("DELETE", f"/jobs/{old}")):
        assert people.send("acme", method, path).is_success
    assert [item(people, new, seq)["input"] for seq in range(3)] == inputs


def test_a_large_job_is_copied_by_a_process_of_its_own(people: People, jobs: Jobs) -> None:
    old = jobs.post(items=3000)
    new = ask(people, "acme", old).json()
    assert new["counts"]["total"] == 3000
    assert item(people, new["id"], 2999)["custom_id"] == item(people, old, 2999)["custom_id"]


def test_a_request_that_is_repeated_makes_one_job(people: People, jobs: Jobs) -> None:
    old = jobs.post()
    first, again = (ask(people, "acme", old, key="k") for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert ask(people, "acme", old, key="k", name="other").status_code == 422


def test_nobody_else_submits_the_items_of_a_job(people: People, jobs: Jobs) -> None:
    old = jobs.post()
    path = f"/jobs/{old}/resubmit"
    others = {"reader": 403, "mallory": 404, "operator": 403, "admin": 403}
    for (who, status), case in each(others.items()):
        with case:
            assert ask(people, who, old).status_code == status
            assert people.post(who, path, items="all").status_code == status
            if who in ("reader", "mallory"):
                assert people.get(who, path).status_code == status
    assert scalar(jobs.database, "SELECT count(*) FROM jobs") == 1


def test_what_cant_be_resubmitted_is_refused(people: People, jobs: Jobs) -> None:
    running, ended = jobs.post(), jobs.failed()
    for (old, terms, status), case in each(
        [
            (running, {"items": "unsuccessful"}, 409),
            (ended, {"items": "some"}, 422),
            (ended, {"model": "nothing"}, 404),
            (ended, {"params": {"no": 1}}, 422),
            (ended, {"colour": "red"}, 422),
        ]
    ):
        with case:
            assert ask(people, "acme", old, **terms).status_code == status
    execute(jobs.database, "UPDATE jobs SET items_pruned = true")
    assert ask(people, "acme", ended).status_code == 410


def test_the_page_shows_the_terms_and_leads_to_the_new_job(people: People, jobs: Jobs) -> None:
    old = jobs.failed(items=3)
    path = f"/jobs/{old}/resubmit"
    assert f'href="/dashboard{path}"' in people.page("acme", f"/jobs/{old}")
    assert "/resubmit" not in people.page("reader", f"/jobs/{old}")
    page = people.page("acme", path)
    assert "the 1 that did not succeed" in page
    assert "<script>alert" not in page
    terms = {"model": "echo", "class": "standard", "priority": "2", "labels": "run:8", "once": "x"}
    form = {**terms, "items": "unsuccessful", "name": "", "params": "{}"}
    done, again = (people.post("acme", path, **form) for _ in range(2))
    assert done.status_code == 303, done.text
    assert again.headers["location"] == done.headers["location"]
    query = "SELECT name, labels, total, metadata FROM jobs WHERE priority = 2"
    [(name, labels, total, metadata)] = fetch(jobs.database, query)
    assert (name, orjson.loads(labels), total) == (None, {"run": "8"}, 1)
    assert orjson.loads(metadata)["resubmitted_from"] == old
    new = done.headers["location"].removeprefix("/dashboard")
    assert f'href="/dashboard/jobs/{old}"' in people.page("acme", new)
    wrong = people.post("acme", path, **{**form, "params": "[", "priority": "x"})
    assert wrong.status_code == 422
    assert "is no whole number" in wrong.text
    gone = people.post("acme", path, **{**form, "model": "gone"})
    assert gone.status_code == 404
    assert "<h1>Submit its items again</h1>" in gone.text
