"""Items of a job as a new job: which, with what terms, whose; and payloads of its own."""

from typing import Any

import httpx
import orjson
import pytest
from sqlalchemy import Engine, text

from tests.integration.api.dashboard.conftest import XSS, Jobs, People
from tests.support.stores.transactions import execute, fetch, scalar


def ask(people: People, who: str, job_id: str, key: str = "", **terms: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {people.keys[who]}"}
    if key:
        headers["Idempotency-Key"] = key
    found: httpx.Response = people.client.post(
        f"/jobs/{job_id}/resubmit", headers=headers, json=terms
    )
    return found


def item(people: People, job_id: str, seq: int) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {people.keys['acme']}"}
    found: dict[str, Any] = people.client.get(f"/jobs/{job_id}/items/{seq}", headers=headers).json()
    return found


def test_all_items_become_a_job_of_same_terms(people: People, jobs: Jobs, database: Engine) -> None:
    old = jobs.post(items=3, priority=-3, params={}, job_class="bulk")
    answer = ask(people, "acme", old)
    assert answer.status_code == 202, answer.text
    new = answer.json()
    assert answer.headers["location"] == f"/jobs/{new['id']}"
    for name in ("model", "version", "class", "priority", "name", "labels", "params"):
        headers = {"Authorization": f"Bearer {people.keys['acme']}"}
        assert new[name] == people.client.get(f"/jobs/{old}", headers=headers).json()[name]
    assert new["metadata"] == {"note": XSS, "resubmitted_from": old}
    assert new["counts"]["total"] == 3
    for seq in range(3):
        one, other = item(people, old, seq), item(people, new["id"], seq)
        assert (one["custom_id"], one["input"]) == (other["custom_id"], other["input"])
    noted = fetch(database, "SELECT act, target FROM audit")
    assert [tuple(row) for row in noted] == [("job.resubmit", old)]


def test_items_that_did_not_succeed_become_a_job_of_other_terms(people: People, jobs: Jobs) -> None:
    old = jobs.failed(items=3)
    terms = {"model": "minilm", "params": {"truncate": 64}, "name": "Again", "labels": {}}
    new = ask(people, "acme", old, items="unsuccessful", metadata={"a": "b"}, **terms).json()
    assert new["counts"]["total"] == 1
    assert (new["model"], new["params"], new["name"]) == ("minilm", {"truncate": 64}, "Again")
    assert new["labels"] == {}
    assert new["metadata"] == {"a": "b", "resubmitted_from": old}
    assert item(people, new["id"], 0)["custom_id"] == item(people, old, 0)["custom_id"]
    assert jobs.state(old) == "completed"


def test_large_inputs_are_payloads_of_the_new_job(people: People) -> None:
    headers = {"Authorization": f"Bearer {people.keys['acme']}"}
    inputs = ["x" * 200_000, "small", "y" * 200_000]
    body = {"model": "echo", "items": inputs}
    old = people.client.post("/jobs", headers=headers, json=body).json()["id"]
    new = ask(people, "acme", old).json()["id"]
    for method, path in (("POST", f"/jobs/{old}/cancel"), ("DELETE", f"/jobs/{old}")):
        assert people.client.request(method, path, headers=headers).is_success
    assert [item(people, new, seq)["input"] for seq in range(3)] == inputs


def test_a_large_job_is_copied_by_a_process_of_its_own(people: People, jobs: Jobs) -> None:
    old = jobs.post(items=3000)
    answer = ask(people, "acme", old)
    assert answer.status_code == 202, answer.text
    assert answer.json()["counts"]["total"] == 3000
    new = answer.json()["id"]
    assert item(people, new, 2999)["custom_id"] == item(people, old, 2999)["custom_id"]


def test_a_request_that_is_repeated_makes_one_job(people: People, jobs: Jobs) -> None:
    old = jobs.post()
    first, again = (ask(people, "acme", old, key="k") for _ in range(2))
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    assert ask(people, "acme", old, key="k", name="other").status_code == 422


@pytest.mark.parametrize(
    ("who", "status"), [("reader", 403), ("mallory", 404), ("operator", 403), ("admin", 403)]
)
def test_nobody_else_submits_the_items_of_a_job(
    people: People, jobs: Jobs, database: Engine, who: str, status: int
) -> None:
    old = jobs.post()
    assert ask(people, who, old).status_code == status
    assert people.post(who, f"/jobs/{old}/resubmit", items="all").status_code == status
    if who != "operator" and who != "admin":
        assert people.get(who, f"/jobs/{old}/resubmit").status_code == status
    assert scalar(database, "SELECT count(*) FROM jobs") == 1


def test_what_cant_be_resubmitted_is_refused(people: People, jobs: Jobs, database: Engine) -> None:
    running, ended = jobs.post(), jobs.failed()
    assert ask(people, "acme", running, items="unsuccessful").status_code == 409
    assert ask(people, "acme", ended, items="some").status_code == 422
    assert ask(people, "acme", ended, model="nothing").status_code == 404
    assert ask(people, "acme", ended, params={"no": 1}).status_code == 422
    assert ask(people, "acme", ended, colour="red").status_code == 422
    execute(database, "UPDATE jobs SET items_pruned = true")
    assert ask(people, "acme", ended).status_code == 410


def test_the_page_shows_the_terms_and_leads_to_the_new_job(
    people: People, jobs: Jobs, database: Engine
) -> None:
    old = jobs.failed(items=3)
    assert f'href="/dashboard/jobs/{old}/resubmit"' in people.get("acme", f"/jobs/{old}").text
    assert "/resubmit" not in people.get("reader", f"/jobs/{old}").text
    page = people.get("acme", f"/jobs/{old}/resubmit").text
    assert "the 1 that did not succeed" in page
    assert "<script>alert" not in page
    terms = {"model": "echo", "class": "standard", "priority": "2", "labels": "run:8", "once": "x"}
    form = {**terms, "items": "unsuccessful", "name": "", "params": "{}"}
    done = people.post("acme", f"/jobs/{old}/resubmit", **form)
    assert done.status_code == 303, done.text
    new = done.headers["location"].rpartition("/")[2]
    again = people.post("acme", f"/jobs/{old}/resubmit", **form)
    assert again.headers["location"] == done.headers["location"]
    with database.connect() as tx:
        query = "SELECT name, labels, priority, total, metadata FROM jobs WHERE priority = 2"
        [(name, labels, _, total, metadata)] = tx.execute(text(query))
    assert (name, orjson.loads(labels), total) == (None, {"run": "8"}, 1)
    assert orjson.loads(metadata)["resubmitted_from"] == old
    assert f'href="/dashboard/jobs/{old}"' in people.get("acme", f"/jobs/{new}").text
    wrong = people.post("acme", f"/jobs/{old}/resubmit", **{**form, "params": "[", "priority": "x"})
    assert wrong.status_code == 422
    assert "is no whole number" in wrong.text
    gone = people.post("acme", f"/jobs/{old}/resubmit", **{**form, "model": "gone"})
    assert gone.status_code == 404
    assert "<h1>Submit its items again</h1>" in gone.text
