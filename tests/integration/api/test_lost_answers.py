"""Requests whose commits PostgreSQL makes, or not, and whose answers never come.

Each request is sent once for each of its commits, whose answer is lost, and again where it is 503,
as the packages of OpenAI and Anthropic do. It must end as one that lost none.
"""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, Engine, event

from api.app import create_app
from api.compat.openai.conversations import stored as conversations
from api.compat.openai.responses import stored
from jobs import ids
from jobs.settings import Settings
from jobs.store.db import Tx
from jobs.store.jobs import responses
from jobs.store.jobs.responses import NewResponse
from tests.support.stores import store
from tests.support.stores.lost_answers import LostAnswers
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.transactions import fetch, scalar, scalars, waits_for_lock
from tests.support.wait import PATIENCE_S, eventually

_TRIES = 5
_numbers = count()


class Stage:
    """An api in open mode, all of whose callers are of one tenant."""

    def __init__(self, client: TestClient, database: Engine) -> None:
        self.client, self.database = client, database

    @property
    def name(self) -> str:
        """Another one each time."""
        return f"n{next(_numbers)}"

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Sends a request, and again where it is 503."""
        headers = more.pop("headers", {})
        for n in range(_TRIES):
            tried = {"x-stainless-retry-count": str(n)}
            found: httpx.Response = self.client.request(
                method, path, headers=headers | tried, **more
            )
            if found.status_code != 503:
                return found
        raise AssertionError(f"{path}: {found.text}")

    def post(self, path: str, json: Any, key: str = "") -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        found = self.send("POST", path, json=json, headers=headers)
        assert found.status_code < 300, found.text
        return found.json()


@pytest.fixture
def stage(settings: Settings, database: Engine) -> Iterator[Stage]:
    with TestClient(create_app(settings), "http://127.0.0.1", client=("127.0.0.1", 1)) as client:
        yield Stage(client, database)


@pytest.fixture
def lost(stage: Stage) -> LostAnswers:
    app: Any = stage.client.app
    return LostAnswers(app.state.context.database)


Act = Callable[[], object]
Operation = Callable[[Stage], tuple[Act, Act]]
"""Prepares a request; returns what sends it, and what checks its end."""


def upload(stage: Stage) -> tuple[Act, Act]:
    name = stage.name
    file = {"file": (name, b'{"custom_id": "a"}'), "purpose": (None, "batch")}

    def check() -> None:
        query = "SELECT complete FROM files WHERE filename = :name AND complete"
        assert scalars(stage.database, query, {"name": name}) == [True]

    return lambda: stage.send("POST", "/v1/files", files=file), check


def openai_batch(stage: Stage) -> tuple[Act, Act]:
    name = stage.name
    body = {
        "input_file_id": f"file_{name}", "endpoint": "/v1/embeddings", "completion_window": "24h",
    }  # fmt: skip

    def check() -> None:
        query = "SELECT count(*) FROM jobs WHERE source::json->>'file' = :file"
        assert scalar(stage.database, query, {"file": body["input_file_id"]}) == 1

    return lambda: stage.post("/v1/batches", body), check


def messages(content: str) -> Any:
    """Body of a batch of one request."""
    params = {
        "model": "smollm2", "max_tokens": 1, "messages": [{"role": "user", "content": content}],
    }  # fmt: skip
    return {"requests": [{"custom_id": "a", "params": params}]}


def message_batch(stage: Stage) -> tuple[Act, Act]:
    name = stage.name
    body = messages(name)

    def check() -> None:
        query = "SELECT count(*) FROM items WHERE input LIKE :content"
        assert scalar(stage.database, query, {"content": f'%{name}"%'}) == 1

    return lambda: stage.post("/v1/messages/batches", body), check


def background_response(stage: Stage) -> tuple[Act, Act]:
    name = stage.name
    body = {"model": "smollm2", "input": name, "background": True}

    def check() -> None:
        query = """
            SELECT r.id = k.job_id FROM idempotency_keys k LEFT JOIN responses r ON r.id = job_id
            WHERE key = :key
        """
        assert scalar(stage.database, query, {"key": name})
        assert scalar(
            stage.database, "SELECT count(*) FROM items WHERE input LIKE :text",
            {"text": f"%{name}\"%"},
        ) == 1  # fmt: skip

    return lambda: stage.post("/v1/responses", body, key=name), check


def resubmission(stage: Stage) -> tuple[Act, Act]:
    name = stage.name
    job = ids.show("job", store.post(stage.database, "x"))

    def check() -> None:
        query = "SELECT act, detail::json->>'job' FROM audit WHERE target = :job"
        new = scalar(
            stage.database, "SELECT answer::json->>'id' FROM idempotency_keys WHERE key = :key",
            {"key": name},
        )  # fmt: skip
        assert fetch(stage.database, query, {"job": job}) == [("job.resubmit", new)]

    return lambda: stage.post(f"/jobs/{job}/resubmit", {}, key=name), check


def small_job(stage: Stage) -> tuple[Act, Act]:
    name = stage.name
    body = {"model": "echo", "items": ["x"], "name": name}

    def check() -> None:
        query = "SELECT count(*) FROM jobs WHERE name = :name"
        assert scalar(stage.database, query, {"name": name}) == 1

    return lambda: stage.post("/jobs", body, key=name), check


OPERATIONS: list[Operation] = [
    upload, openai_batch, message_batch, background_response, resubmission, small_job,
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)
def test_a_request_ends_as_if_every_answer_had_come(
    operation: Operation, stage: Stage, lost: LostAnswers
) -> None:
    act, _ = operation(stage)
    act()  # credentials, limits and models are cached from then on
    for _ in lost.each():
        act, check = operation(stage)
        act()
        check()
    assert broken_invariants(stage.database) == set()


def test_the_response_of_a_call_is_stored_without_another_call(
    stage: Stage, lost: LostAnswers
) -> None:
    app: Any = stage.client.app
    for _ in lost.each():
        new = NewResponse(ids.new(), "default", None, b"{}", b"[]", b"{}")
        stored.save(app.state.context, "default", partial(responses.store, new=new, keep_days=1))
        query = "SELECT count(*) FROM responses WHERE id = :id"
        assert scalar(stage.database, query, {"id": new.id}) == 1


def test_what_a_response_brings_is_appended_to_its_conversation_once(
    stage: Stage, lost: LostAnswers
) -> None:
    app: Any = stage.client.app
    context, id = app.state.context, stage.post("/v1/conversations", {})["id"]
    for n, _ in enumerate(lost.each()):
        said, answer = ({"id": f"msg_{name}{n}", "type": "message"} for name in "ab")
        ended = {"status": "completed", "output": [answer]}

        def bring(tx: Tx, said: Any = said, ended: Any = ended) -> None:
            conversations.bring(context, tx, "default", id, [said], ended)

        stored.save(context, "default", bring)
        stored.save(context, "default", bring)  # as by an api that took the call over
        query = "SELECT item_id FROM conversation_items WHERE conversation_id = :id ORDER BY place"
        found = scalars(stage.database, query, {"id": ids.parse("conv", id)})
        assert found == [f"msg_{name}{one}" for one in range(n + 1) for name in "ab"]


def test_appended_items_are_there_once_whatever_answer_is_lost(
    stage: Stage, lost: LostAnswers
) -> None:
    for _ in lost.each():
        id = stage.post("/v1/conversations", {"metadata": {"a": "b"}})["id"]
        items = [{"role": "user", "content": text} for text in ("one", "two")]
        made = stage.post(f"/v1/conversations/{id}/items", {"items": items})["data"]
        listed = stage.send("GET", f"/v1/conversations/{id}/items?order=asc").json()["data"]
        assert listed == made
        assert len(made) == 2
        deleted = stage.send("DELETE", f"/v1/conversations/{id}")
        assert deleted.json()["deleted"]


def test_a_retried_batch_waits_for_the_end_of_the_try_before(stage: Stage) -> None:
    """Stands for a server that was frozen and goes on with a commit that was given up."""
    app: Any = stage.client.app
    commits, retried = threading.Event(), threading.Event()

    def wait(connection: Connection) -> None:
        cursor = connection.connection.cursor()
        cursor.execute("SELECT count(*) FROM jobs")
        if cursor.fetchone() == (1,) and not commits.is_set():
            commits.set()
            eventually(lambda: retried.is_set() or waits_for_lock(stage.database))

    def send_again() -> Any:
        headers = {"x-stainless-retry-count": "1"}
        found = stage.client.post("/v1/messages/batches", json=messages("x"), headers=headers)
        retried.set()
        return found.json()

    event.listen(app.state.context.database, "commit", wait)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(stage.post, "/v1/messages/batches", messages("x"))
        assert commits.wait(PATIENCE_S)
        second = threads.submit(send_again)
        assert first.result()["id"] == second.result()["id"]
