"""Jobs over HTTP: what comes back, in which order, what is refused, and the end of a job's life."""

import json
import socket
from operator import itemgetter
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from jobs import ids
from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.children import second_api
from tests.support.clients import events
from tests.support.jobs import paused, scalar_of
from tests.support.platforms import OPEN, transaction
from tests.support.wait import Deadline, eventually

NDJSON = {"Content-Type": "application/x-ndjson"}
PLATFORM = OPEN


def results(client: Client, job: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    return list(client.jobs.results(job["id"], wait=False, **query))


def stored(http: httpx.Client) -> set[str]:
    """Ids of the latest jobs."""
    return {job["id"] for job in http.get("/jobs", params={"limit": 500}).json()["data"]}


def test_a_json_job_comes_back_whole_and_in_order(client: Client, http: httpx.Client) -> None:
    items = ["plain", {"custom_id": "b", "input": {"any": ["json", 1.5, None]}}, {"input": 7}]
    terms = {"metadata": {"who": "test"}, "class": "bulk", "priority": -3}
    posted = http.post("/jobs", json={"model": "echo@1", "items": items, **terms})
    assert posted.status_code == 202
    job = posted.json()
    assert posted.headers["location"] == f"/jobs/{job['id']}"
    done = client.jobs.wait(job["id"])
    assert (done["state"], done["class"], done["priority"]) == ("completed", "bulk", -3)
    assert done["metadata"] == {"who": "test"}
    assert done["counts"] == {
        "total": 3, "pending": 0, "running": 0,
        "succeeded": 3, "failed": 0, "cancelled": 0, "expired": 0,
    }  # fmt: skip
    found = results(client, job)
    assert [line["output"] for line in found] == ["plain", {"any": ["json", 1.5, None]}, 7]
    assert [line["custom_id"] for line in found] == [None, "b", None]
    assert found[0]["usage"] == {"characters": 5}


def test_results_are_read_by_pages_while_the_job_runs(client: Client, http: httpx.Client) -> None:
    job = client.jobs.submit("batchstring", (b'"t%d"\n' % n for n in range(2500)))
    found: list[dict[str, Any]] = []
    after, complete, reads = -1, "false", 0
    while complete == "false":
        page = {"after": after, "limit": 1000}
        answer = http.get(f"/jobs/{job['id']}/results", params=page)
        lines = answer.text.splitlines()
        found += map(json.loads, lines)
        reads += bool(lines)
        after, complete = int(answer.headers["x-next-after"]), answer.headers["x-complete"]
        assert answer.headers["x-generation"] == "1"
        assert after == (found[-1]["seq"] if found else -1)
    assert reads > 1
    assert [line["output"] for line in found] == [f"T{n}" for n in range(2500)]


def test_an_item_tells_which_launch_it_was_in(client: Client, http: httpx.Client) -> None:
    job = client.jobs.submit("batchstring", [b'"x"\n', b'"y"\n'])
    client.jobs.wait(job["id"])
    item = http.get(f"/jobs/{job['id']}/items/1").json()
    assert (item["input"], item["output"], item["outcome"]) == ("y", "Y", "succeeded")
    assert item["launch"]["items"] >= 2  # a launch may hold items of other jobs too
    assert item["timing"]["engine_ms"] >= 99
    assert (item["attempts"], item["deliveries"]) == (1, 1)
    assert http.get(f"/jobs/{job['id']}/items/2").status_code == 404


def test_jobs_are_listed_newest_first_by_pages(client: Client, http: httpx.Client) -> None:
    made = [client.jobs.submit("echo", [b'"x"\n'])["id"] for _ in range(3)]
    first = http.get("/jobs", params={"limit": 2, "model": "echo"}).json()
    assert [job["id"] for job in first["data"]] == [made[2], made[1]]
    rest = http.get("/jobs", params={"limit": 1, "after": first["next"]}).json()
    assert rest["data"][0]["id"] == made[0]
    for id in made:
        client.jobs.wait(id)
    states = {job["state"] for job in http.get("/jobs?state=completed").json()["data"]}
    assert states == {"completed"}


def test_a_cancelled_job_ends_and_keeps_its_results(client: Client, http: httpx.Client) -> None:
    job = client.jobs.submit("batchstring", (b'"x"\n' for _ in range(20_000)))
    before = eventually(lambda: client.jobs.get(job["id"])["counts"]["succeeded"])
    assert http.post(f"/jobs/{job['id']}/cancel").status_code == 200
    done = client.jobs.wait(job["id"])
    assert done["state"] == "cancelled"
    assert done["counts"]["succeeded"] >= before
    assert done["counts"]["succeeded"] + done["counts"]["cancelled"] == 20_000
    assert len(results(client, job)) == 20_000
    assert http.post(f"/jobs/{job['id']}/cancel").json()["state"] == "cancelled"
    retried = http.post(f"/jobs/{job['id']}/retry").json()
    assert retried["generation"] == 2
    assert retried["state"] in ("queued", "running")
    assert http.get(f"/jobs/{job['id']}/results").headers["x-generation"] == "2"
    http.post(f"/jobs/{job['id']}/cancel")


def test_a_paused_job_rests_until_it_is_resumed(client: Client, http: httpx.Client) -> None:
    job = paused(http, "batchstring", ["x"] * 6000)
    assert client.jobs.get(job)["state"] == "paused"
    eventually(lambda: client.jobs.get(job)["counts"]["running"] == 0)
    assert client.jobs.get(job)["counts"]["succeeded"] < 6000
    http.post(f"/jobs/{job}/resume")
    assert client.jobs.wait(job)["counts"]["succeeded"] == 6000


def test_an_item_that_the_model_rejects_fails_alone(client: Client, http: httpx.Client) -> None:
    items = ["one", 2, "three", {"input": {"a": 1}}]
    body = {"model": "batchstring", "items": items, "on_invalid": "fail_item"}
    job = http.post("/jobs", json=body).json()
    done = client.jobs.wait(job["id"])
    assert (done.state, done.counts.succeeded, done.counts.failed) == ("completed", 2, 2)
    found = results(client, job)
    assert [line["outcome"] for line in found] == ["succeeded", "failed", "succeeded", "failed"]
    assert found[1]["error"]["code"] == "invalid_input"
    assert [line["seq"] for line in results(client, job, outcome="failed")] == [1, 3]


TWICE = [{"custom_id": "a", "input": 1}, {"custom_id": "a", "input": 2}]


@pytest.mark.parametrize(
    ("change", "places"),
    [
        ({"model": None}, [["model"]]),
        ({"items": []}, [["items"]]),
        ({"items": None}, [["items"]]),
        ({"items": "x"}, [["items"], ["items"]]),
        ({"model": "minilm", "items": ["x", 1, [None]]}, [["items", 1], ["items", 2]]),
        ({"items": TWICE}, [["items", 1, "custom_id"]]),
        ({"items": ["a\0"]}, [["items", 0]]),
        ({"items": ["y" * 300_000]}, [["items", 0]]),
        ({"items": [{"custom_id": 5}]}, [["items", 0, "custom_id"], ["items", 0, "input"]]),
        ({"priority": 101, "class": "vip"}, [["class"], ["priority"]]),
        ({"webhook": {"url": "ftp://x"}}, [["webhook", "url"]]),
        ({"metadata": {"a": 1}}, [["metadata", "a"]]),
        ({"params": {"no": 1}}, [["params"]]),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_stored(
    http: httpx.Client, change: dict[str, Any], places: list[list[Any]]
) -> None:
    before = stored(http)
    body = {"model": "echo", "items": ["x"]} | change
    answer = http.post("/jobs", json={key: value for key, value in body.items() if value})
    problem = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, problem["code"], problem["status"]) == (422, "invalid", 422)
    assert sorted(fault["loc"] for fault in problem["errors"]) == places
    assert stored(http) <= before


@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b'"ok"\n{"input": 1', [2]),
        (b'"ok"\n"\\u0000"\n"\\ud800"\n\n[1,\n', [2, 3, 4, 5]),
        (b'{"custom_id":"a","input":1}\n"x"\n{"custom_id":"a","input":1}\n', [3]),
        (b"\xff\xfe\n", [1]),
        (b'"' + b"x" * 300_000 + b'"\n', [1]),
    ],
)
def test_faults_in_lines_are_named(http: httpx.Client, raw: bytes, lines: list[int]) -> None:
    before = stored(http)
    answer = http.post("/jobs", params={"model": "echo"}, content=raw, headers=NDJSON)
    assert answer.status_code == 422
    assert [fault["line"] for fault in answer.json()["errors"]] == lines
    assert stored(http) <= before


