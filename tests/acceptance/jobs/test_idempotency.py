"""Idempotency-Key over HTTP: one job and one call a key, whoever else asks, and whatever dies."""

import select
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import redis
from sqlalchemy import Engine, text

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.children import answers, child_of
from tests.support.clients import request_bytes, send
from tests.support.models.entries import function
from tests.support.platforms import OPEN
from tests.support.wait import PATIENCE_S, eventually

JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
PLATFORM = OPEN
MODELS = function("broken:slow") + function("broken:moody")


@pytest.fixture
def token() -> str:
    return str(uuid4())


def made(database: Engine, mark: str) -> int:
    """Counts jobs with this mark in their metadata."""
    query = text("SELECT count(*) FROM jobs WHERE metadata::jsonb ->> 'mark' = :mark")
    with database.connect() as tx:
        return int(tx.scalar(query, {"mark": mark}) or 0)


def job(mark: str, *items: str) -> dict[str, object]:
    return {"model": "echo", "items": list(items or "x"), "metadata": {"mark": mark}}


def status_of(connection: socket.socket) -> int:
    connection.settimeout(PATIENCE_S)
    return int(connection.recv(65536).split()[1])


def test_the_same_request_again_gets_the_stored_answer(
    http: httpx.Client, client: Client, token: str
) -> None:
    named = {"Idempotency-Key": f'"{token}"'}
    wrong = http.post("/jobs", json=job(token) | {"priority": 1000}, headers=named)
    assert wrong.status_code == 422  # and it leaves the key free
    first = http.post("/jobs", json=job(token), headers=named)
    assert (first.status_code, "idempotency-replayed" in first.headers) == (202, False)
    client.jobs.wait(first.json()["id"])
    again = http.post("/jobs", json=job(token), headers={"Idempotency-Key": token})
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert again.content == first.content
    assert again.headers["location"] == first.headers["location"] == f"/jobs/{again.json()['id']}"


def test_the_key_of_a_deleted_job_makes_no_other_one(
    http: httpx.Client, client: Client, database: Engine, token: str
) -> None:
    named = {"Idempotency-Key": token}
    small, large = job(token), job(token, *["x"] * 100)
    for body, key in ((small, named), (large, {"Idempotency-Key": f"{token}-large"})):
        first = http.post("/jobs", json=body, headers=key).json()
        client.jobs.wait(first["id"])
        http.delete(f"/jobs/{first['id']}").raise_for_status()
        again = http.post("/jobs", json=body, headers=key)
        assert (again.status_code, again.json()["code"]) == (410, "job_deleted")
        assert "send a new key" in again.json()["detail"]
        other = http.post("/jobs", json=job(token, "y"), headers=key)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert made(database, token) == 0


def test_posts_with_one_key_make_one_job(http: httpx.Client, database: Engine, token: str) -> None:
    def post(_: int) -> httpx.Response:
        return http.post("/jobs", json=job(token), headers={"Idempotency-Key": token})

    with ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(post, range(200)))
    assert {answer.status_code for answer in answers} <= {202, 409}
    accepted = [answer for answer in answers if answer.status_code == 202]
    assert len({answer.content for answer in accepted}) == 1
    assert Counter("idempotency-replayed" in answer.headers for answer in accepted)[False] == 1
    assert made(database, token) == 1
    assert post(0).content == accepted[0].content


def test_another_request_under_the_key_is_refused(http: httpx.Client, token: str) -> None:
    def post(query: str, body: bytes, kind: dict[str, str]) -> httpx.Response:
        named = {"Idempotency-Key": token}
        return http.post(f"/jobs?model=echo{query}", content=body, headers=kind | named)

    assert post("", b'"x"\n', NDJSON).status_code == 202
    whole = b'{"model": "echo", "items": ["x"]}'
    others = [("", b'"y"\n', NDJSON), ("&priority=1", b'"x"\n', NDJSON), ("", whole, JSON)]
    for other, case in each(others):
        with case:
            answer = post(*other)
            assert (answer.status_code, answer.json()["code"]) == (422, "idempotency_key_reused")


@contextmanager
def half_sent(
    platform: Platform, http: httpx.Client, path: str, token: str
) -> Iterator[socket.socket]:
    """An upload of two lines under the key, of which the api has the first."""
    named = NDJSON | {"Idempotency-Key": token}

    def refused() -> bool:
        """Returns True if an invalid body is a conflict; it stores nothing if it comes first."""
        return http.post(path, content=b"{", headers=named).status_code == 409

    while True:
        with send(platform, request_bytes(path, named, b'"x"\n', more=4)) as upload:
            eventually(lambda: is_answered(upload) or refused(), every_s=0.1)
            if not is_answered(upload):
                yield upload
                return
        # What can't be valid held the key at the moment when the upload came.


def is_answered(connection: socket.socket) -> bool:
    """Returns True if a response is there, before the end of the request."""
    return bool(select.select([connection], [], [], 0)[0])


def test_a_key_is_in_flight_while_its_body_comes_in(
    platform: Platform, http: httpx.Client, database: Engine, token: str
) -> None:
    path = f"/jobs?model=echo&metadata=%7B%22mark%22:%22{token}%22%7D"
    named = NDJSON | {"Idempotency-Key": token}
    with half_sent(platform, http, path, token) as upload:
        early = http.post(path, content=b'"x"\n"y"\n', headers=named)
        assert (early.status_code, early.headers["retry-after"]) == (409, "1")
        assert early.json()["code"] == "idempotency_key_in_flight"
        upload.sendall(b'"y"\n')
        assert status_of(upload) == 202
    again = http.post(path, content=b'"x"\n"y"\n', headers=named)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert made(database, token) == 1


