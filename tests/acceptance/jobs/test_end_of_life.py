"""The end of a job's life over HTTP: its progress to the end, deletion, retention."""

import json

import httpx
import pytest
from sqlalchemy import text

from jobs import ids
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import second_api
from tests.support.clients import events
from tests.support.command_line import run_millrace
from tests.support.jobs import scalar_of
from tests.support.platforms import OPEN, transaction
from tests.support.wait import Deadline, eventually

PLATFORM = OPEN


def test_events_follow_a_job_to_its_end_and_then_there_are_none(
    client: Client, http: httpx.Client
) -> None:
    job = client.jobs.submit("batchstring", (b'"t%d"\n' % n for n in range(1500)))
    path = f"/jobs/{job['id']}/events"
    with http.stream("GET", path, headers={"Last-Event-ID": "any"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        seen = list(events(answer.iter_lines()))
    assert seen[-1].data["state"] == "completed"
    assert len({event.id for event in seen}) == len(seen) > 1
    counts = [event.data["counts"]["succeeded"] for event in seen]
    assert counts == sorted(counts)
    assert http.get(path, headers={"Last-Event-ID": seen[-1].id}).status_code == 204
    with http.stream("GET", path, headers={"Last-Event-ID": seen[0].id}) as answer:
        assert [id for id, *_ in events(answer.iter_lines())] == [seen[-1].id]


def test_a_job_is_deleted_once_it_has_ended(
    client: Client, http: httpx.Client, platform: Platform
) -> None:
    job = client.jobs.submit("batchstring", (b'"t%d"\n' % n for n in range(2500)))
    refused = http.delete(f"/jobs/{job['id']}")
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "cancel it first" in refused.json()["detail"]
    http.post(f"/jobs/{job['id']}/cancel")
    client.jobs.wait(job["id"])
    deleted = http.delete(f"/jobs/{job['id']}")
    assert (deleted.status_code, deleted.content) == (204, b"")
    assert http.delete(f"/jobs/{job['id']}").status_code == 404
    for rest in ("", "/results", "/items/0", "/events"):
        assert http.get(f"/jobs/{job['id']}{rest}").status_code == 404
    eventually(lambda: not scalar_of(platform, job.id, _ROWS))


_ROWS = "SELECT count(*) FROM ({}) AS rows".format(
    " UNION ALL ".join(
        f"SELECT job_id FROM {table} WHERE job_id = :job"
        for table in ("items", "results", "deletions")
    )
)


def test_the_command_deletes(client: Client, platform: Platform) -> None:
    job = client.jobs.submit("echo", [b'"x"\n'])
    client.jobs.wait(job["id"])
    delete = "delete", job["id"], "--url", platform.url
    done = run_millrace(*delete, "--json")
    assert json.loads(done.stdout) == {"id": job["id"], "deleted": True}
    assert "there is no job" in run_millrace(*delete, status=1).stderr


def test_an_open_stream_does_not_hold_up_the_end_of_its_api(
    client: Client, http: httpx.Client, platform: Platform
) -> None:
    job = client.jobs.submit("batchstring", [b'"x"\n'] * 2500)
    http.post(f"/jobs/{job['id']}/pause")
    with second_api(platform) as other, httpx.Client(base_url=other.name) as second:
        with second.stream("GET", f"/jobs/{job['id']}/events") as answer:
            seen = events(answer.iter_lines())
            next(seen)
            other.terminate()
            soon = Deadline(8)  # not the 10 s that requests in hand may take
            list(seen)
        assert other.process is not None
        assert other.process.wait() == 0
        soon.check("the end of the api")
    http.post(f"/jobs/{job['id']}/cancel")


@pytest.mark.parametrize(
    ("kind", "results"), [("items", 200), ("results", 410)], ids=["items", "results"]
)
def test_what_is_pruned_is_gone_and_says_so(
    client: Client, http: httpx.Client, platform: Platform, kind: str, results: int
) -> None:
    job = client.jobs.submit("echo", [b'"x"\n'])
    client.jobs.wait(job["id"])
    _fail_and_prune(platform, job["id"], kind)
    assert http.get(f"/jobs/{job['id']}/results").status_code == results
    item = http.get(f"/jobs/{job['id']}/items/0")
    assert (item.status_code, item.json()["code"]) == (410, "pruned")
    assert f"the {kind} of this job" in item.json()["detail"]
    retried = http.post(f"/jobs/{job['id']}/retry")
    assert (retried.status_code, retried.json()["code"]) == (409, "conflict")
    assert http.get(f"/jobs/{job['id']}").status_code == 200


def _fail_and_prune(platform: Platform, job: str, kind: str) -> None:
    with transaction(platform) as tx:
        for change in (
            f"UPDATE jobs SET {kind}_pruned = true WHERE id = :job",
            "UPDATE slices SET n_failed = 1 WHERE job_id = :job",
        ):
            tx.execute(text(change), {"job": ids.parse("job", job)})