def test_a_truncated_stream_stores_nothing(http: httpx.Client, platform: Platform) -> None:
    before = stored(http)
    for head in (b"Content-Length: 1000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n"):
        head = b"Host: localhost\r\nContent-Type: application/x-ndjson\r\n" + head
        with socket.create_connection((platform.settings.host, platform.settings.port)) as raw:
            raw.sendall(b"POST /jobs?model=echo HTTP/1.1\r\n" + head + b'"one"\n"two"\n"thr')
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    assert http.get("/livez").status_code == 200
    assert stored(http) <= before


LARGE = {"json": {"model": "echo", "items": ["x" * 1000] * 1100}}
TEXT = {"content": b"x", "headers": {"Content-Type": "text/plain"}}
#: A request, and the status, code and words of its refusal.
REFUSED: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("POST /jobs", {"json": {"model": "nobody", "items": ["x"]}}, 404, "unknown_model", "minilm@1"),
    ("POST /jobs", {"json": ["x"]}, 400, "malformed", ""),
    ("POST /jobs", LARGE, 413, "too_large", ""),
    ("POST /jobs", TEXT, 415, "unsupported_media_type", ""),
    ("GET /jobs", {"params": {"model": "a\0"}}, 422, "invalid", ""),
    ("PUT /jobs", {}, 405, "method_not_allowed", "'/jobs' takes GET, POST, not PUT"),
    ("GET /jobs/job_01h455vb4pex5vsknk084sn02q", {}, 404, "not_found", "there is no job"),
    ("GET /jobs/" + "nonsense" * 50, {}, 422, "invalid", "…' is no id; one begins with job_"),
]