def test_a_broken_upload_frees_its_key(platform: Platform, http: httpx.Client, token: str) -> None:
    named = NDJSON | {"Idempotency-Key": token}
    with half_sent(platform, http, "/jobs?model=echo", token):
        pass

    def post() -> bool:
        answer = http.post("/jobs?model=echo", content=b'"z"\n', headers=named)
        return answer.status_code == 202

    eventually(post)


def test_a_retry_after_a_crash_gets_the_answer_that_was_lost(
    platform: Platform, http: httpx.Client, database: Engine, token: str
) -> None:
    """The api is killed as soon as the job is committed; nobody has read an answer."""
    body = b'{"model": "echo", "items": ["x"], "metadata": {"mark": "%b"}}' % token.encode()
    named = JSON | {"Idempotency-Key": token}
    api = child_of(platform, "api")
    with send(platform, request_bytes("/jobs", named, body)):
        eventually(lambda: made(database, token))
        api.kill()
    eventually(lambda: not api.alive())
    api.start()
    with httpx.Client(base_url=platform.url) as fresh:
        eventually(lambda: answers(platform.url))
        again = fresh.post("/jobs", content=body, headers=named)
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert made(database, token) == 1


@pytest.mark.parametrize("path", ["/jobs", "/infer"])
@pytest.mark.parametrize("fields", [["'a'"], [""], ["a,b"], ['"ü"'], ["a", "b"], ["x" * 1025]])
def test_an_unreadable_key_is_refused(http: httpx.Client, path: str, fields: list[str]) -> None:
    headers = [(b"idempotency-key", field.encode()) for field in fields]
    answer = http.post(path, json={}, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "malformed")
    assert "Idempotency-Key" in answer.json()["detail"]


def infer(http: httpx.Client, token: str, value: str, **more: object) -> httpx.Response:
    body = {"model": "echo", "input": value} | more
    return http.post("/infer", json=body, headers={"Idempotency-Key": token})


def test_a_call_made_again_gets_the_same_answer(http: httpx.Client, token: str) -> None:
    first, again = infer(http, token, "x"), infer(http, f'"{token}"', "x")
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.content == first.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert infer(http, token, "y").json()["code"] == "idempotency_key_reused"


def test_a_call_is_in_flight_until_it_is_answered(http: httpx.Client) -> None:
    def ask_at_once(token: str) -> list[httpx.Response]:
        with ThreadPoolExecutor(20) as pool:
            calls = [pool.submit(infer, http, token, "x", model="slow") for _ in range(20)]
            found = [call.result() for call in calls]
        assert {answer.status_code for answer in found} <= {200, 409}
        return found

    def attempt() -> Any:
        """None where all others came after the answer."""
        found = ask_at_once(token := str(uuid4()))
        return (token, found) if any(answer.status_code == 409 for answer in found) else None

    token, found = eventually(attempt)
    [answer] = [a for a in found if a.is_success and "idempotency-replayed" not in a.headers]
    refused = next(answer for answer in found if answer.status_code == 409)
    assert refused.headers["retry-after"] == "1"
    assert infer(http, token, "x", model="slow").content == answer.content


def test_a_call_that_failed_leaves_the_key_free(http: httpx.Client, token: str) -> None:
    late = infer(http, token, "x", model="slow", timeout_ms=50)
    assert late.status_code in (504, 429)  # 429: once it is known how long a launch takes
    assert infer(http, token, "raise", model="moody").status_code == 500
    assert infer(http, token, "other").status_code == 200


def test_a_client_that_leaves_frees_its_key(
    platform: Platform, http: httpx.Client, store: "redis.Redis"
) -> None:
    body = b'{"model": "slow", "input": "long"}'

    def is_freed() -> bool:
        """Returns False where the answer was there before the client left: it is kept."""
        token = str(uuid4())
        with send(platform, request_bytes("/infer", JSON | {"Idempotency-Key": token}, body)):
            eventually(lambda: store.exists(f"millrace:answer:default\n{token}"))
        after = eventually(lambda: (a := infer(http, token, "x")).status_code != 409 and a)
        assert after.status_code in (200, 422)
        return bool(after.status_code == 200)

    eventually(is_freed)


def test_slow_uploads_hold_no_transaction_connection_or_thread(
    platform: Platform, client: Client, database: Engine
) -> None:
    """Uploads are more than the api has connections (20) and threads (40)."""
    api = child_of(platform, "api").pid
    body = b'"x"\n' * 10
    named = [NDJSON | {"Idempotency-Key": str(uuid4())} for _ in range(30)] + [NDJSON] * 30

    def threads() -> int:
        return len(list(Path(f"/proc/{api}/task").iterdir()))

    before = threads()
    with database.connect() as tx:
        began = tx.scalar(text("SELECT now()"))
    with ExitStack() as stack:
        requests = [request_bytes("/jobs?model=echo", one, b"", more=len(body)) for one in named]
        uploads = [stack.enter_context(send(platform, request)) for request in requests]
        for byte in body[:-1]:
            for upload in uploads:
                upload.sendall(bytes([byte]))
        assert threads() < before + len(uploads) // 4  # reports take one now and then
        for n in range(10):
            assert client.jobs.submit("echo", [b'"x"\n'])["id"]
            assert client.infer("echo", n)["output"] == n
        eventually(lambda: count_since(database, began) == 0)  # others' may take a moment
        for upload in uploads:
            upload.sendall(body[-1:])
        assert [status_of(upload) for upload in uploads] == [202] * len(uploads)


def count_since(database: Engine, began: Any) -> int:
    """Counts transactions that began before then."""
    query = """SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND xact_start < :began"""
    with database.connect() as tx:
        return int(tx.scalar(text(query), {"began": began}) or 0)
