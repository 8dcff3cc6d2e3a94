"""Jobs that come from files and S3 and are written to them, while keepers die."""

import gzip
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import orjson
import psutil
import pytest

from ops.supervisor.platform import Platform
from tests.support.children import kill_and_replace, pid_of
from tests.support.jobs import assert_invariants, scalar_of
from tests.support.models.entries import model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.servers.receiver import Receiver
from tests.support.stores.s3 import BUCKET, S3
from tests.support.wait import PATIENCE_S, eventually, gone

pytestmark = pytest.mark.nightly
MODELS = model("echo", "echo")
IN, OUT = f"s3://{BUCKET}/default/in", f"s3://{BUCKET}/default/out"


@pytest.fixture(scope="module")
def platform(platforms: Platforms, s3: S3) -> Iterator[Platform]:
    asked = spec(
        MODELS, lease_s=2.0 * pace(), webhook_allow="127.0.0.1", s3_allow=f"{BUCKET}/{{tenant}}"
    )
    with platforms.running(asked, s3_endpoint=s3.endpoint) as started:
        yield started


def submitted(http: httpx.Client, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = http.post("/jobs", json={"model": "echo", **asked}).json()
    assert "id" in found, found
    return found


def ended(http: httpx.Client, id: str) -> dict[str, Any]:
    """The job, once it has ended and is written."""

    def look() -> Any:
        job = http.get(f"/jobs/{id}").json()
        writing = job["output"] and job["output"]["state"] in ("pending", "writing")
        return job if job["finished_at"] and not writing else None

    found: dict[str, Any] = eventually(look)
    return found


def lines(count: int) -> bytes:
    return b"".join(b'{"custom_id": "n-%d", "input": "text %d"}\n' % (n, n) for n in range(count))


def test_from_s3_to_s3(http: httpx.Client, s3: S3, receiver: Receiver) -> None:
    s3.put("default/in/a.jsonl.gz", gzip.compress(lines(3000)))
    output = {"url": f"{OUT}/", "compression": "gzip", "part_items": 1000}
    body = {"model": "echo", "input": {"url": f"{IN}/a.jsonl.gz"}, "output": output}
    body["webhook"] = {"url": receiver.url}
    first, again = (
        http.post("/jobs", json=body, headers={"Idempotency-Key": "once"}) for _ in range(2)
    )
    job = first.json()
    assert (again.json(), again.headers["idempotency-replayed"]) == (job, "true")
    assert job["state"] == "validating"
    assert job["input"] == {
        "url": f"{IN}/a.jsonl.gz", "format": "jsonl", "compression": "gzip", "last_error": None
    }  # fmt: skip
    assert (job["output"]["state"], job["output"]["manifest"]) == ("pending", None)
    job = ended(http, job["id"])
    assert (job["state"], job["counts"]["succeeded"]) == ("completed", 3000)
    parts = job["output"]["manifest"]["parts"]
    assert [part["items"] for part in parts] == [1000] * 3
    written = b"".join(gzip.decompress(s3.get(part["url"])) for part in parts)
    assert written == http.get(f"/jobs/{job['id']}/results").content
    manifest = s3.get(f"{OUT}/{job['id']}/1/manifest.json")
    assert orjson.loads(manifest) == job["output"]["manifest"]
    [told] = eventually(lambda: receiver.received)
    assert orjson.loads(told.body)["data"] == job


def test_items_in_the_request_are_written_to_a_file(http: httpx.Client, s3: S3) -> None:
    by_json = submitted(http, items=["a", "b"], output={"files": {}})
    query = {"model": "echo", "output": '{"files": {"expires_in_s": 60}}'}
    headers = {"Content-Type": "application/x-ndjson"}
    by_lines = http.post("/jobs", params=query, content=b'"a"\n"b"\n', headers=headers).json()
    for job in (by_json, by_lines):
        [part] = ended(http, job["id"])["output"]["manifest"]["parts"]
        assert part["items"] == 2
        again = submitted(http, input={"file": part["file"]}, on_invalid="fail_item")
        error = ended(http, again["id"])["error"]  # results are no items
        assert error is None or error["code"] == "invalid"


def test_a_job_is_cancelled_while_it_is_read(http: httpx.Client, s3: S3) -> None:
    s3.put("default/in/held.jsonl", lines(3))
    with held(s3, "GET") as asked:
        job = submitted(http, input={"url": f"{IN}/held.jsonl"}, output={"url": OUT})
        eventually(asked.is_set)
        assert http.post(f"/jobs/{job['id']}/pause").status_code == 409
        results = http.get(f"/jobs/{job['id']}/results")
        assert (results.content, results.headers["x-complete"]) == (b"", "false")
        found = http.post(f"/jobs/{job['id']}/cancel").json()
    assert found["state"] == "cancelled"
    assert found["output"]["error"]["code"] == "no_results"
    results = http.get(f"/jobs/{job['id']}/results")
    assert (results.content, results.headers["x-complete"]) == (b"", "true")
    assert http.delete(f"/jobs/{job['id']}").status_code == 204


ENCRYPTION = {"sse": "AES256", "kms_key": "k"}
WRONG: list[tuple[dict[str, Any], list[Any], str]] = [
    ({"input": {"url": f"{IN}/a"}, "items": ["x"]}, ["input"], "not both"),
    ({"input": {}}, ["input"], "one of them"),
    ({"input": None}, ["input"], ""),
    ({"input": {"url": f"{IN}/a", "file": "file_01aryz6s41tsv4rrffq69g5fav"}}, ["input"], "one of"),
    ({"input": {"url": "https://x.example/"}}, ["input", "url"], "s3://"),
    ({"input": {"url": f"{IN}/"}}, ["input", "url"], "names no object"),
    ({"input": {"url": f"s3://{BUCKET}/other/a"}}, ["input", "url"], "MILLRACE_S3_ALLOW"),
    ({"input": {"url": f"s3://{BUCKET}/default/../other/a"}}, ["input", "url"], ".."),
    ({"input": {"url": f"s3://{BUCKET}/defaults/a"}}, ["input", "url"], "MILLRACE_S3_ALLOW"),
    ({"input": {"file": "file_01aryz6s41tsv4rrffq69g5fav"}}, ["input", "file"], "no file"),
    ({"input": {"file": "job_01aryz6s41tsv4rrffq69g5fav"}}, ["input", "file"], ""),
    ({"input": {"url": f"{IN}/a", "format": "xml"}}, ["input", "format"], "parquet"),
    ({"input": {"url": f"{IN}/a", "more": 1}}, ["input", "more"], ""),
    ({"items": ["x"], "output": {}}, ["output"], "one of them"),
    ({"items": ["x"], "output": {"url": "s3://other/"}}, ["output", "url"], "MILLRACE_S3_ALLOW"),
    ({"items": ["x"], "output": {"files": {}, "part_items": 5}}, ["output"], "for a url"),
    ({"items": ["x"], "output": {"url": OUT, "part_items": 0}}, ["output", "part_items"], ""),
    ({"items": ["x"], "output": {"url": OUT, "encryption": ENCRYPTION}}, ["output"], "aws:kms"),
    ({}, ["items"], "at least one item"),
]


@pytest.mark.parametrize(("asked", "loc", "says"), WRONG)
def test_what_is_wrong_is_said(
    http: httpx.Client, asked: dict[str, Any], loc: list[Any], says: str
) -> None:
    answer = http.post("/jobs", json={"model": "echo", **asked})
    assert answer.status_code == 422, answer.text
    faults = answer.json()["errors"]
    assert [fault["loc"] for fault in faults] == [loc]
    assert says in faults[0]["message"]


@contextmanager
def held(s3: S3, held_method: str) -> Iterator[threading.Event]:
    """Requests of one method for objects below default/ wait for the end of the block; yields what
    is set once there is one."""
    go, asked = threading.Event(), threading.Event()

    def wait(method: str, path: str, key_id: str) -> None:
        if method == held_method and path.startswith(f"/{BUCKET}/default/"):
            asked.set()
            go.wait(PATIENCE_S)

    s3.fault = wait
    try:
        yield asked
    finally:
        s3.fault = lambda method, path, key_id: None
        go.set()


def carriers(pid: int) -> list[int]:
    """The processes that a keeper has for transfers."""
    found = psutil.Process(pid).children()
    with suppress(psutil.NoSuchProcess):  # it has just ended
        return [one.pid for one in found if "spawn_main" in str(one.cmdline())]
    return []


def kill_keeper(platform: Platform) -> None:
    """Kills the keeper and waits for the next one; the processes of the first die with it."""
    its = eventually(lambda: carriers(pid_of(platform, "keeper")))
    kill_and_replace(platform, "keeper")
    eventually(lambda: all(gone(child) for child in its))


def count(platform: Platform, table: str, id: str) -> int:
    return int(scalar_of(platform, id, f"SELECT count(*) FROM {table} WHERE job_id = :job"))


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("victim", ["keeper", "process"])
def test_whoever_is_killed_while_it_reads_or_writes_another_one_finishes(
    platform: Platform, http: httpx.Client, s3: S3, receiver: Receiver, method: str, victim: str
) -> None:
    name = f"{method}-{victim}"
    s3.put(f"default/in/{name}.jsonl", lines(500))
    with held(s3, method) as asked:
        job = submitted(
            http, input={"url": f"{IN}/{name}.jsonl"}, output={"url": f"{OUT}/{name}"},
            webhook={"url": receiver.url},
        )  # fmt: skip
        eventually(asked.is_set)
        if victim == "keeper":
            kill_keeper(platform)
        else:
            for pid in carriers(pid_of(platform, "keeper")):
                os.kill(pid, signal.SIGKILL)
        assert http.get(f"/jobs/{job['id']}").json()["output"]["state"] != "complete"
    job = ended(http, job["id"])
    assert (job["state"], job["counts"]["succeeded"]) == ("completed", 500)
    [part] = job["output"]["manifest"]["parts"]
    assert s3.get(part["url"]) == http.get(f"/jobs/{job['id']}/results").content
    keys = s3.keys(f"default/out/{name}/")
    assert [key.rpartition("/")[2] for key in keys] == ["manifest.json", "results-00000.jsonl"]
    eventually(lambda: receiver.received)
    assert count(platform, "webhook_deliveries", job["id"]) == 1
    assert count(platform, "items", job["id"]) == 500
    assert_invariants(platform)


def test_a_keeper_that_is_killed_again_and_again_loses_nothing(
    platform: Platform, http: httpx.Client, s3: S3
) -> None:
    s3.put("default/in/many.jsonl", lines(20_000))
    jobs = [
        submitted(http, input={"url": f"{IN}/many.jsonl"}, output=output)["id"]
        for output in ({"files": {}}, {"url": OUT, "part_items": 3000})
    ]
    for _ in range(3):
        kill_keeper(platform)
    for id in jobs:
        job = ended(http, id)
        assert job["counts"]["succeeded"] == 20_000
        assert sum(part["items"] for part in job["output"]["manifest"]["parts"]) == 20_000
        assert job["output"]["manifest"]["counts"]["total"] == 20_000
    assert count(platform, "transfers", jobs[0]) == 0
    assert_invariants(platform)