def test_a_request_that_can_not_be_is_refused_in_few_words(http: httpx.Client) -> None:
    for (request, sent, *expected, words), case in each(REFUSED, name=itemgetter(3)):
        with case:
            answer = http.request(*request.split(), **sent)
            assert [answer.status_code, answer.json()["code"]] == expected
            assert answer.headers["content-type"] == "application/problem+json"
            assert words in answer.json()["detail"]
            assert len(answer.json()["detail"]) < 250
    assert http.put("/jobs").headers["allow"] == "GET, POST"


def test_what_is_no_route_of_openais_is_told_so(http: httpx.Client) -> None:
    missing = http.post("/v1/nonsense", json={}).json()["error"]
    assert missing["message"].startswith("there is no POST '/v1/nonsense' here")
    assert missing["code"] == "no_such_route"


def test_events_follow_a_job_to_its_end_alone(client: Client, http: httpx.Client) -> None:
    job = paused(http, "batchstring", ["x"] * 1500)
    path = f"/jobs/{job}/events"
    with http.stream("GET", path, headers={"Last-Event-ID": "any"}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = events(answer.iter_lines())
        seen = [next(found)]
        http.post(f"/jobs/{job}/resume")
        seen += found
    assert seen[-1].data["state"] == "completed"
    assert len({event.id for event in seen}) == len(seen) > 1
    counts = [event.data["counts"]["succeeded"] for event in seen]
    assert counts == sorted(counts)
    assert http.get(path, headers={"Last-Event-ID": seen[-1].id}).status_code == 204
    with http.stream("GET", path, headers={"Last-Event-ID": seen[0].id}) as answer:
        assert [id for id, *_ in events(answer.iter_lines())] == [seen[-1].id]


def test_an_ended_job_is_deleted(client: Client, http: httpx.Client, platform: Platform) -> None:
    job = client.jobs.submit("batchstring", (b'"x"\n' for _ in range(20_000)))
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
    tables = ("items", "results", "deletions")
    rows = " UNION ALL ".join(f"SELECT FROM {table} WHERE job_id = :job" for table in tables)
    eventually(lambda: not scalar_of(platform, job.id, f"SELECT count(*) FROM ({rows}) AS rows"))


def test_an_open_stream_does_not_hold_up_the_end_of_its_api(
    client: Client, http: httpx.Client, platform: Platform
) -> None:
    job = paused(http, "batchstring", ["x"] * 2500)
    with second_api(platform) as other, httpx.Client(base_url=other.name) as second:
        with second.stream("GET", f"/jobs/{job}/events") as answer:
            seen = events(answer.iter_lines())
            next(seen)
            other.terminate()
            soon = Deadline(8)  # not the 10 s that requests in hand may take
            list(seen)
        assert other.process is not None
        assert other.process.wait() == 0
        soon.check("the end of the api")
    http.post(f"/jobs/{job}/cancel")


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
